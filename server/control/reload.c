/* reload.c - see reload.h. Each kind of file is one step of reload_run: read and check first, then, when all are fine,
 * take over. The models come last, for they may take long, and a key that was taken back must not wait for them.
 * `config` is under the lock. */
#include "server/control/reload.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "server/access/auth.h"
#include "server/control/models.h"
#include "server/core/log.h"
#include "server/http/tls.h"

struct reload {
    int argc;
    char *const *argv;
    char *const *envp;
    struct models *models;
    struct auth *keys; /* NULL: there are none */
    pthread_mutex_t lock;
    struct config config;
};

enum status reload_create(struct reload **ret, const struct config *config, int argc, char *const argv[],
                          char *const envp[], struct models *m, struct error *err)
{
    struct reload *r = calloc(1, sizeof *r);
    if (r == NULL || pthread_mutex_init(&r->lock, NULL) != 0) {
        free(r);
        return error_set(err, ERR_NOMEM, "no memory to keep the settings");
    }
    r->argc = argc;
    r->argv = argv;
    r->envp = envp;
    r->models = m;
    r->config = *config;
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

/* The names of settings that differ go to `changed` if they can be taken over, else to `restart`. */
static enum status compare(const struct settings *now, const struct settings *next, json_t *changed, json_t *restart,
                           struct error *err)
{
    int failed = changed == NULL || restart == NULL;
    for (size_t id = 0; id < SETTING_COUNT; id++) {
        const struct setting *s = setting_at(id);
        if (!is_same(s, now, next))
            failed |= json_array_append_new(id == SETTING_log_level ? changed : restart, json_string(s->name));
    }
    return failed == 0 ? OK : error_set(err, ERR_NOMEM, "no memory to compare the settings");
}

/* What needs a restart keeps its value and its source. */
static void take_over(struct reload *r, const struct config *next)
{
    (void)pthread_mutex_lock(&r->lock);
    r->config.settings.log_level = next->settings.log_level;
    r->config.sources[SETTING_log_level] = next->sources[SETTING_log_level];
    (void)pthread_mutex_unlock(&r->lock);
    log_set_level(next->settings.log_level);
}

/* ---- all of it ------------------------------------------------------------------------------------------------- */

static void log_report(const json_t *report)
{
    char *text = json_print(report, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (text != NULL)
        log_info("reload: %s", text);
    free(text);
}

enum status reload_run(struct reload *r, json_t **ret, struct error *err)
{
    struct config *next = malloc(sizeof *next); /* tens of kilobytes */
    json_t *changed = json_array(), *restart = json_array(), *scanned = NULL, *report = NULL;
    struct auth_table *keys = NULL;
    struct tls_identity *identity = NULL;
    size_t key_count = 0;
    struct error why;
    enum status st = OK;
    if (next == NULL) {
        st = error_set(err, ERR_NOMEM, "nothing has changed: no memory to read the settings");
        goto done;
    }
    st = config_load(next, r->argc, r->argv, r->envp, warn_of_setting, NULL, &why);
    if (st == OK)
        st = compare(&r->config.settings, &next->settings, changed, restart, &why);
    if (st == OK && r->keys != NULL)
        st = auth_read(r->keys, &keys, &key_count, &why);
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
    const bool certifies = identity != NULL;
    tls_put(identity);
    identity = NULL;
    st = models_scan(r->models, &scanned, &why); /* what is not accepted is in its report, and changes nothing */
    if (st != OK) {
        st = error_set_param(err, st, why.param, "settings, keys and certificate are taken over, but of the models: %s",
                             why.message);
        goto done;
    }
    report = json_pack("{s:O, s:O, s:I, s:b, s:O}", "changed", changed, "restart", restart, "keys",
                       (json_int_t)key_count, "certificate", (int)certifies, "models", scanned);
    if (report == NULL) {
        st = error_set(err, ERR_NOMEM, "all was read, but there is no memory to say what has changed");
        goto done;
    }
    log_report(report);
    *ret = report;
done:
    auth_table_free(keys);
    tls_free(identity);
    json_decref(scanned);
    json_decref(restart);
    json_decref(changed);
    free(next);
    return st;
}
