/* request_table.h - the requests that GET /admin/requests lists, as a table for people. Single threaded. */
#ifndef SERVER_CLI_REQUEST_TABLE_H
#define SERVER_CLI_REQUEST_TABLE_H

#include <jansson.h>
#include <stdio.h>

/* A headline, and a line for each request, oldest first. The id comes last, because a client may choose a long one. */
void request_table_print(FILE *to, const json_t *requests);

#endif
