/* safetensors.c - a .safetensors file: 8 bytes of little-endian header length, a JSON object that describes the
 * tensors, then their bytes without gaps up to the file's end.
 * The header is checked completely before any data is read, so that a bad file costs no memory. Any thread; no state.
 * Invariants of a finished struct safetensors: `tensors` is sorted by offset and tiles the file behind its header
 * exactly; names live in `header`, which nobody changes; `file` is open. */
#include "weights/safetensors.h"

#include <assert.h>
#include <endian.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "config/file.h"
#include "config/json.h"

#define LENGTH_BYTES 8u /* the header's length, which precedes it */
#define METADATA_KEY "__metadata__"

struct safetensors {
    char *path; /* owned; file's */
    struct file file;
    json_t *header;
    struct tensor *tensors; /* [count], by offset */
    size_t count;
    uint8_t *data; /* NULL, or the data_bytes at the end of the file */
    uint64_t data_bytes;
};

/* ---- one tensor's entry ----------------------------------------------------------------------------------------- */

static enum status entry_read_name(struct tensor *t, const char *path, const char *name, struct error *err)
{
    const size_t length = strlen(name);
    bool has_controls = false;

    for (size_t i = 0; i < length; i++)
        has_controls = has_controls || (unsigned char)name[i] < 0x20 || name[i] == 0x7F;
    t->name = name;
    if (length < TENSOR_NAME_MAX && !has_controls)
        return OK;
    return error_set_param(err, ERR_FORMAT, name, "%s: tensor \"%s\": its name has %zu bytes%s, expected at most %d",
                           path, json_quote(name).text, length, has_controls ? " and control characters" : "",
                           TENSOR_NAME_MAX - 1);
}

static enum status entry_read_dtype(struct tensor *t, const char *path, const char *word, struct error *err)
{
    static const enum dtype known[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_U8};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(word, dtype_name(known[i])) == 0) {
            t->dtype = known[i];
            return OK;
        }
    }
    return error_set_param(err, ERR_FORMAT, t->name,
                           "%s: tensor \"%s\": dtype is \"%s\", expected \"F32\", \"F16\", \"BF16\" or \"U8\"", path,
                           t->name, json_quote(word).text);
}

static enum status entry_read_shape(struct tensor *t, const char *path, const json_t *value, struct error *err)
{
    const size_t rank = json_array_size(value), size = dtype_bytes(t->dtype); /* rank 0 for what is not a list */

    if (!json_is_array(value) || rank > TENSOR_RANK_MAX)
        return error_set_param(err, ERR_FORMAT, t->name,
                               "%s: tensor \"%s\": shape is %s, expected a list of at most %d integers", path, t->name,
                               json_describe(value).text, TENSOR_RANK_MAX);
    t->rank = (uint32_t)rank;
    t->bytes = size;
    for (size_t i = 0; i < rank; i++) {
        const json_t *side = json_array_get(value, i);
        if (!json_is_integer(side) || json_integer_value(side) < 0)
            return error_set_param(err, ERR_FORMAT, t->name,
                                   "%s: tensor \"%s\": shape[%zu] is %s, expected an integer of at least 0", path,
                                   t->name, i, json_describe(side).text);
        t->shape[i] = (uint64_t)json_integer_value(side);
        if (t->shape[i] != 0 && t->bytes > UINT64_MAX / t->shape[i])
            return error_set_param(err, ERR_FORMAT, t->name, "%s: tensor \"%s\": its size in bytes is beyond 64 bits",
                                   path, t->name);
        t->bytes *= t->shape[i];
    }
    t->elements = t->bytes / size;
    return OK;
}

/* `begin` is counted from the header's end. */
static enum status entry_read(struct tensor *t, const char *path, uint64_t data_bytes, const char *name, json_t *entry,
                              struct error *err)
{
    const json_t *shape = json_object_get(entry, "shape"), *offsets = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    const json_int_t begin = json_integer_value(first), end = json_integer_value(last);
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));

    enum status st = entry_read_name(t, path, name, err);
    if (st != OK)
        return st;
    if (dtype == NULL || shape == NULL || !json_is_integer(first) || !json_is_integer(last) ||
        json_array_size(offsets) != 2 || json_object_size(entry) != 3)
        return error_set_param(
            err, ERR_FORMAT, name,
            "%s: tensor \"%s\": expected an object of exactly dtype, a string, shape, and data_offsets, "
            "a list of 2 integers",
            path, name);
    st = entry_read_dtype(t, path, dtype, err);
    if (st == OK)
        st = entry_read_shape(t, path, shape, err);
    if (st != OK)
        return st;
    if (begin < 0 || begin > end || (uint64_t)end > data_bytes || (uint64_t)(end - begin) != t->bytes)
        return error_set_param(err, ERR_FORMAT, name,
                               "%s: tensor \"%s\": data_offsets are %" PRId64 " and %" PRId64 ", expected %" PRIu64
                               " bytes (%" PRIu64 " elements of %s) among the %" PRIu64 " after the header%s",
                               path, name, (int64_t)begin, (int64_t)end, t->bytes, t->elements, dtype_name(t->dtype),
                               data_bytes, end > 0 && (uint64_t)end > data_bytes ? ": is the file truncated?" : "");
    t->begin = (uint64_t)begin;
    return OK;
}

/* ---- the header as a whole -------------------------------------------------------------------------------------- */

/* By offset; an empty tensor comes before another one at the same offset. */
static int tensor_compare(const void *a, const void *b)
{
    const struct tensor *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Sorted tensors must tile the data: no gap, no overlap, nothing after the last. */
static enum status header_check_tiling(const struct safetensors *s, const char *path, struct error *err)
{
    uint64_t at = 0;

    for (size_t i = 0; i < s->count; i++) {
        const struct tensor *t = &s->tensors[i];
        if (t->begin > at)
            return error_set_param(err, ERR_FORMAT, t->name,
                                   "%s: tensor \"%s\" begins at %" PRIu64 ", expected %" PRIu64
                                   ": the bytes between belong to no tensor",
                                   path, t->name, t->begin, at);
        if (t->begin < at)
            return error_set_param(err, ERR_FORMAT, t->name,
                                   "%s: tensor \"%s\" begins at %" PRIu64 ", expected %" PRIu64
                                   ": it overlaps tensor \"%s\"",
                                   path, t->name, t->begin, at, t[-1].name);
        at += t->bytes;
    }
    if (at != s->data_bytes)
        return error_set(err, ERR_FORMAT,
                         "%s: the tensors end at %" PRIu64 " of the %" PRIu64
                         " bytes after the header, expected them to fill the file",
                         path, at, s->data_bytes);
    return OK;
}

/* s->header -> s->tensors, s->count. */
static enum status header_bind(struct safetensors *s, const char *path, struct error *err)
{
    const size_t room = json_object_size(s->header) + 1; /* calloc(0) may be NULL */
    const char *name;
    json_t *entry;

    s->tensors = calloc(room, sizeof *s->tensors);
    if (s->tensors == NULL)
        return error_set(err, ERR_NOMEM, "%s: not enough memory for %zu tensors", path, room);
    json_object_foreach(s->header, name, entry)
    {
        if (strcmp(name, METADATA_KEY) == 0)
            continue;
        const enum status st = entry_read(&s->tensors[s->count++], path, s->data_bytes, name, entry, err);
        if (st != OK)
            return st;
    }
    qsort(s->tensors, s->count, sizeof *s->tensors, tensor_compare);
    const enum status st = header_check_tiling(s, path, err);
    for (size_t i = 0; i < s->count; i++) {
        s->tensors[i].file = &s->file;
        s->tensors[i].begin += s->file.size - s->data_bytes;
    }
    return st;
}

/* The first bytes of `f` -> *header; *data_bytes is what follows them in the file. */
static enum status header_read(json_t **header, uint64_t *data_bytes, struct file *f, struct error *err)
{
    enum status st;
    uint64_t length;
    char *text = NULL;

    if (f->size < LENGTH_BYTES)
        return error_set(err, ERR_FORMAT, "%s: has %" PRIu64 " bytes, expected at least the %u of the header's length",
                         f->path, f->size, LENGTH_BYTES);
    st = file_read(f, &length, sizeof length, err);
    if (st != OK)
        return st;
    length = le64toh(length);
    if (length > SAFETENSORS_HEADER_MAX)
        return error_set(err, ERR_FORMAT, "%s: the header's length is %" PRIu64 ", expected at most %u", f->path,
                         length, SAFETENSORS_HEADER_MAX);
    if (length > f->size - LENGTH_BYTES)
        return error_set(err, ERR_FORMAT,
                         "%s: the header's length is %" PRIu64 ", expected at most the %" PRIu64
                         " bytes after it: is the file truncated?",
                         f->path, length, f->size - LENGTH_BYTES);
    text = malloc((size_t)length + 1);
    if (text == NULL)
        return error_set(err, ERR_NOMEM, "%s: not enough memory for a header of %" PRIu64 " bytes", f->path, length);
    st = file_read(f, text, (size_t)length, err);
    if (st == OK)
        st = json_parse_object(header, text, (size_t)length, f->path, err);
    *data_bytes = f->size - LENGTH_BYTES - length;
    free(text);
    return st;
}

/* ---- public ----------------------------------------------------------------------------------------------------- */

enum status safetensors_open(struct safetensors **ret, const char *path, struct error *err)
{
    struct safetensors *s = calloc(1, sizeof *s);

    if (s == NULL)
        return error_set(err, ERR_NOMEM, "%s: out of memory", path);
    s->file.fd = -1;
    s->path = strdup(path);
    enum status st = s->path == NULL ? error_set(err, ERR_NOMEM, "%s: out of memory", path)
                                     : file_open(&s->file, s->path, SAFETENSORS_FILE_MAX, err);
    if (st == OK)
        st = header_read(&s->header, &s->data_bytes, &s->file, err);
    if (st == OK)
        st = header_bind(s, path, err);
    if (st == OK)
        *ret = s;
    else
        safetensors_close(s);
    return st;
}

enum status safetensors_read(struct safetensors *s, struct error *err)
{
    const uint64_t begin = s->file.size - s->data_bytes;

    s->data = malloc((size_t)s->data_bytes + 1); /* malloc(0) may be NULL */
    if (s->data == NULL)
        return error_set(err, ERR_NOMEM, "%s: not enough memory for %" PRIu64 " bytes of tensors", s->path,
                         s->data_bytes);
    const enum status st = file_read_at(&s->file, begin, s->data, (size_t)s->data_bytes, err);
    for (size_t i = 0; st == OK && i < s->count; i++)
        s->tensors[i].data = s->data + (s->tensors[i].begin - begin);
    return st == OK ? safetensors_check_unchanged(s, err) : st;
}

enum status safetensors_check_unchanged(const struct safetensors *st, struct error *err)
{
    return file_check_unchanged(&st->file, err);
}

void safetensors_close(struct safetensors *st)
{
    if (st == NULL)
        return;
    file_close(&st->file);
    json_decref(st->header);
    free(st->tensors);
    free(st->data);
    free(st->path);
    free(st);
}

size_t safetensors_count(const struct safetensors *st)
{
    return st->count;
}

uint64_t safetensors_bytes(const struct safetensors *st)
{
    return st->file.size;
}

const struct tensor *safetensors_at(const struct safetensors *st, size_t i)
{
    assert(i < st->count);
    return &st->tensors[i];
}

const struct tensor *safetensors_find(const struct safetensors *st, const char *name)
{
    for (size_t i = 0; i < st->count; i++)
        if (strcmp(st->tensors[i].name, name) == 0)
            return &st->tensors[i];
    return NULL;
}
