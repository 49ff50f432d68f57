/* generation.h - POST /generate and its answer, whole or streamed, read into one shape and checked against the contract
 * on the way. One thread. A failing step ends the test. */
#ifndef TESTS_SUPPORT_GENERATION_H
#define TESTS_SUPPORT_GENERATION_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "config/limits.h"
#include "tests/support/client.h"

struct generation {
    char *text; /* NUL-terminated; a stream's events put together */
    size_t bytes;
    unsigned events; /* with text; 0 for a whole answer */
    bool has_part;   /* it ends with the event of a part of a character, which has none */
    char finish[16];
    char model[MODEL_NAME_MAX + 1];
    json_int_t seed;
    json_int_t tokens; /* that the text consists of */
    json_int_t prompt_tokens, completion_tokens, dropped;
};

/* Generate by `fields`, which is taken, with more time if that was not enough for a first byte. The answer must be 200,
 * have exactly the contract's keys and come from the model named, or else the text model of tests/data/models; every
 * event of a stream must be JSON of valid UTF-8 of its own. generation_clear it. */
void generate(const struct daemon *d, json_t *fields, struct generation *ret);
/* The same from an answer that has been received. */
void generation_read(const struct reply *r, struct generation *ret);
void generation_clear(struct generation *g);

/* The request's body, which the caller frees; takes `fields`. */
char *generate_body(json_t *fields);
struct request generate_request(const char *body);

/* Assert that both have the same text; says where they differ. */
void assert_same_text(const char *what, const char *a, size_t a_bytes, const char *b, size_t b_bytes);

#endif
