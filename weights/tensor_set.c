/* tensor_set.c - one file or many, seen as one set of tensors with unique names. Any thread; no state.
 * Invariants of a finished set: the files hold exactly the tensors that the index names, each in the file that it
 * names. */
#include "weights/tensor_set.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config/json.h"

static const char single_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";

struct shard {
    char *name; /* the file's name inside the folder; owned */
    struct safetensors *file;
};

struct item {
    const struct tensor *tensor;
    size_t shard;
};

struct tensor_set {
    struct shard *shards; /* [shard_count] */
    size_t shard_count;
    struct item *tensors; /* [count] */
    size_t count;
    uint64_t bytes;
};

/* ---- files ------------------------------------------------------------------------------------------------------ */

static enum status path_join(char path[PATH_MAX], const char *dir, const char *name, struct error *err)
{
    const int n = snprintf(path, PATH_MAX, "%s/%s", dir, name);

    if (n < 0 || n >= PATH_MAX)
        return error_set(err, ERR_IO, "%.100s...: the path is longer than %d bytes", dir, PATH_MAX - 1);
    return OK;
}

static bool path_exists(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 || errno != ENOENT;
}

/* A plain name: an index must not make us read outside its folder. */
static bool shard_name_is_plain(const char *name)
{
    return name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL && strlen(name) <= NAME_MAX;
}

static enum status set_add_shard(struct tensor_set *s, const char *name, const char *index_path, struct error *err)
{
    for (size_t i = 0; i < s->shard_count; i++) {
        if (strcmp(s->shards[i].name, name) == 0)
            return OK;
    }
    if (s->shard_count == MODEL_SHARDS_MAX)
        return error_set(err, ERR_FORMAT, "%s: lists more than %d files", index_path, MODEL_SHARDS_MAX);
    s->shards[s->shard_count].name = strdup(name);
    if (s->shards[s->shard_count].name == NULL)
        return error_set(err, ERR_NOMEM, "%s: out of memory", index_path);
    s->shard_count++;
    return OK;
}

/* The files that weight_map names, each once. */
static enum status set_list_shards(struct tensor_set *s, json_t *map, const char *index_path, struct error *err)
{
    const char *tensor;
    json_t *file;

    json_object_foreach(map, tensor, file)
    {
        if (!json_is_string(file) || !shard_name_is_plain(json_string_value(file)))
            return error_set_param(err, ERR_FORMAT, json_quote(tensor).text,
                                   "%s: weight_map \"%s\" is %s, expected the plain name of a file beside the index",
                                   index_path, json_quote(tensor).text, json_describe(file).text);
        const enum status st = set_add_shard(s, json_string_value(file), index_path, err);
        if (st != OK)
            return st;
    }
    return OK;
}

static enum status set_open_files(struct tensor_set *s, const char *dir, struct error *err)
{
    for (size_t i = 0; i < s->shard_count; i++) {
        char path[PATH_MAX];
        enum status st = path_join(path, dir, s->shards[i].name, err);
        if (st == OK)
            st = safetensors_open(&s->shards[i].file, path, err);
        if (st != OK)
            return st;
        s->count += safetensors_count(s->shards[i].file);
        s->bytes += safetensors_bytes(s->shards[i].file);
        if (s->count > MODEL_TENSORS_MAX) /* they are looked for one by one */
            return error_set(err, ERR_FORMAT, "%s: the files have more than %d tensors together", dir,
                             MODEL_TENSORS_MAX);
        if (s->bytes > SAFETENSORS_FILE_MAX)
            return error_set(err, ERR_FORMAT, "%s: the files have more than %" PRIu64 " bytes together", dir,
                             (uint64_t)SAFETENSORS_FILE_MAX);
    }
    return OK;
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

static enum status set_collect(struct tensor_set *s, const char *dir, struct error *err)
{
    size_t n = 0;

    s->tensors = calloc(s->count + 1, sizeof *s->tensors);
    if (s->tensors == NULL)
        return error_set(err, ERR_NOMEM, "%s: not enough memory for %zu tensors", dir, s->count);
    for (size_t i = 0; i < s->shard_count; i++)
        for (size_t j = 0; j < safetensors_count(s->shards[i].file); j++)
            s->tensors[n++] = (struct item){.tensor = safetensors_at(s->shards[i].file, j), .shard = i};
    return OK;
}

/* The shards hold what weight_map says, no more and no less. */
static enum status set_check_map(const struct tensor_set *s, json_t *map, const char *index_path, struct error *err)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct item *t = &s->tensors[i];
        const char *holder = s->shards[t->shard].name;
        const json_t *file = json_object_get(map, t->tensor->name);
        if (file == NULL)
            return error_set_param(err, ERR_FORMAT, t->tensor->name,
                                   "%s: %s holds tensor \"%s\", which weight_map does not name", index_path, holder,
                                   t->tensor->name);
        if (strcmp(json_string_value(file), holder) != 0)
            return error_set_param(err, ERR_FORMAT, t->tensor->name,
                                   "%s: %s holds tensor \"%s\", which weight_map expects in %s", index_path, holder,
                                   t->tensor->name, json_quote(json_string_value(file)).text);
    }
    for (size_t i = 0; i < s->count; i++) /* no tensor is held twice: what is left then, no file holds */
        (void)json_object_del(map, s->tensors[i].tensor->name);
    void *left = json_object_iter(map);
    if (left == NULL)
        return OK;
    const char *name = json_object_iter_key(left);
    return error_set_param(err, ERR_FORMAT, json_quote(name).text,
                           "%s: weight_map names tensor \"%s\", which %s does not hold", index_path,
                           json_quote(name).text, json_quote(json_string_value(json_object_iter_value(left))).text);
}

/* ---- which files ------------------------------------------------------------------------------------------------ */

/* *map: borrowed from *root. */
static enum status index_read(json_t **root, json_t **map, const char *index_path, struct error *err)
{
    const enum status st = json_read_object(root, index_path, MODEL_INDEX_JSON_MAX, err);
    if (st != OK)
        return st;
    *map = json_object_get(*root, "weight_map");
    if (!json_is_object(*map))
        return error_set_param(err, ERR_FORMAT, "weight_map",
                               "%s: weight_map is %s, expected an object of file names by tensor", index_path,
                               *map == NULL ? "missing" : json_describe(*map).text);
    return OK;
}

/* A set whose files are named but not read. *root: the index, *map: borrowed from it; NULL where there is a single
 * file. */
static enum status set_begin(struct tensor_set **ret, json_t **root, json_t **map, char index_path[PATH_MAX],
                             const char *dir, struct error *err)
{
    char path[PATH_MAX];
    struct tensor_set *s = NULL;

    enum status st = path_join(path, dir, single_name, err);
    if (st == OK)
        st = path_join(index_path, dir, index_name, err);
    if (st != OK)
        return st;
    s = calloc(1, sizeof *s);
    if (s != NULL)
        s->shards = calloc(MODEL_SHARDS_MAX, sizeof *s->shards);
    if (s == NULL || s->shards == NULL)
        st = error_set(err, ERR_NOMEM, "%s: out of memory", dir);
    else if (path_exists(path) || !path_exists(index_path))
        st = set_add_shard(s, single_name, path, err);
    else
        st = index_read(root, map, index_path, err);
    if (st == OK && *map != NULL)
        st = set_list_shards(s, *map, index_path, err);
    if (st == OK)
        *ret = s;
    else
        tensor_set_close(s);
    return st;
}

/* ---- public ----------------------------------------------------------------------------------------------------- */

enum status tensor_set_open(struct tensor_set **ret, const char *dir, struct error *err)
{
    char index_path[PATH_MAX];
    json_t *root = NULL, *map = NULL;
    struct tensor_set *s = NULL;

    enum status st = set_begin(&s, &root, &map, index_path, dir, err);
    if (st == OK)
        st = set_open_files(s, dir, err);
    if (st == OK)
        st = set_collect(s, dir, err);
    if (st == OK && map != NULL)
        st = set_check_map(s, map, index_path, err);
    json_decref(root);
    if (st == OK)
        *ret = s;
    else
        tensor_set_close(s);
    return st;
}

static int shard_compare(const void *a, const void *b)
{
    return strcmp(((const struct shard *)a)->name, ((const struct shard *)b)->name);
}

enum status tensor_set_files(const char *dir, tensor_set_file *each, void *arg, struct error *err)
{
    char index_path[PATH_MAX];
    json_t *root = NULL, *map = NULL;
    struct tensor_set *s = NULL;

    enum status st = set_begin(&s, &root, &map, index_path, dir, err);
    json_decref(root);
    if (st != OK)
        return st;
    qsort(s->shards, s->shard_count, sizeof *s->shards, shard_compare);
    for (size_t i = 0; i < s->shard_count && st == OK; i++)
        st = each(arg, s->shards[i].name, err);
    tensor_set_close(s);
    return st;
}

enum status tensor_set_check_unchanged(const struct tensor_set *s, struct error *err)
{
    enum status st = OK;
    for (size_t i = 0; i < s->shard_count && st == OK; i++)
        st = safetensors_check_unchanged(s->shards[i].file, err);
    return st;
}

void tensor_set_close(struct tensor_set *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->shard_count; i++) {
        free(s->shards[i].name);
        safetensors_close(s->shards[i].file);
    }
    free(s->shards);
    free(s->tensors);
    free(s);
}

size_t tensor_set_count(const struct tensor_set *s)
{
    return s->count;
}

uint64_t tensor_set_bytes(const struct tensor_set *s)
{
    return s->bytes;
}

const struct tensor *tensor_set_at(const struct tensor_set *s, size_t i)
{
    assert(i < s->count);
    return s->tensors[i].tensor;
}

/* One by one: even models of many blocks have some thousand tensors, of which each is looked for once. */
size_t tensor_set_find(const struct tensor_set *s, const char *name)
{
    size_t i = 0;

    while (i < s->count && strcmp(s->tensors[i].tensor->name, name) != 0)
        i++;
    return i;
}
