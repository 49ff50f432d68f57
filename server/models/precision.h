/* precision.h - which precision a model's products run in: what a setting asks for, or what a check of the model's
 * quality has found good enough. Any thread; no state. */
#ifndef SERVER_MODELS_PRECISION_H
#define SERVER_MODELS_PRECISION_H

#include <stdbool.h>
#include <stddef.h>

#include "config/status.h"
#include "engine/engine.h"

enum { PRECISION_DIGEST_BYTES = 65 };

/* What a check found, and of which files: DIR/precision.json. */
struct precision_record {
    char digest[PRECISION_DIGEST_BYTES]; /* SHA-256 of the model's files, in hexadecimal */
    bool bits;                           /* the values are bits per byte or dim, else top-1 in percent */
    size_t samples;                      /* bytes, dims or pictures */
    double value[ENGINE_PRECISION_COUNT];
};

/* The digest of config.json and of the files that hold the tensors of a model directory. Errors: ERR_IO, ERR_NOMEM. */
enum status precision_digest(char ret[PRECISION_DIGEST_BYTES], const char *dir, struct error *err);

/* Write DIR/precision.json: a file beside it, which then takes its name in one step. Errors: ERR_IO, ERR_NOMEM. */
enum status precision_record_write(const struct precision_record *r, const char *dir, struct error *err);
/* Is it within PRECISION_TOP1_LOSS_MAX or PRECISION_BITS_LOSS_MAX of fp32, on PRECISION_SAMPLES_MIN samples or more? */
bool precision_is_good(const struct precision_record *r, enum engine_precision precision);

/* The precision of the model NAME in DIR. `wish`: "f32", "bf16", "int8" or "auto" for all models, and NAME=one of them
 * for some, in a list separated by commas; NULL: "f32". auto is the fastest on the instruction set `isa` (as
 * engine_options) that a record of exactly these files found good; f32 without one.
 * Errors: ERR_ARGUMENT (what the wish is, and what was expected), ERR_FORMAT (the record is not valid), ERR_IO,
 * ERR_NOMEM. */
enum status precision_choose(enum engine_precision *ret, const char *wish, const char *name, const char *dir,
                             const char *isa, struct error *err);

/* Does a wish that precision_choose accepted leave a model to auto? */
bool precision_is_auto(const char *wish, const char *name);

/* The first model that a wish names and that `is_known` does not know, copied to name [size]; false: there is none. */
bool precision_names_unknown(const char *wish, bool (*is_known)(const void *arg, const char *name), const void *arg,
                             char *name, size_t size);

#endif
