/* health.c - aft health: is the daemon of this machine well? For containers, units and probes: one line and an exit
 * code, from nothing but the configuration. Single threaded. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "config/limits.h"
#include "server/cli/cli.h"
#include "server/cli/locate.h"
#include "server/cli/remote.h"

int cli_health(int argc, char **argv)
{
    struct locate l = {.config = NULL};
    bool ready = false;
    bool json = false;
    double timeout_s = HEALTH_TIMEOUT_S;
    const struct cli_option options[] = {
        {"ready", CLI_FLAG, &ready, 0, 0, NULL, NULL,
         "ask whether it takes requests, which it does not while it stops"},
        {"timeout", CLI_NUMBER, &timeout_s, 0.01, HEALTH_TIMEOUT_MAX_S, "SECONDS", "5",
         "how long to wait for the answer"},
        CLI_JSON_OPTION(&json) LOCATE_OPTIONS(&l){0},
    };
    int count;
    json_t *answer = NULL;
    int code = locate_parse(&l, false, options, argc, argv, 0, 0, &count);
    if (code != CLI_OK || count < 0)
        return code;
    l.to.timeout_s = timeout_s;
    code = remote_get_json(&l.to, ready ? "/readyz" : "/healthz", &answer);
    if (code != CLI_OK)
        return code;
    const char *says = json_string_value(json_object_get(answer, "status")), *expected = ready ? "ready" : "ok";
    if (says == NULL || strcmp(says, expected) != 0)
        code = cli_fail("%s answers without the status \"%s\"; is it aftd?", remote_name(&l.to), expected);
    else if (json)
        code = cli_print_json(json_pack("{s:s, s:s}", "daemon", remote_name(&l.to), "status", says));
    else
        (void)printf("%s: %s\n", remote_name(&l.to), says);
    json_decref(answer);
    return code;
}
