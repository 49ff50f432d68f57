/* nearest.h - which known name was meant by one that is not known: a field, a parameter, a setting, an option, a verb.
 * It was if other programs call it so, if it goes on from what was written, or but for a slip of the fingers.
 * Any thread; no state. */
#ifndef CONFIG_NEAREST_H
#define CONFIG_NEAREST_H

#include <stdbool.h>
#include <stddef.h>

enum { NEAREST_NAME_MAX = 64 }; /* longer than any known name; what is longer resembles none */

struct nearest {
    const char *written; /* [length] */
    size_t length;
    const char *name; /* the best so far; NULL: none is near */
    size_t distance;  /* its distance; what is as far is no better */
};

/* Is `written` [length] the name itself? '-' counts as '_' in both, here and in what follows. */
bool nearest_is(const char *written, size_t length, const char *name);

/* Nothing is offered yet. */
struct nearest nearest_to(const char *written, size_t length);
/* `name`, which must last, is a known one. */
void nearest_offer(struct nearest *n, const char *name);

#endif
