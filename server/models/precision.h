/* precision.h - which precision a model's products run in: what a setting asks for, or what a check of the model's
 * quality has found good enough. Any thread; no state. */
#ifndef SERVER_MODELS_PRECISION_H
#define SERVER_MODELS_PRECISION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "engine/engine.h"
#include "weights/model.h"

enum { PRECISION_DIGEST_BYTES = 16 };

/* What a check found, and of which files: DIR/precision.json. */
struct precision_record {
    uint8_t digest[PRECISION_DIGEST_BYTES]; /* precision_digest */
    bool bits;                              /* the values are bits per byte or dim, else top-1 in percent */
    size_t samples;                         /* bytes, dims or pictures */
    double value[ENGINE_PRECISION_COUNT];
};

/* XXH3 (128 bits, the higher ones first) of config.json and of the files that hold the tensors of a model directory. It
 * tells models apart, of which all are the operator's own: a cryptographic one would protect nobody, and was a third of
 * the time of a start. Errors: ERR_IO, ERR_NOMEM. */
enum status precision_digest(uint8_t ret[PRECISION_DIGEST_BYTES], const char *dir, struct error *err);

/* Write DIR/precision.json: a file beside it, which then takes its name in one step. Errors: ERR_IO, ERR_NOMEM. */
enum status precision_record_write(const struct precision_record *r, const char *dir, struct error *err);
/* May it take the place of what DIR has? Errors: ERR_CONFLICT: a record of these very files is of more samples. */
enum status precision_record_check(const struct precision_record *r, const char *dir, struct error *err);
/* Is it within PRECISION_TOP1_LOSS_MAX or PRECISION_BITS_LOSS_MAX of fp32, on PRECISION_SAMPLES_MIN samples or more? */
bool precision_is_good(const struct precision_record *r, enum engine_precision precision);

/* A precision, and what it was chosen by: */
#define PRECISION_REASONS(X)           \
    X(PRECISION_BY_SETTING, "setting") \
    X(PRECISION_BY_RECORD, "record")   \
    X(PRECISION_BY_FILES, "files") /* without a record: what the weights are kept in */
#define X(constant, word) constant,
enum precision_reason { PRECISION_REASONS(X) };
#undef X
struct precision_choice {
    enum engine_precision precision;
    enum precision_reason by;
    bool is_outdated; /* there is a record, of other files or an earlier version, which therefore does not count */
    bool has_digest;  /* there is a record, of which it had to be seen whether it is of these files */
    uint8_t digest[PRECISION_DIGEST_BYTES];
};
const char *precision_reason_word(enum precision_reason by);

/* The precision of the model NAME in DIR. `ref`: "f32", "bf16", "int8" or "auto" for all models, and NAME=one of them
 * for some, in a list separated by commas; NULL: "auto". auto is the fastest on the instruction set `isa` (as
 * engine_options) that a record of exactly these files found good; without one bf16 where most of the weights are kept
 * in it (`stored`) and `isa` multiplies it, else f32.
 * Errors: ERR_ARGUMENT (what the wish is, and what was expected), ERR_FORMAT (the record is not valid), ERR_IO,
 * ERR_NOMEM. */
enum status precision_choose(struct precision_choice *ret, const char *ref, const char *name, const char *dir,
                             enum engine_precision stored, const char *isa, struct error *err);
/* Is it such a wish? NULL and "" are. Errors: ERR_ARGUMENT. */
enum status precision_check(const char *ref, struct error *err);
/* What most of a model's weights are kept in: ENGINE_BF16, else ENGINE_F32. The latter: of `all` elements, so many in
 * bf16. */
enum engine_precision precision_stored(const struct model *m);
enum engine_precision precision_stored_as(uint64_t bf16, uint64_t all);

#endif
