/* openapi_text.c - see openapi_text.h. */
#include "server/api/openapi_text.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "config/json.h"
#include "server/api/openapi.h"
#include "server/api/reply.h"

struct openapi_text {
    const struct settings *settings;
    pthread_mutex_t lock;
    char *texts[2]; /* by whether it is the admin listener's; NULL: not made yet */
    size_t bytes[2];
};

enum status openapi_text_create(struct openapi_text **ret, const struct settings *s, struct error *err)
{
    struct openapi_text *t = calloc(1, sizeof *t);
    if (t == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the description of the interface");
    t->settings = s;
    (void)pthread_mutex_init(&t->lock, NULL);
    *ret = t;
    return OK;
}

void openapi_text_free(struct openapi_text *t)
{
    if (t == NULL)
        return;
    free(t->texts[0]);
    free(t->texts[1]);
    (void)pthread_mutex_destroy(&t->lock);
    free(t);
}

static void make_locked(struct openapi_text *t, bool admin)
{
    json_t *whole = openapi_describe(t->settings, admin);
    t->texts[admin] = whole != NULL ? json_print(whole, REPLY_JSON_FLAGS) : NULL;
    t->bytes[admin] = t->texts[admin] != NULL ? strlen(t->texts[admin]) : 0;
    json_decref(whole);
}

char *openapi_text_copy(struct openapi_text *t, bool admin, size_t *bytes)
{
    (void)pthread_mutex_lock(&t->lock);
    if (t->texts[admin] == NULL)
        make_locked(t, admin); /* others who ask meanwhile wait for it rather than make it too */
    char *copy = t->texts[admin] != NULL ? malloc(t->bytes[admin] + 1) : NULL;
    if (copy != NULL)
        memcpy(copy, t->texts[admin], t->bytes[admin] + 1);
    *bytes = t->bytes[admin];
    (void)pthread_mutex_unlock(&t->lock);
    return copy;
}
