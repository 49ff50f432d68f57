/* model.c - a model directory -> struct model: read the config, read the tensors, match them with the manifest, widen
 * all but matrices to float32 in one arena, fold. Runs in whichever thread loads; no state. Invariant of a loaded
 * model: every float pointer leads into `arena`, 64-byte aligned, and is never written again. */
#include "weights/model.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/file.h"
#include "weights/fold.h"
#include "weights/manifest.h"
#include "weights/tensor_set.h"

#define ARENA_ALIGNMENT 64u

/* Floats from `floats`, each tensor at the alignment. */
struct arena {
    float *floats;
    uint64_t used, room; /* in floats */
};

/* What is needed only while loading. */
struct loading {
    struct tensor_set *set;
    struct manifest manifest;
    struct fold_source *folds;  /* [manifest_blocks] */
    struct arena keep, scratch; /* of struct model; of what is folded away */
};

/* ---- arena ------------------------------------------------------------------------------------------------------ */

static uint64_t arena_round(uint64_t floats)
{
    const uint64_t step = ARENA_ALIGNMENT / sizeof(float);

    return (floats + step - 1) / step * step;
}

static enum status arena_init(struct arena *a, uint64_t room, struct error *err)
{
    const uint64_t bytes = room * sizeof(float);

    if (bytes > MODEL_BYTES_MAX)
        return error_set(err, ERR_FORMAT,
                         "what is no matrix takes %" PRIu64 " bytes as float32, expected at most %" PRIu64, bytes,
                         (uint64_t)MODEL_BYTES_MAX);
    a->floats = aligned_alloc(ARENA_ALIGNMENT, (size_t)bytes + ARENA_ALIGNMENT);
    if (a->floats == NULL)
        return error_set(err, ERR_NOMEM, "not enough memory for the model's %" PRIu64 " bytes", bytes);
    a->room = room;
    return OK;
}

static float *arena_take(struct arena *a, uint64_t floats)
{
    float *at = a->floats + a->used;

    a->used += arena_round(floats);
    return at;
}

/* ---- steps of loading ------------------------------------------------------------------------------------------- */

/* The last component of a path, without trailing slashes: [*length] at the result. */
static const char *last_component(const char *path, size_t *length)
{
    size_t end = strlen(path);

    while (end > 0 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    *length = end - begin;
    return path + begin;
}

/* DIR's last component as it is written; ".", ".." and "" are not names: for them, that of the folder they lead to. */
static enum status read_name(struct model *m, const char *dir, struct error *err)
{
    char real[PATH_MAX];
    size_t n;
    const char *name = last_component(dir, &n);

    if (n <= 2 && strspn(name, ".") >= n) {
        if (realpath(dir, real) == NULL)
            return error_set(err, status_of_errno(errno), "%s: %s", dir, strerror(errno));
        name = last_component(real, &n);
    }
    const enum status st = model_check_name(name, n, dir, err);
    if (st != OK)
        return st;
    memcpy(m->name, name, n);
    m->name[n] = '\0';
    return OK;
}

static enum status read_config(struct model *m, const char *dir, model_warning *warn, void *arg, struct error *err)
{
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/config.json", dir);

    if (n < 0 || (size_t)n >= sizeof path)
        return error_set(err, ERR_IO, "%.100s...: the path is longer than %d bytes", dir, PATH_MAX - 1);
    return model_config_read(&m->config, path, warn, arg, err);
}

/* What `aft inspect` shows. */
static enum status describe_tensors(struct model *m, const struct tensor_set *set, struct error *err)
{
    const size_t count = tensor_set_count(set);

    m->tensors = calloc(count + 1, sizeof *m->tensors);
    if (m->tensors == NULL)
        return error_set(err, ERR_NOMEM, "not enough memory for %zu tensors", count);
    for (size_t i = 0; i < count; i++) {
        const struct tensor *t = tensor_set_at(set, i);
        struct tensor_info *info = &m->tensors[i];
        (void)snprintf(info->name, sizeof info->name, "%s", t->name);
        info->dtype = t->dtype;
        info->rank = t->rank;
        memcpy(info->shape, t->shape, sizeof info->shape);
        info->bytes = t->bytes;
        m->parameters += t->elements;
    }
    m->tensor_count = count;
    m->file_bytes = tensor_set_bytes(set);
    return OK;
}

static enum status match_tensors(struct model *m, struct loading *l, struct error *err)
{
    const uint32_t own = manifest_blocks(&m->config);

    assert(own > 0 && own <= m->config.depth);
    m->blocks = calloc(m->config.depth, sizeof *m->blocks);
    l->folds = calloc(own, sizeof *l->folds);
    if (m->blocks == NULL || l->folds == NULL)
        return error_set(err, ERR_NOMEM, "not enough memory for %u blocks", m->config.depth);
    return manifest_bind(&l->manifest, m, l->folds, l->set, err);
}

/* Every bound tensor as float32 where it belongs. */
static enum status widen_tensors(struct model *m, struct loading *l, struct error *err)
{
    uint64_t keep = arena_round(fold_floats(&m->config)) * manifest_blocks(&m->config), scratch = 0;

    for (size_t i = 0; i < l->manifest.count; i++) {
        const struct binding *b = &l->manifest.bindings[i];
        *(b->folded ? &scratch : &keep) += arena_round(b->tensor->elements);
    }
    enum status st = arena_init(&l->keep, keep, err);
    if (st == OK)
        st = arena_init(&l->scratch, scratch, err);
    for (size_t i = 0; st == OK && i < l->manifest.count; i++) {
        const struct binding *b = &l->manifest.bindings[i];
        float *out = arena_take(b->folded ? &l->scratch : &l->keep, b->tensor->elements);
        st = tensor_to_f32(b->tensor, 0, b->tensor->elements, out, err);
        *b->field = out;
    }
    return st;
}

static enum status fold_blocks(struct model *m, struct loading *l, struct error *err)
{
    const uint32_t own = manifest_blocks(&m->config);
    const uint64_t floats = fold_floats(&m->config);

    for (uint32_t i = 0; i < own; i++) {
        const enum status st = fold_block(&m->blocks[i], arena_take(&l->keep, floats), &l->folds[i], &m->config, err);
        if (st != OK)
            return st;
    }
    for (uint32_t i = own; i < m->config.depth; i++)
        m->blocks[i] = m->blocks[0]; /* share_layers */
    return OK;
}

/* What knows tensors does not know where they came from: a folder or a file. */
static void name_place(struct error *err, const char *path)
{
    if (err == NULL)
        return;
    const struct error bare = *err;
    (void)error_set_param(err, bare.status, bare.param, "%.200s: %s", path, bare.message);
}

static enum status load_weights(struct model *m, const char *dir, struct error *err)
{
    struct loading l = {.set = NULL};

    enum status st = tensor_set_open(&l.set, dir, err); /* names its files itself */
    if (st != OK)
        return st;
    st = describe_tensors(m, l.set, err);
    if (st == OK)
        st = match_tensors(m, &l, err);
    if (st == OK)
        st = widen_tensors(m, &l, err);
    if (st == OK && m->config.input == INPUT_BYTES && model_text_max(m) == 0)
        st = error_set_param(err, ERR_FORMAT, "input.context",
                             "input.context is 1, expected 2 or more where there is a cls_token: it takes a position");
    if (st == OK)
        st = fold_blocks(m, &l, err);
    if (st == OK) {
        m->arena = l.keep.floats;
        m->arena_bytes = l.keep.room * sizeof(float);
        m->set = l.set;
        l.keep.floats = NULL; /* the model's now */
        l.set = NULL;
    } else if (st != ERR_IO && st != ERR_UNAVAILABLE) { /* which name their file */
        name_place(err, dir);
    }
    free(l.keep.floats);
    free(l.scratch.floats);
    free(l.folds);
    manifest_clear(&l.manifest);
    tensor_set_close(l.set);
    return st;
}

/* ---- public ----------------------------------------------------------------------------------------------------- */

enum status model_check_name(const char *name, size_t n, const char *dir, struct error *err)
{
    if (n == 0 || n > MODEL_NAME_MAX)
        return error_set(err, ERR_FORMAT, "%s: the folder's name has %zu bytes, expected 1..%d: it names the model",
                         dir, n, MODEL_NAME_MAX);
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)name[i];
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
                           c == '_' || c == '-';
        if (!plain)
            return error_set(err, ERR_FORMAT,
                             "%s: the folder's name holds the byte 0x%02x, expected only letters, digits, '.', '_' and "
                             "'-': it names the model",
                             dir, c);
    }
    return OK;
}

enum status model_load(struct model **ret, const char *dir, model_warning *warn, void *arg, struct error *err)
{
    return model_load_as(ret, NULL, dir, warn, arg, err);
}

enum status model_load_as(struct model **ret, const char *name, const char *dir, model_warning *warn, void *arg,
                          struct error *err)
{
    enum status st = OK;
    struct model *m = calloc(1, sizeof *m);

    if (m == NULL)
        return error_set(err, ERR_NOMEM, "%s: out of memory", dir);
    if (name != NULL)
        (void)snprintf(m->name, sizeof m->name, "%s", name);
    else
        st = read_name(m, dir, err);
    if (st == OK)
        st = read_config(m, dir, warn, arg, err);
    if (st != OK)
        goto done;
    st = load_weights(m, dir, err);
    if (st != OK)
        goto done;
    *ret = m;
    m = NULL; /* the caller's now */
done:
    model_free(m);
    return st;
}

enum status linear_rows(const struct linear *l, uint32_t first, uint32_t count, float *out, struct error *err)
{
    const enum status st = tensor_to_f32(&l->weight, (uint64_t)first * l->in, (uint64_t)count * l->in, out, err);
    if (st == ERR_FORMAT && l->weight.file != NULL)
        name_place(err, l->weight.file->path);
    return st;
}

enum status model_check_unchanged(const struct model *m, struct error *err)
{
    return m->set == NULL ? OK : tensor_set_check_unchanged(m->set, err);
}

void model_drop_weights(struct model *m)
{
    free(m->blocks);
    free(m->arena);
    tensor_set_close(m->set);
    m->blocks = NULL;
    m->arena = NULL;
    m->set = NULL;
    m->arena_bytes = 0;
    m->patch_embed = m->head = (struct linear){0};
    m->norm = (struct norm){0};
    m->tok_embed = m->cls_token = m->start_embed = m->pos_embed = NULL;
}

uint32_t model_text_max(const struct model *m)
{
    return m->config.context - (m->cls_token != NULL ? 1 : 0);
}

void model_free(struct model *m)
{
    if (m == NULL)
        return;
    model_drop_weights(m);
    model_config_clear(&m->config);
    free(m->tensors);
    free(m);
}
