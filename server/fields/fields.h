/* fields.h - a request's fields in a JSON object, checked against a table: unknown names, and values of the wrong
 * kind or out of range, are refused by name. HTTP threads; no state. */
#ifndef SERVER_FIELDS_FIELDS_H
#define SERVER_FIELDS_FIELDS_H

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"

struct settings;

/*   kind           what it is stored as                            min, max */
enum field_kind {
    FIELD_TEXT,    /* const json_t *, borrowed from the JSON         its bytes */
    FIELD_NAME,    /* likewise, without NUL                          its bytes */
    FIELD_INTEGER, /* int64_t                                        its values */
    FIELD_NUMBER,  /* double                                         its values */
    FIELD_SWITCH,  /* enum field_switch */
    FIELD_WORD,    /* int, or an enum: which of `words` it is */
    FIELD_LIST,    /* const json_t *, borrowed from the JSON         its elements */
    FIELD_OBJECT,  /* likewise */
    FIELD_OTHER,   /* whatever `read` makes of it */
};
#define FIELD_RANGE(from, to) .min = (from), .max = (to)
/* The digits of a limit that is a plain number, for a field's `what`. */
#define FIELD_DIGITS(limit) FIELD_DIGITS_OF(limit)
#define FIELD_DIGITS_OF(number) #number
enum field_switch { FIELD_ABSENT, FIELD_FALSE, FIELD_TRUE };

enum { FIELD_WORDS_MAX = 3 };

struct field {
    const char *name;
    enum field_kind kind;
    bool required;
    bool exclusive; /* min itself is not allowed */
    size_t offset;  /* of the value in the request's struct */
    double min, max;
    const char *what;                            /* what is expected, in words; NULL: kind and range say it, which
                                                  * they do of texts, numbers and switches */
    const char *words[FIELD_WORDS_MAX];          /* those of a FIELD_WORD, then NULL */
    size_t max_setting;                          /* where in the settings, a uint32_t, the upper bound is; 0: max */
    bool (*read)(const json_t *value, void *to); /* FIELD_OTHER: false if it is not what is expected */
};

/* A table, as routes and /openapi.json refer to it. */
struct field_list {
    const struct field *table;
    size_t count;
};
#define FIELDS_OF(rows)                        \
    {                                          \
        rows, sizeof(rows) / sizeof((rows)[0]) \
    }

/* Describe in words what is accepted. */
void fields_describe(const struct field *f, const struct settings *s, char *out, size_t size);
/* The upper bound. */
double fields_max(const struct field *f, const struct settings *s);

/* Store each field of `object` at its offset in `to`; absent ones, and those that are null, are left unchanged if they
 * are not required. Errors: ERR_ARGUMENT. */
enum status fields_read(const struct field_list *list, json_t *object, const struct settings *s, void *to,
                        struct error *err);

/* The field of that name; NULL if there is none, which fields_refuse turns into an error: it returns ERR_ARGUMENT.
 * kind: "field", "parameter"; others: ":", or what may be there besides those of the list, in words that follow
 * "expected" and end before their names. The error names the field that was meant, where one is near. */
const struct field *fields_find(const struct field_list *list, const char *name);
enum status fields_refuse(const struct field_list *list, const char *kind, const char *others, const char *name,
                          struct error *err);

/* A random seed for a request that gives none: 0 .. SEED_MAX. */
uint64_t request_draw_seed(void);
/* A positive number that stays positive as a float32. */
static inline float request_positive(double value)
{
    return fmaxf((float)value, FLT_MIN);
}

#endif
