/* reload.h - reading the daemon's files anew, for SIGHUP and POST /admin/config/reload: the settings, keys,
 * certificate, models_dir.
 * Settings, keys and certificate change together, once all of them are fine, and then the models, each by itself. What
 * cannot be taken over while the daemon runs is reported as needing a restart. reload_run is for the loader's thread,
 * reload_config for any. */
#ifndef SERVER_CONTROL_RELOAD_H
#define SERVER_CONTROL_RELOAD_H

#include "config/config.h"
#include "config/status.h"

struct auth;
struct hosting;
struct reload;
struct reload_report;

/* `config` is what the daemon was started with; argv and envp, where it came from, are borrowed.
 * *ret is set only on OK. Errors: ERR_NOMEM. */
enum status reload_create(struct reload **ret, const struct config *config, int argc, char *const argv[],
                          char *const envp[], struct hosting *h, struct error *err);
/* Keys to be read again as well; NULL: there are none. Before reload_run. */
void reload_keys(struct reload *r, struct auth *keys);
void reload_free(struct reload *r); /* NULL is a no-op */

/* Read all again, and log what has changed. *ret is set only on OK: reload_report_clear.
 * Errors: ERR_CONFIG, ERR_IO (the settings, the keys or models_dir), ERR_NOMEM: what is wrong has not been changed;
 * models change only if everything else was fine. */
enum status reload_run(struct reload *r, struct reload_report *ret, struct error *err);

/* The settings in force. */
void reload_config(struct reload *r, struct config *ret);

#endif
