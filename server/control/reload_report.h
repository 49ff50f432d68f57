/* reload_report.h - what reading the daemon's files anew has changed, and its description as JSON, for whoever asked
 * and for the log. Any thread; no state. */
#ifndef SERVER_CONTROL_RELOAD_REPORT_H
#define SERVER_CONTROL_RELOAD_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "config/settings.h"
#include "server/control/hosting.h"

struct reload_report {
    bool changed[SETTING_COUNT], restart[SETTING_COUNT]; /* taken over; to be taken over by a restart */
    size_t keys;
    bool certificate; /* it was replaced */
    struct hosting_report models;
};
void reload_report_clear(struct reload_report *r); /* zeroed is fine */

/* {"changed": [settings], "restart": [settings], "keys": how many, "certificate": whether, "models": {"loaded",
 * "reloaded", "unloaded", "unchanged": [names], "failed": [{"model", "message"}]}}, for json_decref; NULL: out of
 * memory. */
json_t *reload_report_describe(const struct reload_report *r);

#endif
