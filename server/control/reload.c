/* reload.c - see reload.h. Each kind of file is one step of reload_run: read and check first, then, when all are fine,
 * take over. The models come last, because they may take long, and a key that was revoked must not wait for them. */
#include "server/control/reload.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/json.h"
#include "server/access/auth.h"
#include "server/control/hosting.h"
#include "server/core/clock.h"
#include "server/core/log.h"
#include "server/core/metrics.h"
#include "server/core/service_manager.h"
#include "server/http/tls.h"
#include "server/models/model_names.h"
#include "server/models/registry.h"

static void note_outcome(bool success)
{
    metrics_gauge_set(METRIC_RELOAD_OK, 0, success);
    if (success)
        metrics_gauge_set(METRIC_RELOAD_TIME, 0, clock_unix_ns());
}

void reload_init(struct reload *r, const struct config *config, int argc, char *const argv[], struct hosting *h,
                 struct auth *keys)
{
    *r = (struct reload){argc, argv, h, keys, PTHREAD_MUTEX_INITIALIZER, *config};
    note_outcome(true); /* all was read to start with */
}

void reload_config(struct reload *r, struct config *ret)
{
    (void)pthread_mutex_lock(&r->lock);
    *ret = r->config;
    (void)pthread_mutex_unlock(&r->lock);
}

/* ---- settings -------------------------------------------------------------------------------------------------- */

static void warn_of_setting(void *arg, const char *message)
{
    (void)arg;
    log_warning("%s", message);
}

static bool is_same(const struct setting *s, const struct settings *a, const struct settings *b)
{
    if (s->kind == SETTING_TEXT)
        return strcmp(setting_text(s, a), setting_text(s, b)) == 0;
    return setting_number(s, a) == setting_number(s, b);
}

/* The settings that can change while the daemon runs: take_over puts them in force. */
static bool needs_no_restart(enum setting_id id)
{
    return id == SETTING_log_level || id == SETTING_default_models || id == SETTING_aliases;
}

static void copy_setting(struct settings *to, const struct settings *from, const struct setting *s)
{
    if (s->kind == SETTING_TEXT)
        setting_set_text(s, to, setting_text(s, from));
    else
        setting_set_number(s, to, setting_number(s, from));
}

/* Which settings differ: {"changed": [those to be taken over], "restart": [others, which keep their values and sources
 * in `next`]}, NULL for want of memory. What nobody set follows from others, and from how much memory there is. */
static json_t *compare(const struct config *now, struct config *next)
{
    json_t *whole = json_pack("{s:[], s:[]}", "changed", "restart");
    int failed = whole == NULL;
    for (enum setting_id id = 0; id < SETTING_COUNT; id++) {
        const struct setting *s = setting_at(id);
        const bool is_set = config_is_set(now->sources[id]) || config_is_set(next->sources[id]);
        const char *list = needs_no_restart(id) ? "changed" : "restart";
        if (is_set && !is_same(s, &now->settings, &next->settings))
            failed |= json_array_append_new(json_object_get(whole, list), json_string(s->name));
        if (needs_no_restart(id))
            continue;
        copy_setting(&next->settings, &now->settings, s);
        next->sources[id] = now->sources[id];
    }
    return json_unless(failed != 0, whole); /* not noted for json_print, as the report may never be printed */
}

static void take_over(struct reload *r, const struct config *next)
{
    (void)pthread_mutex_lock(&r->lock);
    r->config.settings = next->settings;
    memcpy(r->config.sources, next->sources, sizeof next->sources);
    (void)pthread_mutex_unlock(&r->lock);
    log_set_level(next->settings.log_level);
    registry_set_names(r->hosting->registry, next->settings.default_models, next->settings.aliases);
}

/* ---- all of it ------------------------------------------------------------------------------------------------- */

/* The report whole, logged; NULL for want of memory. */
static json_t *complete(json_t *report, size_t keys, bool certificate, json_t *models)
{
    json_put(report, "keys", json_integer((json_int_t)keys));
    json_put(report, "certificate", json_boolean(certificate));
    json_put(report, "models", models);
    char *text = json_print(report, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (text != NULL)
        log_info("reload: %s", text);
    report = json_unless(text == NULL, report);
    free(text);
    return report;
}

static enum status read_all(struct reload *r, json_t **ret, struct error *err)
{
    struct config *next = malloc(sizeof *next); /* tens of kilobytes */
    json_t *report = NULL, *models = NULL;
    struct auth_table *keys = NULL;
    struct tls_identity *identity = NULL;
    size_t key_count = 0;
    struct error why;
    enum status st = OK;
    if (next == NULL)
        return error_set(err, ERR_NOMEM, "nothing has changed: no memory to read the settings");
    st = config_load(next, r->argc, r->argv, environ, warn_of_setting, NULL, &why);
    if (st == OK) {
        report = compare(&r->config, next);
        st = model_names_check(&next->settings, r->hosting->registry, &why);
    }
    if (st == OK && r->keys != NULL)
        st = auth_read(r->keys, &keys, &key_count, &why);
    if (st == OK)
        st = tls_read(&identity, &next->settings, &why);
    if (st != OK) {
        st = error_set_param(err, st, why.param, "nothing has changed: %s", why.message);
        auth_table_free(keys);
        goto done;
    }
    take_over(r, next);
    if (keys != NULL)
        auth_put(r->keys, keys);
    const bool certificate = identity != NULL;
    tls_put(identity);
    st = hosting_scan(r->hosting, &models, &why); /* models not accepted are in the report, change nothing */
    if (st != OK) {
        st =
            error_set_param(err, st, why.param,
                            "settings, keys and certificate were taken over, but the models were not: %s", why.message);
        goto done;
    }
    *ret = complete(report, key_count, certificate, models);
    report = NULL;
done:
    json_decref(report);
    free(next);
    return st;
}

enum status reload_run(struct reload *r, json_t **ret, struct error *err)
{
    service_manager_reloading();
    const enum status st = read_all(r, ret, err);
    note_outcome(st == OK); /* before whoever waits for the reload goes on, perhaps to look at the metrics */
    service_manager_ready();
    return st;
}
