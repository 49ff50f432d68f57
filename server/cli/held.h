/* held.h - bytes that are kept as they come: a file, an answer, or the beginning of a line. Single threaded. */
#ifndef SERVER_CLI_HELD_H
#define SERVER_CLI_HELD_H

#include <stdbool.h>
#include <stddef.h>

/* Zeroed it is empty. */
struct held {
    char *bytes; /* [size] and a NUL, to be freed; NULL: nothing came */
    size_t size, room;
    const char *fault; /* why the latest bytes are not there, as "is larger than ..."; NULL: they are */
};

/* False, with the fault: they would be more than `max` in all, or there is no memory. */
bool held_add(struct held *h, const void *bytes, size_t n, size_t max);
/* Add what is left of the line that *bytes [*n] go on with, and move past it. True: the line is whole, without its end;
 * set h->size to 0 to begin the next. */
bool held_line(struct held *h, const char **bytes, size_t *n, size_t max);

#endif
