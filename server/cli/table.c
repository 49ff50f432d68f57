/* table.c - see table.h. Single threaded. */
#include "server/cli/table.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "server/cli/cli.h"

enum { COLUMNS_MAX = 16, CELL_BYTES = 144 /* an id has up to 128; only the last cell of a line may be longer */ };

static int say_time(char out[CELL_BYTES], double ms)
{
    const double s = ms / 1e3;
    if (ms < 1e3)
        return snprintf(out, CELL_BYTES, "%.0f ms", ms);
    if (s < 100.0)
        return snprintf(out, CELL_BYTES, "%.1f s", s);
    if (s < 6000.0)
        return snprintf(out, CELL_BYTES, "%.0f min", s / 60.0);
    return snprintf(out, CELL_BYTES, "%.1f h", s / 3600.0);
}

static int say_bytes(char out[CELL_BYTES], double bytes)
{
    const double mb = bytes / 1e6;
    return snprintf(out, CELL_BYTES,
                    mb >= 1000 ? "%.1f GB"
                    : mb >= 10 ? "%.0f MB"
                               : "%.1f MB",
                    mb >= 1000 ? mb / 1000 : mb);
}

/* Returns the cell's bytes. */
static int say_number(char out[CELL_BYTES], const json_t *row, const struct table_column *c, double value)
{
    const double most = c->of != NULL ? json_number_value(json_object_get(row, c->of)) : 0.0;
    if (c->as == TABLE_TIME)
        return say_time(out, value);
    if (c->as == TABLE_BYTES)
        return say_bytes(out, value);
    if (c->of != NULL && most <= 0.0)
        return snprintf(out, CELL_BYTES, "-");
    if (c->of != NULL)
        return snprintf(out, CELL_BYTES, "%.0f/%.0f", value, most);
    return snprintf(out, CELL_BYTES, "%.*f", c->as == TABLE_RATE ? 1 : 0, value);
}

static int say(char out[CELL_BYTES], const json_t *row, const struct table_column *c)
{
    const json_t *value = json_object_get(row, c->member);
    if (json_is_number(value))
        return say_number(out, row, c, json_number_value(value));
    char *other = json_is_array(value) ? json_print(value, 0) : NULL;
    const char *text = other != NULL ? other : json_string_value(value);
    const int length = snprintf(out, CELL_BYTES, "%s", text != NULL ? text : "-");
    free(other);
    for (char *at = out; *at != '\0'; at++) /* of a daemon that may be anybody's, for a terminal */
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '.';
    return length < CELL_BYTES ? length : CELL_BYTES - 1;
}

static void print_cell(FILE *to, const struct table_column *c, int width, const char *text)
{
    const bool last = c[1].title == NULL;
    (void)fprintf(to, "%*s%s", c->as != TABLE_TEXT ? width : last ? 0 : -width, text, last ? "\n" : "  ");
}

void table_print(FILE *to, const struct table_column *columns, const json_t *rows, size_t max)
{
    int widths[COLUMNS_MAX];
    char cell[CELL_BYTES];
    const size_t count = json_array_size(rows) < max ? json_array_size(rows) : max;
    for (size_t c = 0; columns[c].title != NULL; c++) {
        widths[c] = (int)strlen(columns[c].title);
        for (size_t i = 0; i < count; i++) {
            const int width = say(cell, json_array_get(rows, i), &columns[c]);
            widths[c] = width > widths[c] ? width : widths[c];
        }
    }
    for (size_t c = 0; columns[c].title != NULL; c++)
        print_cell(to, &columns[c], widths[c], columns[c].title);
    for (size_t i = 0; i < count; i++)
        for (size_t c = 0; columns[c].title != NULL; c++) {
            const json_t *row = json_array_get(rows, i);
            const char *text = json_string_value(json_object_get(row, columns[c].member));
            (void)say(cell, row, &columns[c]);
            if (text != NULL && columns[c + 1].title == NULL) { /* whose length nothing bounds */
                cli_print_field(to, text);
                (void)fputc('\n', to);
            } else {
                print_cell(to, &columns[c], widths[c], cell);
            }
        }
}

/* The id comes last, because a client may choose a long one. */
void table_print_requests(FILE *to, const json_t *answer, size_t max)
{
    static const struct table_column columns[] = {
        {"STATE", "state", TABLE_TEXT, NULL},
        {"AGE", "age_ms", TABLE_TIME, NULL},
        {"QUEUED", "queue_ms", TABLE_TIME, NULL},
        {"IN", "bytes_in", TABLE_COUNT, NULL},
        {"OUT", "generated", TABLE_COUNT, NULL},
        {"LEFT", "deadline_in_ms", TABLE_TIME, NULL},
        {"ENDPOINT", "endpoint", TABLE_TEXT, NULL},
        {"MODEL", "model", TABLE_TEXT, NULL},
        {"KEY", "key", TABLE_TEXT, NULL},
        {"CLIENT", "client", TABLE_TEXT, NULL},
        {"ID", "id", TABLE_TEXT, NULL},
        {0},
    };
    const json_t *requests = json_object_get(answer, "requests");
    const json_int_t total = json_integer_value(json_object_get(answer, "total"));
    const size_t listed = json_array_size(requests);
    const json_int_t shown = (json_int_t)(listed < max ? listed : max);
    table_print(to, columns, requests, max);
    if (total > shown)
        (void)fprintf(to, "and %" JSON_INTEGER_FORMAT " more\n", total - shown);
}
