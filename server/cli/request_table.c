/* request_table.c - see request_table.h. Single threaded. */
#include "server/cli/request_table.h"

#include <stdbool.h>
#include <string.h>

enum { COLUMNS = 10, CELL_BYTES = 144 }; /* an id has up to 128 */

/* What a column shows of a request. */
enum shown_as { SHOWN_TEXT, SHOWN_TIME, SHOWN_COUNT };
static const struct column {
    const char *title, *member;
    enum shown_as as; /* a text is on the left, a number on the right */
} columns[COLUMNS] = {
    {"STATE", "state", SHOWN_TEXT},       {"AGE", "age_ms", SHOWN_TIME},     {"QUEUED", "queue_ms", SHOWN_TIME},
    {"IN", "bytes_in", SHOWN_COUNT},      {"OUT", "generated", SHOWN_COUNT}, {"LEFT", "deadline_in_ms", SHOWN_TIME},
    {"ENDPOINT", "endpoint", SHOWN_TEXT}, {"MODEL", "model", SHOWN_TEXT},    {"KEY", "key", SHOWN_TEXT},
    {"CLIENT", "client", SHOWN_TEXT},
};

static void say_time(char out[CELL_BYTES], double ms)
{
    const double s = ms / 1e3;
    if (ms < 1e3)
        (void)snprintf(out, CELL_BYTES, "%.0f ms", ms);
    else if (s < 100.0)
        (void)snprintf(out, CELL_BYTES, "%.1f s", s);
    else if (s < 6000.0)
        (void)snprintf(out, CELL_BYTES, "%.0f min", s / 60.0);
    else
        (void)snprintf(out, CELL_BYTES, "%.1f h", s / 3600.0);
}

static void say(char out[CELL_BYTES], const json_t *request, const struct column *c)
{
    const json_t *value = json_object_get(request, c->member);
    const char *text = json_string_value(value);
    if (c->as == SHOWN_TIME && json_is_number(value))
        say_time(out, json_number_value(value));
    else if (c->as == SHOWN_COUNT && json_is_integer(value))
        (void)snprintf(out, CELL_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else
        (void)snprintf(out, CELL_BYTES, "%s", text != NULL ? text : "-");
}

void request_table_print(FILE *to, const json_t *requests)
{
    int widths[COLUMNS];
    char cell[CELL_BYTES];
    const json_t *request;
    size_t i;
    for (size_t c = 0; c < COLUMNS; c++) {
        widths[c] = (int)strlen(columns[c].title);
        json_array_foreach(requests, i, request)
        {
            say(cell, request, &columns[c]);
            widths[c] = (int)strlen(cell) > widths[c] ? (int)strlen(cell) : widths[c];
        }
    }
    for (size_t c = 0; c < COLUMNS; c++)
        (void)fprintf(to, "%*s  ", columns[c].as == SHOWN_TEXT ? -widths[c] : widths[c], columns[c].title);
    (void)fprintf(to, "ID\n");
    json_array_foreach(requests, i, request)
    {
        for (size_t c = 0; c < COLUMNS; c++) {
            say(cell, request, &columns[c]);
            (void)fprintf(to, "%*s  ", columns[c].as == SHOWN_TEXT ? -widths[c] : widths[c], cell);
        }
        (void)fprintf(to, "%s\n", json_string_value(json_object_get(request, "id")));
    }
}
