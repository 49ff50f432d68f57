/* safetensors.c - a .safetensors file: 8 bytes of little-endian header length, a JSON object that describes the
 * tensors, then their bytes without gaps up to the file's end.
 * The header is checked completely before the data is read, so that a bad file costs no memory; the data then lies in
 * one 64-byte aligned buffer of our own. Any thread; no state. Invariants of a finished struct safetensors: `tensors`
 * is sorted by offset and tiles `data` exactly; names live in `header`, which nobody changes. */
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
#define DATA_ALIGNMENT 64u
#define METADATA_KEY "__metadata__"

struct named {
    const struct tensor *tensor;
};

struct safetensors {
    json_t *header;
    struct tensor *tensors; /* [count], by offset */
    struct named *by_name;  /* [count], by name */
    size_t count;
    uint8_t *data;
    uint64_t data_bytes, file_bytes;
};

/* Where we are, for messages. */
struct place {
    const char *path, *tensor;
    uint64_t data_bytes;
};

/* The keys of an entry, all required. */
static const char *const entry_keys[] = {"dtype", "shape", "data_offsets"};
#define ENTRY_KEYS (sizeof entry_keys / sizeof entry_keys[0])

/* ---- one tensor's entry ----------------------------------------------------------------------------------------- */

static enum status entry_check_keys(const struct place *p, json_t *entry, struct error *err)
{
    const char *key;
    json_t *value;

    if (!json_is_object(entry))
        return error_set_param(err, ERR_FORMAT, p->tensor, "%s: tensor \"%s\" is %s, expected an object", p->path,
                               p->tensor, json_describe(entry).text);
    for (size_t i = 0; i < ENTRY_KEYS; i++) {
        if (json_object_get(entry, entry_keys[i]) == NULL)
            return error_set_param(err, ERR_FORMAT, p->tensor, "%s: tensor \"%s\" has no %s", p->path, p->tensor,
                                   entry_keys[i]);
    }
    json_object_foreach(entry, key, value)
    {
        bool known = false;
        for (size_t i = 0; i < ENTRY_KEYS; i++)
            known = known || strcmp(key, entry_keys[i]) == 0;
        if (!known)
            return error_set_param(err, ERR_FORMAT, p->tensor,
                                   "%s: tensor \"%s\" has the unknown key \"%s\", expected only dtype, shape and "
                                   "data_offsets",
                                   p->path, p->tensor, json_quote(key).text);
    }
    return OK;
}

static enum status entry_read_dtype(const struct place *p, const json_t *value, struct tensor *t, struct error *err)
{
    static const enum dtype known[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_U8};

    for (size_t i = 0; json_is_string(value) && i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(json_string_value(value), dtype_name(known[i])) == 0) {
            t->dtype = known[i];
            return OK;
        }
    }
    return error_set_param(err, ERR_FORMAT, p->tensor,
                           "%s: tensor \"%s\": dtype is %s, expected \"F32\", \"F16\", \"BF16\" or \"U8\"", p->path,
                           p->tensor, json_describe(value).text);
}

static enum status entry_read_shape(const struct place *p, const json_t *value, struct tensor *t, struct error *err)
{
    const size_t rank = json_array_size(value); /* 0 for what is not a list */

    if (!json_is_array(value) || rank > TENSOR_RANK_MAX)
        return error_set_param(err, ERR_FORMAT, p->tensor,
                               "%s: tensor \"%s\": shape is %s, expected a list of at most %d integers", p->path,
                               p->tensor, json_describe(value).text, TENSOR_RANK_MAX);
    t->rank = (uint32_t)rank;
    t->elements = 1;
    for (size_t i = 0; i < rank; i++) {
        const json_t *side = json_array_get(value, i);
        if (!json_is_integer(side) || json_integer_value(side) < 0)
            return error_set_param(err, ERR_FORMAT, p->tensor,
                                   "%s: tensor \"%s\": shape[%zu] is %s, expected an integer of at least 0", p->path,
                                   p->tensor, i, json_describe(side).text);
        t->shape[i] = (uint64_t)json_integer_value(side);
        if (t->shape[i] != 0 && t->elements > UINT64_MAX / t->shape[i])
            return error_set_param(err, ERR_FORMAT, p->tensor,
                                   "%s: tensor \"%s\": the product of its shape is beyond 64 bits", p->path, p->tensor);
        t->elements *= t->shape[i];
    }
    const size_t size = dtype_bytes(t->dtype);
    if (t->elements > UINT64_MAX / size)
        return error_set_param(err, ERR_FORMAT, p->tensor, "%s: tensor \"%s\": its size in bytes is beyond 64 bits",
                               p->path, p->tensor);
    t->bytes = t->elements * size;
    return OK;
}

/* *begin: where the tensor starts, counted from the header's end. */
static enum status entry_read_offsets(const struct place *p, const json_t *value, const struct tensor *t,
                                      uint64_t *begin, struct error *err)
{
    uint64_t ends[2];

    if (!json_is_array(value) || json_array_size(value) != 2)
        return error_set_param(err, ERR_FORMAT, p->tensor,
                               "%s: tensor \"%s\": data_offsets is %s, expected a list of 2 integers", p->path,
                               p->tensor, json_describe(value).text);
    for (size_t i = 0; i < 2; i++) {
        const json_t *end = json_array_get(value, i);
        if (!json_is_integer(end) || json_integer_value(end) < 0)
            return error_set_param(err, ERR_FORMAT, p->tensor,
                                   "%s: tensor \"%s\": data_offsets[%zu] is %s, expected an integer of at least 0",
                                   p->path, p->tensor, i, json_describe(end).text);
        ends[i] = (uint64_t)json_integer_value(end);
    }
    if (ends[0] > ends[1])
        return error_set_param(err, ERR_FORMAT, p->tensor,
                               "%s: tensor \"%s\": data_offsets begin at %" PRIu64 ", after their end %" PRIu64,
                               p->path, p->tensor, ends[0], ends[1]);
    if (ends[1] > p->data_bytes)
        return error_set_param(err, ERR_FORMAT, p->tensor,
                               "%s: tensor \"%s\": data_offsets end at %" PRIu64 ", expected at most %" PRIu64
                               ", the bytes after the header: is the file truncated?",
                               p->path, p->tensor, ends[1], p->data_bytes);
    if (ends[1] - ends[0] != t->bytes)
        return error_set_param(err, ERR_FORMAT, p->tensor,
                               "%s: tensor \"%s\": data_offsets span %" PRIu64 " bytes, expected %" PRIu64 " (%" PRIu64
                               " elements of %s)",
                               p->path, p->tensor, ends[1] - ends[0], t->bytes, t->elements, dtype_name(t->dtype));
    *begin = ends[0];
    return OK;
}

static enum status entry_check_name(const char *path, const char *name, struct error *err)
{
    const struct quoted shown = json_quote(name);

    if (strlen(name) >= TENSOR_NAME_MAX)
        return error_set_param(err, ERR_FORMAT, shown.text,
                               "%s: tensor \"%s\": its name has %zu bytes, expected at most %d", path, shown.text,
                               strlen(name), TENSOR_NAME_MAX - 1);
    for (const char *c = name; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            return error_set_param(err, ERR_FORMAT, shown.text, "%s: tensor \"%s\": its name holds control characters",
                                   path, shown.text);
    }
    return OK;
}

/* ---- the header as a whole -------------------------------------------------------------------------------------- */

/* A tensor while the header is parsed: its data is not there yet. */
struct entry {
    struct tensor tensor;
    uint64_t begin;
};

static enum status header_check_metadata(const char *path, json_t *metadata, struct error *err)
{
    const char *key;
    json_t *value;

    if (!json_is_object(metadata))
        return error_set(err, ERR_FORMAT, "%s: " METADATA_KEY " is %s, expected an object of strings", path,
                         json_describe(metadata).text);
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return error_set(err, ERR_FORMAT, "%s: " METADATA_KEY " \"%s\" is %s, expected a string", path,
                             json_quote(key).text, json_describe(value).text);
    }
    return OK;
}

static enum status header_read_entries(struct entry *entries, size_t *count, json_t *header, const char *path,
                                       uint64_t data_bytes, struct error *err)
{
    const char *key;
    json_t *value;
    size_t n = 0;

    json_object_foreach(header, key, value)
    {
        enum status st;
        if (strcmp(key, METADATA_KEY) == 0) {
            st = header_check_metadata(path, value, err);
            if (st != OK)
                return st;
            continue;
        }
        const struct place p = {.path = path, .tensor = key, .data_bytes = data_bytes};
        struct entry *e = &entries[n++];
        e->tensor.name = key;
        st = entry_check_name(path, key, err);
        if (st == OK)
            st = entry_check_keys(&p, value, err);
        if (st == OK)
            st = entry_read_dtype(&p, json_object_get(value, "dtype"), &e->tensor, err);
        if (st == OK)
            st = entry_read_shape(&p, json_object_get(value, "shape"), &e->tensor, err);
        if (st == OK)
            st = entry_read_offsets(&p, json_object_get(value, "data_offsets"), &e->tensor, &e->begin, err);
        if (st != OK)
            return st;
    }
    *count = n;
    return OK;
}

/* By offset; an empty tensor comes before another one at the same offset. */
static int entry_compare(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->tensor.bytes != y->tensor.bytes)
        return x->tensor.bytes < y->tensor.bytes ? -1 : 1;
    return strcmp(x->tensor.name, y->tensor.name);
}

/* Sorted entries must tile the data: no gap, no overlap, nothing after the last. */
static enum status header_check_tiling(const struct entry *entries, size_t count, const char *path, uint64_t data_bytes,
                                       struct error *err)
{
    uint64_t at = 0;

    for (size_t i = 0; i < count; i++) {
        const char *name = entries[i].tensor.name;
        if (entries[i].begin > at)
            return error_set_param(err, ERR_FORMAT, name,
                                   "%s: tensor \"%s\" begins at %" PRIu64 ", expected %" PRIu64
                                   ": the bytes between belong to no tensor",
                                   path, name, entries[i].begin, at);
        if (entries[i].begin < at)
            return error_set_param(err, ERR_FORMAT, name,
                                   "%s: tensor \"%s\" begins at %" PRIu64 ", expected %" PRIu64
                                   ": it overlaps tensor \"%s\"",
                                   path, name, entries[i].begin, at, entries[i - 1].tensor.name);
        at += entries[i].tensor.bytes;
    }
    if (at != data_bytes)
        return error_set(err, ERR_FORMAT,
                         "%s: the tensors end at %" PRIu64 " of the %" PRIu64
                         " bytes after the header, expected them to fill the file",
                         path, at, data_bytes);
    return OK;
}

static int name_compare(const void *a, const void *b)
{
    const struct named *x = a, *y = b;

    return strcmp(x->tensor->name, y->tensor->name);
}

/* s->header -> s->tensors, s->by_name, s->count; s->data is allocated, not filled. */
static enum status header_bind(struct safetensors *s, const char *path, struct error *err)
{
    enum status st;
    const size_t room = json_object_size(s->header) + 1; /* calloc(0) may be NULL */
    struct entry *entries = calloc(room, sizeof *entries);
    const uint64_t rounded = (s->data_bytes / DATA_ALIGNMENT + 1) * DATA_ALIGNMENT;

    s->tensors = calloc(room, sizeof *s->tensors);
    s->by_name = calloc(room, sizeof *s->by_name);
    if (entries == NULL || s->tensors == NULL || s->by_name == NULL) {
        st = error_set(err, ERR_NOMEM, "%s: not enough memory for %zu tensors", path, room);
        goto done;
    }
    st = header_read_entries(entries, &s->count, s->header, path, s->data_bytes, err);
    if (st != OK)
        goto done;
    qsort(entries, s->count, sizeof *entries, entry_compare);
    st = header_check_tiling(entries, s->count, path, s->data_bytes, err);
    if (st != OK)
        goto done;
    s->data = aligned_alloc(DATA_ALIGNMENT, (size_t)rounded);
    if (s->data == NULL) {
        st = error_set(err, ERR_NOMEM, "%s: not enough memory for %" PRIu64 " bytes of tensors", path, s->data_bytes);
        goto done;
    }
    for (size_t i = 0; i < s->count; i++) {
        s->tensors[i] = entries[i].tensor;
        s->tensors[i].data = s->data + entries[i].begin;
        s->by_name[i].tensor = &s->tensors[i];
    }
    qsort(s->by_name, s->count, sizeof *s->by_name, name_compare);
done:
    free(entries);
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
    if (st != OK)
        goto done;
    if (length == 0 || text[0] != '{') {
        st = error_set(err, ERR_FORMAT, "%s: the header does not begin with '{'", f->path);
        goto done;
    }
    st = json_parse_object(header, text, (size_t)length, f->path, err);
    if (st == OK)
        *data_bytes = f->size - LENGTH_BYTES - length;
done:
    free(text);
    return st;
}

/* ---- public ----------------------------------------------------------------------------------------------------- */

enum status safetensors_open(struct safetensors **ret, const char *path, struct error *err)
{
    enum status st;
    struct file f = {.fd = -1};
    struct safetensors *s = calloc(1, sizeof *s);

    if (s == NULL)
        return error_set(err, ERR_NOMEM, "%s: out of memory", path);
    st = file_open(&f, path, SAFETENSORS_FILE_MAX, err);
    if (st != OK)
        goto done;
    s->file_bytes = f.size;
    st = header_read(&s->header, &s->data_bytes, &f, err);
    if (st != OK)
        goto done;
    st = header_bind(s, path, err);
    if (st != OK)
        goto done;
    st = file_read(&f, s->data, (size_t)s->data_bytes, err);
    if (st == OK)
        st = file_check_unchanged(&f, err);
    if (st != OK)
        goto done;
    *ret = s;
    s = NULL; /* the caller's now */
done:
    file_close(&f);
    safetensors_close(s);
    return st;
}

void safetensors_close(struct safetensors *st)
{
    if (st == NULL)
        return;
    json_decref(st->header);
    free(st->tensors);
    free(st->by_name);
    free(st->data);
    free(st);
}

size_t safetensors_count(const struct safetensors *st)
{
    return st->count;
}

uint64_t safetensors_bytes(const struct safetensors *st)
{
    return st->file_bytes;
}

const struct tensor *safetensors_at(const struct safetensors *st, size_t i)
{
    assert(i < st->count);
    return &st->tensors[i];
}

const struct tensor *safetensors_find(const struct safetensors *st, const char *name)
{
    const struct tensor key = {.name = name};
    const struct named wanted = {.tensor = &key};
    const struct named *found = bsearch(&wanted, st->by_name, st->count, sizeof *st->by_name, name_compare);

    return found == NULL ? NULL : found->tensor;
}
