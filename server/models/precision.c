/* precision.c - see precision.h. */
#include "server/models/precision.h"

#include <errno.h>
#include <jansson.h>
#include <nettle/base16.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "config/file.h"
#include "config/json.h"
#include "config/limits.h"
#include "config/list.h"
#include "weights/tensor_set.h"

#define RECORD "precision.json"

enum { PATH_BYTES = SETTING_TEXT_MAX + 1 + 256, RECORD_MAX = 4096, VERSION = 2 };

static const char *const measures[2] = {"top1_percent", "bits"};

/* ---- the files -------------------------------------------------------------------------------------------------- */

struct digest {
    XXH3_state_t *hash;
    const char *dir;
};

static enum status add_bytes(struct digest *d, struct file *f, struct error *err)
{
    uint8_t bytes[65536];
    enum status st = OK;
    for (uint64_t left = f->size; left > 0 && st == OK;) {
        const size_t n = left < sizeof bytes ? (size_t)left : sizeof bytes;
        st = file_read(f, bytes, n, err);
        if (st == OK)
            (void)XXH3_128bits_update(d->hash, bytes, n);
        left -= n;
    }
    return st;
}

static enum status add_file(void *arg, const char *name, struct error *err)
{
    struct digest *d = arg;
    struct file f = {.fd = -1};
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s", d->dir, name);
    enum status st = file_open(&f, path, SAFETENSORS_FILE_MAX, err);
    if (st != OK)
        return st;
    (void)XXH3_128bits_update(d->hash, name, strlen(name) + 1);
    st = add_bytes(d, &f, err);
    file_close(&f);
    return st;
}

enum status precision_digest(uint8_t ret[PRECISION_DIGEST_BYTES], const char *dir, struct error *err)
{
    struct digest d = {.hash = XXH3_createState(), .dir = dir};
    XXH128_canonical_t sum;
    _Static_assert(PRECISION_DIGEST_BYTES == sizeof sum, "the digest is XXH3 of 128 bits");
    if (d.hash == NULL)
        return error_set(err, ERR_NOMEM, "%s: no memory to read it", dir);
    (void)XXH3_128bits_reset(d.hash);
    enum status st = add_file(&d, "config.json", err);
    if (st == OK)
        st = tensor_set_files(dir, add_file, &d, err);
    XXH128_canonicalFromHash(&sum, XXH3_128bits_digest(d.hash));
    memcpy(ret, &sum, sizeof sum);
    (void)XXH3_freeState(d.hash);
    return st;
}

/* ---- the record ------------------------------------------------------------------------------------------------- */

enum status precision_record_write(const struct precision_record *r, const char *dir, struct error *err)
{
    char path[PATH_BYTES], aside[PATH_BYTES + 16], digest[2 * PRECISION_DIGEST_BYTES + 1] = "";
    (void)snprintf(path, sizeof path, "%s/" RECORD, dir);
    (void)snprintf(aside, sizeof aside, "%s.%ld", path, (long)getpid());
    base16_encode_update(digest, sizeof r->digest, r->digest);
    json_t *values = json_object();
    for (int p = 0; p < ENGINE_PRECISION_COUNT; p++)
        (void)json_object_set_new(values, engine_precision_word((enum engine_precision)p), json_real(r->value[p]));
    json_t *record =
        json_pack("{s:s, s:i, s:s, s:s, s:I, s:o}", "format", "aftd-precision", "version", VERSION, "xxh128", digest,
                  "measure", measures[r->bits], "samples", (json_int_t)r->samples, "values", values);
    if (record == NULL)
        return error_set(err, ERR_NOMEM, "%s: no memory to write it", path);
    const bool written = json_dump_file(record, aside, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) == 0;
    json_decref(record);
    if (written && rename(aside, path) == 0)
        return OK;
    const enum status st = error_set(err, status_of_errno(errno), "%s: %s", path, strerror(errno));
    (void)unlink(aside);
    return st;
}

static enum status refuse_record(const char *path, const char *what, struct error *err)
{
    return error_set(err, ERR_FORMAT, "%s: %s; aft check-precision --write writes a new one", path, what);
}

/* False if there is none. */
static enum status read_record(struct precision_record *ret, bool *found, const char *dir, struct error *err)
{
    char path[PATH_BYTES];
    const char *format, *digest, *measure;
    int version = 0;
    size_t bytes = sizeof ret->digest;
    struct base16_decode_ctx base16;
    json_int_t samples;
    json_t *root = NULL, *values;
    (void)snprintf(path, sizeof path, "%s/" RECORD, dir);
    *found = access(path, F_OK) == 0 || errno != ENOENT; /* what cannot be looked at, reading says */
    if (!*found)
        return OK;
    enum status st = json_read_object(&root, path, RECORD_MAX, err);
    if (st != OK)
        return st;
    base16_decode_init(&base16);
    if (json_unpack(root, "{s:s, s:i, s:s}", "format", &format, "version", &version, "sha256", &digest) == 0 &&
        strcmp(format, "aftd-precision") == 0 && version == 1) { /* whose digest is not reckoned any more */
        *ret = (struct precision_record){.samples = 0};
        json_decref(root);
        return OK;
    }
    if (json_unpack(root, "{s:s, s:i, s:s, s:s, s:I, s:o}", "format", &format, "version", &version, "xxh128", &digest,
                    "measure", &measure, "samples", &samples, "values", &values) != 0 ||
        strcmp(format, "aftd-precision") != 0 || version != VERSION || samples < 0 ||
        strlen(digest) != 2 * sizeof ret->digest ||
        base16_decode_update(&base16, &bytes, ret->digest, strlen(digest), digest) == 0 ||
        bytes != sizeof ret->digest || base16_decode_final(&base16) == 0) { /* blanks are passed over */
        json_decref(root);
        return refuse_record(path, "it is not a record of precisions, version 2", err);
    }
    ret->bits = strcmp(measure, measures[1]) == 0;
    ret->samples = (size_t)samples;
    for (int p = 0; p < ENGINE_PRECISION_COUNT && st == OK; p++) {
        const json_t *value = json_object_get(values, engine_precision_word((enum engine_precision)p));
        ret->value[p] = json_number_value(value);
        if (!json_is_number(value))
            st = refuse_record(path, "a value is missing", err);
    }
    json_decref(root);
    return st;
}

enum status precision_record_check(const struct precision_record *r, const char *dir, struct error *err)
{
    struct precision_record before;
    bool found;
    if (read_record(&before, &found, dir, NULL) != OK || !found ||
        memcmp(before.digest, r->digest, sizeof r->digest) != 0 || before.samples <= r->samples)
        return OK;
    return error_set(err, ERR_CONFLICT,
                     "%s/" RECORD " is of %zu samples, and these are %zu; it is kept: --force writes", dir,
                     before.samples, r->samples);
}

bool precision_is_good(const struct precision_record *r, enum engine_precision precision)
{
    const double f32 = r->value[ENGINE_F32], value = r->value[precision];
    if (r->samples < PRECISION_SAMPLES_MIN)
        return precision == ENGINE_F32;
    return r->bits ? value - f32 <= PRECISION_BITS_LOSS_MAX : f32 - value <= PRECISION_TOP1_LOSS_MAX;
}

/* ---- the choice ------------------------------------------------------------------------------------------------- */

const char *precision_reason_word(enum precision_reason by)
{
#define X(constant, word) word,
    static const char *const words[] = {PRECISION_REASONS(X)};
#undef X
    return words[by];
}

enum engine_precision precision_stored_as(uint64_t bf16, uint64_t all)
{
    return bf16 > all / 2 ? ENGINE_BF16 : ENGINE_F32;
}

enum engine_precision precision_stored(const struct model *m)
{
    uint64_t narrow = 0;
    for (size_t i = 0; i < m->tensor_count; i++)
        if (m->tensors[i].dtype == DTYPE_BF16)
            narrow += m->tensors[i].bytes / dtype_bytes(DTYPE_BF16);
    return precision_stored_as(narrow, m->parameters);
}

/* By the record, if there is one and it is of these files. */
static enum status choose_alone(struct precision_choice *ret, const char *dir, enum engine_precision stored,
                                const char *isa, struct error *err)
{
    struct precision_choice c = {.precision = engine_precision_pays(stored, isa) ? stored : ENGINE_F32,
                                 .by = PRECISION_BY_FILES};
    struct precision_record r;
    bool found;
    enum status st = read_record(&r, &found, dir, err);
    if (st == OK && found)
        st = precision_digest(c.digest, dir, err);
    if (st != OK)
        return st;
    c.has_digest = found;
    c.is_outdated = found && memcmp(c.digest, r.digest, sizeof c.digest) != 0;
    if (found && !c.is_outdated) {
        c.precision = ENGINE_F32;
        c.by = PRECISION_BY_RECORD;
        for (enum engine_precision p = ENGINE_F32 + 1; p < ENGINE_PRECISION_COUNT; p++) /* the narrower the faster */
            if (engine_precision_pays(p, isa) && precision_is_good(&r, p))
                c.precision = p;
    }
    *ret = c;
    return OK;
}

/* ENGINE_PRECISION_COUNT for "auto"; -1 for anything that is not a precision. */
static int find_word(const struct list_item *word)
{
    for (int p = 0; p < ENGINE_PRECISION_COUNT; p++)
        if (list_item_is(word, engine_precision_word((enum engine_precision)p)))
            return p;
    return list_item_is(word, "auto") ? ENGINE_PRECISION_COUNT : -1;
}

/* What the list says for the model by name, or else for all. */
static int find_ref(const char *ref, const char *name, struct error *err)
{
    int of_all = ENGINE_PRECISION_COUNT, of_it = -1;
    struct list_item item;
    for (const char *at = ref[0] != '\0' ? ref : NULL; list_next(&at, &item);) {
        const char *equals = memchr(item.text, '=', item.size), *word = equals != NULL ? equals + 1 : item.text;
        const int precision = find_word(&(struct list_item){word, (size_t)(item.text + item.size - word)});
        if (precision < 0) {
            (void)error_set_param(err, ERR_ARGUMENT, "precision",
                                  "precision has \"%.*s\"; expected f32, bf16, int8 or auto, or MODEL= before one of "
                                  "them, in a list separated by commas",
                                  (int)(item.size < 100 ? item.size : 100), item.text);
            return -1;
        }
        if (equals == NULL)
            of_all = precision;
        else if (list_item_is(&(struct list_item){item.text, (size_t)(equals - item.text)}, name))
            of_it = precision;
    }
    return of_it >= 0 ? of_it : of_all;
}

enum status precision_choose(struct precision_choice *ret, const char *ref, const char *name, const char *dir,
                             enum engine_precision stored, const char *isa, struct error *err)
{
    const int found = find_ref(ref != NULL ? ref : "auto", name, err);
    if (found < 0)
        return ERR_ARGUMENT;
    if (found == ENGINE_PRECISION_COUNT)
        return choose_alone(ret, dir, stored, isa, err);
    *ret = (struct precision_choice){.precision = (enum engine_precision)found, .by = PRECISION_BY_SETTING};
    return OK;
}

enum status precision_check(const char *ref, struct error *err)
{
    return ref == NULL || find_ref(ref, "", err) >= 0 ? OK : ERR_ARGUMENT;
}
