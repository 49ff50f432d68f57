/* ps.c - aft ps and aft cancel: what a daemon is working on, and ending some of it, through the admin listener. Single
 * threaded. */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>

#include "config/limits.h"
#include "server/cli/cli.h"
#include "server/cli/locate.h"
#include "server/cli/remote.h"
#include "server/cli/table.h"

/* An answer that lists requests; taken. */
static int print(json_t *answer, bool as_json)
{
    if (as_json)
        return cli_print_json(answer);
    table_print_requests(stdout, answer, SIZE_MAX);
    json_decref(answer);
    return CLI_OK;
}

int cli_ps(int argc, char **argv)
{
    struct locate l = {.config = NULL};
    bool as_json = false;
    const struct cli_option options[] = {
        CLI_JSON_OPTION(&as_json) LOCATE_OPTIONS(&l) REMOTE_KEY_OPTION(&l.to){0},
    };
    int count;
    json_t *answer = NULL;
    int code = locate_parse(&l, true, options, argc, argv, 0, 0, &count);
    if (code == CLI_OK && count >= 0)
        code = remote_get_json(&l.to, "/admin/requests", &answer);
    return code == CLI_OK && count >= 0 ? print(answer, as_json) : code;
}

static int cancel(const struct locate *l, const char *id, bool as_json)
{
    json_t *answer = NULL;
    if (id[0] == '\0')
        return cli_fail_usage("the id is empty, expected one that aft ps lists");
    const int code = remote_named_json(&l->to, "DELETE", "/admin/requests/", id, &answer);
    return code == CLI_OK ? print(answer, as_json) : code;
}

int cli_cancel(int argc, char **argv)
{
    struct locate l = {.config = NULL};
    bool as_json = false;
    const struct cli_option options[] = {CLI_JSON_OPTION(&as_json) LOCATE_OPTIONS(&l) REMOTE_KEY_OPTION(&l.to){0}};
    int count;
    int code = locate_parse(&l, true, options, argc, argv, 1, INT_MAX, &count);
    if (code != CLI_OK)
        return code;
    for (int i = 1; i <= count; i++) { /* of those that have ended by themselves, each is told */
        const int one = cancel(&l, argv[i], as_json);
        code = one > code ? one : code;
    }
    return code;
}
