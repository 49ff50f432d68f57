/* reload.h - reading the daemon's files anew, for SIGHUP and POST /admin/config/reload: the settings, keys,
 * certificate, models_dir.
 * Settings, keys and certificate change together, once all of them are fine, and then the models, each by itself. What
 * cannot be taken over while the daemon runs is reported as needing a restart. reload_run is for the loader's thread,
 * reload_config for any. */
#ifndef SERVER_CONTROL_RELOAD_H
#define SERVER_CONTROL_RELOAD_H

#include <jansson.h>
#include <pthread.h>

#include "config/config.h"
#include "config/status.h"

struct auth;
struct hosting;

struct reload {
    int argc;
    char *const *argv;
    struct hosting *hosting;
    struct auth *keys;    /* NULL: there are none */
    pthread_mutex_t lock; /* guards: */
    struct config config; /* in force */
};

/* `config` is what the daemon was started with; argv, where that came from beside the environment, and the rest are
 * borrowed. */
void reload_init(struct reload *r, const struct config *config, int argc, char *const argv[], struct hosting *h,
                 struct auth *keys);

/* Read all again, and log what has changed; the service manager is told of begin and end, so that who had it ask can
 * wait. *ret is set only on OK, for json_decref: {"changed": [settings], "restart":
 * [settings], "keys": how many, "certificate": whether it was replaced, "models": as of hosting_scan}; NULL: there was
 * no memory for it.
 * Errors: ERR_CONFIG, ERR_IO (the settings, the keys or models_dir), ERR_NOMEM: what is wrong has not been changed;
 * models change only if everything else was fine. */
enum status reload_run(struct reload *r, json_t **ret, struct error *err);

/* The settings in force. */
void reload_config(struct reload *r, struct config *ret);

#endif
