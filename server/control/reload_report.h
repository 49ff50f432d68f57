/* reload_report.h - what reading the daemon's files anew has changed, and how that is told as JSON: to whoever asked,
 * and in the log. No thread of its own, no state. */
#ifndef SERVER_CONTROL_RELOAD_REPORT_H
#define SERVER_CONTROL_RELOAD_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "config/settings.h"
#include "server/control/hosting.h"

struct reload_report {
    bool changed[SETTING_COUNT], restart[SETTING_COUNT]; /* taken over; not before the daemon starts again */
    size_t keys;
    bool certificate; /* there is another */
    struct hosting_report models;
};
void reload_report_clear(struct reload_report *r); /* zeroed is fine */

/* {"changed": [settings], "restart": [settings], "keys": how many, "certificate": whether, "models": {"loaded",
 * "reloaded", "unloaded", "unchanged": [names], "failed": [{"model", "message"}]}}, for json_decref; NULL for want of
 * memory. */
json_t *reload_report_describe(const struct reload_report *r);

#endif
