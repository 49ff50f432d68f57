/* registry_inner.h - what the files of registry.h share among themselves. */
#ifndef SERVER_MODELS_REGISTRY_INNER_H
#define SERVER_MODELS_REGISTRY_INNER_H

#include <pthread.h>
#include <stddef.h>

#include "config/limits.h"
#include "server/core/clock.h"
#include "server/models/registry.h"

struct registry {
    pthread_mutex_t lock;
    size_t count;
    struct registry_model rows[REGISTRY_MODELS_MAX];
    struct queue *wake;
    char defaults[SETTING_TEXT_MAX +
                  2]; /* the setting default_models: names, each with its NUL; an empty one ends them */
    char aliases[SETTING_TEXT_MAX + 1];
};

/* The row of a name of `size` bytes; NULL: there is none. */
struct registry_model *registry_find_locked(struct registry *r, const char *name, size_t size);
/* Is that less than `span_ns` ago? 0: it never was. */
static inline bool registry_is_within(uint64_t ns, uint64_t span_ns)
{
    return ns != 0 && clock_now_ns() - ns < span_ns;
}
/* A copy that is a user of what is loaded. */
void registry_copy_locked(struct registry_model *ret, const struct registry_model *row);

#endif
