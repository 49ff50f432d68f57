/* reload.c - see reload.h. Each kind of file is one step of reload_run: read and check first, then, when all are fine,
 * take over. The models come last, because they may take long, and a key that was revoked must not wait for them. The
 * lock guards `config`. */
#include "server/control/reload.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config/json.h"
#include "server/access/auth.h"
#include "server/control/hosting.h"
#include "server/control/reload_report.h"
#include "server/core/clock.h"
#include "server/core/log.h"
#include "server/core/metrics.h"
#include "server/http/tls.h"

struct reload {
    int argc;
    char *const *argv;
    char *const *envp;
    struct hosting *hosting;
    struct auth *keys; /* NULL: there are none */
    pthread_mutex_t lock;
    struct config config;
};

static void note_outcome(bool success)
{
    struct timespec now;
    metrics_gauge_set(METRIC_RELOAD_OK, 0, success);
    if (success && clock_gettime(CLOCK_REALTIME, &now) == 0)
        metrics_gauge_set(METRIC_RELOAD_TIME, 0, (uint64_t)now.tv_sec * CLOCK_NS_PER_S + (uint64_t)now.tv_nsec);
}

enum status reload_create(struct reload **ret, const struct config *config, int argc, char *const argv[],
                          char *const envp[], struct hosting *h, struct error *err)
{
    struct reload *r = calloc(1, sizeof *r);
    if (r == NULL || pthread_mutex_init(&r->lock, NULL) != 0) {
        free(r);
        return error_set(err, ERR_NOMEM, "no memory to keep the settings");
    }
    r->argc = argc;
    r->argv = argv;
    r->envp = envp;
    r->hosting = h;
    r->config = *config;
    note_outcome(true); /* all was read to start with */
    *ret = r;
    return OK;
}

void reload_keys(struct reload *r, struct auth *keys)
{
    r->keys = keys;
}

void reload_free(struct reload *r)
{
    if (r == NULL)
        return;
    (void)pthread_mutex_destroy(&r->lock);
    free(r);
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

/* Which settings differ, and whether they can be taken over. What nobody set follows from others, and from how much
 * memory there is. */
static void compare(struct reload_report *report, const struct config *now, const struct config *next)
{
    for (enum setting_id id = 0; id < SETTING_COUNT; id++)
        if ((config_is_set(now->sources[id]) || config_is_set(next->sources[id])) &&
            !is_same(setting_at(id), &now->settings, &next->settings))
            *(needs_no_restart(id) ? &report->changed[id] : &report->restart[id]) = true;
}

static void copy_setting(struct settings *to, const struct settings *from, const struct setting *s)
{
    if (s->kind == SETTING_TEXT)
        setting_set_text(s, to, setting_text(s, from));
    else
        setting_set_number(s, to, setting_number(s, from));
}

/* What needs a restart keeps its value and its source. */
static void take_over(struct reload *r, const struct config *next)
{
    (void)pthread_mutex_lock(&r->lock);
    for (enum setting_id id = 0; id < SETTING_COUNT; id++)
        if (needs_no_restart(id)) {
            copy_setting(&r->config.settings, &next->settings, setting_at(id));
            r->config.sources[id] = next->sources[id];
        }
    (void)pthread_mutex_unlock(&r->lock);
    log_set_level(next->settings.log_level);
    hosting_take_names(r->hosting, &next->settings);
}

/* ---- all of it ------------------------------------------------------------------------------------------------- */

static void log_report(const struct reload_report *report)
{
    json_t *whole = reload_report_describe(report);
    char *text = whole != NULL ? json_print(whole, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    if (text != NULL)
        log_info("reload: %s", text);
    free(text);
    json_decref(whole);
}

static enum status read_all(struct reload *r, struct reload_report *ret, struct error *err)
{
    struct config *next = malloc(sizeof *next); /* tens of kilobytes */
    struct reload_report report = {.keys = 0};
    struct auth_table *keys = NULL;
    struct tls_identity *identity = NULL;
    struct error why;
    enum status st = OK;
    if (next == NULL) {
        st = error_set(err, ERR_NOMEM, "nothing has changed: no memory to read the settings");
        goto done;
    }
    st = config_load(next, r->argc, r->argv, r->envp, warn_of_setting, NULL, &why);
    if (st == OK)
        compare(&report, &r->config, next);
    if (st == OK)
        st = hosting_check_names(r->hosting, &next->settings, &why);
    if (st == OK && r->keys != NULL)
        st = auth_read(r->keys, &keys, &report.keys, &why);
    if (st == OK)
        st = tls_read(&identity, &r->config.settings, &why);
    if (st != OK) {
        st = error_set_param(err, st, why.param, "nothing has changed: %s", why.message);
        goto done;
    }
    take_over(r, next);
    if (keys != NULL)
        auth_put(r->keys, keys);
    keys = NULL;
    report.certificate = identity != NULL;
    tls_put(identity);
    identity = NULL;
    st = hosting_scan(r->hosting, &report.models, &why); /* models not accepted are in the report, change nothing */
    if (st != OK) {
        st =
            error_set_param(err, st, why.param,
                            "settings, keys and certificate were taken over, but the models were not: %s", why.message);
        goto done;
    }
    log_report(&report);
    *ret = report;
done:
    auth_table_free(keys);
    tls_free(identity);
    free(next);
    return st;
}

enum status reload_run(struct reload *r, struct reload_report *ret, struct error *err)
{
    const enum status st = read_all(r, ret, err);
    note_outcome(st == OK);
    return st;
}
