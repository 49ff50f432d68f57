/* keys.h - read a JSON object into a struct by a table of its keys, each with its type, range and default.
 * The rows are read in order, so a row may depend (`applies`) on what rows above it have stored.
 * Any thread; no state. */
#ifndef WEIGHTS_KEYS_H
#define WEIGHTS_KEYS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"

enum key_kind {
    KEY_IGNORED, /* known, but ignored */
    KEY_WORD,    /* one of `words`: its number, into an enum of unsigned's size */
    KEY_FLAG,    /* true or false, into a bool */
    KEY_INTEGER, /* into uint32_t [length] */
    KEY_NUMBER,  /* into float [length] */
    KEY_TEXT,    /* a string, into a char *, malloc'ed */
    KEY_TEXTS,   /* a list of strings, into a char ** of malloc'ed strings and a uint32_t at count_offset */
    KEY_OBJECT   /* by the table `keys` */
};

struct key {
    const char *name;
    size_t offset;            /* of the field */
    double min, max;          /* of an integer or number; of the number of texts */
    size_t count_offset;      /* KEY_TEXTS */
    const char *const *words; /* KEY_WORD */
    size_t word_count;
    const struct key *keys; /* KEY_OBJECT */
    size_t key_count;
    enum key_kind kind;
    uint32_t length;                 /* KEY_INTEGER, KEY_NUMBER: more than 1 is a JSON list of exactly that many;
                                       KEY_TEXT, KEY_TEXTS: bytes of one string at most */
    uint32_t tasks, inputs, options; /* for `applies`: sets, of the enums' values or of flags; 0 is all */
    bool required;                   /* else the struct keeps what it held before */
    bool scalar;                     /* length > 1: a single value is fine too and stands for all of them */
};

struct key_reader {
    const char *path;                                         /* for messages */
    void *base;                                               /* the struct */
    bool (*applies)(const struct key *key, const void *base); /* NULL: every row does */
    void (*warn)(void *arg, const char *message);             /* of keys that no row takes; may be NULL */
    void *arg;
};

/* Read `object` by `keys` [count]; `prefix` precedes the keys' names in messages ("mixer.", or "").
 * Errors: ERR_FORMAT naming the key, what it is and what was expected; ERR_NOMEM. Fields of rows already read keep
 * their values then, so texts have to be freed in any case. */
enum status keys_read(const struct key_reader *r, json_t *object, const char *prefix, const struct key *keys,
                      size_t count, struct error *err);

#endif
