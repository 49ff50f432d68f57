/* table.h - JSON objects as a table for people: a line of titles, and a line for each object. Single threaded. */
#ifndef SERVER_CLI_TABLE_H
#define SERVER_CLI_TABLE_H

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

/* What a column shows of an object: a text, or any other value as JSON has it; a time of so many ms; a number without
 * digits after its point, or with one; so many bytes. A text is on the left, the others are on the right. */
enum table_as { TABLE_TEXT, TABLE_TIME, TABLE_COUNT, TABLE_RATE, TABLE_BYTES };
struct table_column {
    const char *title; /* NULL ends the list */
    const char *member;
    enum table_as as;
    const char *of; /* of a count: the member that is the most it may be, shown behind it; if that is 0, neither */
};

/* Print the first rows [at most `max`]. What an object does not have is "-". */
void table_print(FILE *to, const struct table_column *columns, const json_t *rows, size_t max);

/* The requests of an answer of GET or DELETE /admin/requests, oldest first, and how many there are beside these. */
void table_print_requests(FILE *to, const json_t *answer, size_t max);

#endif
