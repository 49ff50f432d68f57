/* keys_file.c - see keys_file.h. */
#include "server/access/keys_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>
#include <nettle/base16.h>
#include <nettle/sha2.h>

#include "config/file.h"
#include "config/json.h"

static const char *const api_words[] = {
#define X(constant, word) word,
    APIS(X)
#undef X
};

/* ---- one key ---------------------------------------------------------------------------------------------------- */

bool key_name_is_fine(const char *name)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    const size_t length = strlen(name);
    return length > 0 && length <= KEY_NAME_MAX && strspn(name, allowed) == length;
}

const char *key_api_word(enum api_kind api)
{
    return api_words[api];
}

void key_hash(uint8_t out[KEY_HASH_BYTES], const char *text, size_t size)
{
    struct sha256_ctx sha;
    sha256_init(&sha);
    sha256_update(&sha, size, (const uint8_t *)text);
    sha256_digest(&sha, KEY_HASH_BYTES, out);
}

enum status key_make(struct key *k, char text[KEY_TEXT_BYTES + 1], struct error *err)
{
    uint8_t drawn[KEY_RANDOM_BYTES];
    if (getrandom(drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
        return error_set(err, ERR_IO, "no random numbers: %s", strerror(errno));
    memcpy(text, KEY_PREFIX, strlen(KEY_PREFIX));
    base16_encode_update(text + strlen(KEY_PREFIX), sizeof drawn, drawn);
    text[KEY_TEXT_BYTES] = '\0';
    key_hash(k->hash, text, KEY_TEXT_BYTES);
    return OK;
}

/* ---- from JSON -------------------------------------------------------------------------------------------------- */

static bool read_hash(const json_t *value, uint8_t out[KEY_HASH_BYTES])
{
    struct base16_decode_ctx hex;
    size_t decoded = KEY_HASH_BYTES;
    const size_t length = json_string_length(value); /* 0: it is no text */
    base16_decode_init(&hex);
    return length == BASE16_ENCODE_LENGTH(KEY_HASH_BYTES) &&
           base16_decode_update(&hex, &decoded, out, length, json_string_value(value)) == 1 &&
           decoded == KEY_HASH_BYTES && base16_decode_final(&hex) == 1;
}

static bool read_rate(const json_t *value, double *ret)
{
    const double rate = json_number_value(value);
    if (value == NULL)
        return true;
    if (!json_is_number(value) || !(rate >= 0.0 && rate <= KEY_RATE_MAX) || (rate > 0.0 && rate < KEY_RATE_MIN))
        return false;
    *ret = rate;
    return true;
}

/* A word or a number; NULL: normal. */
static bool read_priority(const json_t *value, int32_t *ret)
{
    static const struct {
        const char *word;
        int32_t priority;
    } words[] = {
#define X(word, priority) {word, priority},
        QUEUE_PRIORITY_WORDS(X)
#undef X
    };
    const char *text = json_string_value(value);
    json_int_t priority = value != NULL ? json_integer_value(value) : QUEUE_PRIORITY_NORMAL;
    bool fine = value == NULL || json_is_integer(value);
    for (size_t i = 0; text != NULL && i < sizeof words / sizeof words[0]; i++)
        if (strcmp(text, words[i].word) == 0) {
            priority = words[i].priority;
            fine = true;
        }
    if (!fine || priority < QUEUE_PRIORITY_NORMAL || priority > QUEUE_PRIORITY_MAX)
        return false;
    *ret = (int32_t)priority;
    return true;
}

/* The bit of a word; 0: it is not an API that a key can be allowed. */
static unsigned read_api(const json_t *word)
{
    const char *text = json_string_value(word);
    for (unsigned api = 0; text != NULL && api < API_COUNT; api++)
        if (api != API_OPEN && strcmp(api_words[api], text) == 0)
            return API_BIT(api);
    return 0;
}

static bool read_apis(const json_t *list, unsigned *ret)
{
    unsigned bits = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const unsigned bit = read_api(json_array_get(list, i));
        if (bit == 0)
            return false;
        bits |= bit;
    }
    *ret = bits;
    return json_is_array(list);
}

/* "*" alone: all. An empty list would mean none and is a mistake. Errors: ERR_CONFIG, ERR_NOMEM. */
static enum status read_models(const json_t *list, struct key *k)
{
    const size_t count = json_array_size(list);
    const char *first = json_string_value(json_array_get(list, 0));
    if (count == 0 || count > REGISTRY_MODELS_MAX)
        return ERR_CONFIG;
    if (count == 1 && first != NULL && strcmp(first, "*") == 0)
        return OK;
    k->models = calloc(count, sizeof k->models[0]);
    if (k->models == NULL)
        return ERR_NOMEM;
    for (; k->model_count < count; k->model_count++) {
        const json_t *name = json_array_get(list, k->model_count);
        if (!json_is_string(name) || json_string_length(name) == 0 || json_string_length(name) > MODEL_NAME_MAX)
            return ERR_CONFIG;
        for (size_t i = 0; i < k->model_count; i++)
            if (strcmp(k->models[i], json_string_value(name)) == 0)
                return ERR_CONFIG;
        memcpy(k->models[k->model_count], json_string_value(name), json_string_length(name) + 1);
    }
    return OK;
}

/* Somebody may have put the key itself there. */
static enum status refuse_field(const char *name, const char *field, struct error *err)
{
    if (strstr(field, KEY_PREFIX) != NULL)
        return error_set_param(err, ERR_CONFIG, name, "key \"%s\" has an unknown field", name);
    return error_set_param(err, ERR_CONFIG, field, "key \"%s\" has an unknown field \"%s\"", name, field);
}

enum status key_read(struct key *k, json_t *object, struct error *err)
{
    static const char *const known[] = {"name",           "sha256",      "models",      "apis",
                                        "requests_per_s", "bytes_per_s", "priority_max"};
    const char *name = json_string_value(json_object_get(object, "name")), *field;
    json_t *value;
    if (name == NULL || !key_name_is_fine(name))
        return error_set_param(err, ERR_CONFIG, "name", "expected a name of 1 to %d of A-Z a-z 0-9 . _ -",
                               KEY_NAME_MAX);
    memcpy(k->name, name, strlen(name) + 1);
    if (json_object_get(object, "salt") != NULL)
        return error_set_param(err, ERR_CONFIG, name,
                               "key \"%s\" has a salt: it was made by aftd 0.1, whose keys no longer work; expected a "
                               "new file: move this one away, and make new keys with aft key add NAME --file FILE",
                               name);
    json_object_foreach(object, field, value)
    {
        size_t i = 0;
        while (i < sizeof known / sizeof known[0] && strcmp(field, known[i]) != 0)
            i++;
        if (i == sizeof known / sizeof known[0])
            return refuse_field(name, field, err);
    }
    const char *wrong = NULL;
    if (!read_apis(json_object_get(object, "apis"), &k->apis))
        wrong = "apis: expected a list of native, openai, inference, admin";
    else if (!read_rate(json_object_get(object, "requests_per_s"), &k->requests_per_s))
        wrong = "requests_per_s: expected 0, or 0.001 to 1e9";
    else if (!read_rate(json_object_get(object, "bytes_per_s"), &k->bytes_per_s))
        wrong = "bytes_per_s: expected 0, or 0.001 to 1e9";
    else if (!read_priority(json_object_get(object, "priority_max"), &k->priority_max))
        wrong = "priority_max: expected \"normal\", \"high\" or a whole number from 0 to 100";
    if (wrong != NULL)
        return error_set_param(err, ERR_CONFIG, name, "key \"%s\", %s", name, wrong);
    const enum status st = read_models(json_object_get(object, "models"), k);
    if (st == ERR_CONFIG)
        return error_set_param(err, st, name,
                               "key \"%s\", models: expected a list of 1 to %d different names, or [\"*\"]", name,
                               REGISTRY_MODELS_MAX);
    return st == OK ? OK : error_set(err, st, "out of memory for the keys");
}

static enum status read_keys(struct keys_file *f, const json_t *root, struct error *err)
{
    const json_t *list = json_object_get(root, "keys");
    if (!json_is_array(list) || json_object_size(root) != 1)
        return error_set_param(err, ERR_CONFIG, "keys", "expected {\"keys\": [...]} and nothing else");
    if (json_array_size(list) > AUTH_KEYS_MAX)
        return error_set_param(err, ERR_CONFIG, "keys", "expected at most %d keys", AUTH_KEYS_MAX);
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): what was added is the file's, which the caller clears */
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct key k = {.name = ""};
        json_t *entry = json_array_get(list, i);
        enum status st = key_read(&k, entry, err);
        if (st == OK && !read_hash(json_object_get(entry, "sha256"), k.hash))
            st = error_set_param(err, ERR_CONFIG, k.name, "key \"%s\", sha256: expected 32 bytes in hexadecimal",
                                 k.name);
        if (st == OK)
            st = keys_file_add(f, &k, err);
        if (st != OK) {
            free(k.models);
            return st;
        }
    }
    return OK;
}

static enum status parse_file(json_t **ret, const char *path, struct error *err)
{
    json_error_t parse;
    bool lacked_memory;
    char *bytes = NULL;
    size_t size;
    struct error why;
    const enum status st = file_read_all(&bytes, &size, path, KEYS_FILE_MAX, &why);
    if (st != OK)
        return error_set_param(err, st == ERR_FORMAT ? ERR_CONFIG : st, "keys_file", "%s%s", why.message,
                               access(path, F_OK) != 0 && errno == ENOENT ? "; aft key add NAME makes it" : "");
    json_t *root = json_scan(bytes, size, JSON_REJECT_DUPLICATES, &parse, &lacked_memory);
    free(bytes);
    if (lacked_memory)
        return error_set_param(err, ERR_NOMEM, "keys_file", "%s: out of memory for the keys", path);
    if (root == NULL)
        return error_set_param(err, ERR_CONFIG, "keys_file", "%s: line %d, column %d: not JSON", path, parse.line,
                               parse.column); /* jansson's own message would quote the file */
    *ret = root;
    return OK;
}

enum status keys_file_read(struct keys_file *ret, const char *path, struct error *err)
{
    struct keys_file f = {0};
    struct error why;
    json_t *root = NULL;
    enum status st = parse_file(&root, path, err);
    if (st != OK)
        return st;
    st = read_keys(&f, root, &why);
    json_decref(root);
    if (st != OK) {
        keys_file_clear(&f);
        return error_set_param(err, st, "keys_file", "%s: %s", path, why.message);
    }
    *ret = f;
    return OK;
}

void keys_file_clear(struct keys_file *f)
{
    for (size_t i = 0; i < f->count; i++)
        free(f->keys[i].models);
    free(f->keys);
    *f = (struct keys_file){0};
}

/* ---- changing --------------------------------------------------------------------------------------------------- */

enum status keys_file_add(struct keys_file *f, const struct key *k, struct error *err)
{
    for (size_t i = 0; i < f->count; i++) {
        const struct key *other = &f->keys[i];
        if (strcmp(other->name, k->name) == 0)
            return error_set_param(err, ERR_CONFIG, "name",
                                   "there is another key named \"%s\"; expected each name once", k->name);
        if (memcmp(other->hash, k->hash, sizeof k->hash) == 0)
            return error_set_param(err, ERR_CONFIG, "sha256",
                                   "the keys \"%s\" and \"%s\" have the same sha256, so they are one key; "
                                   "expected each key once: remove one of them, and make another with aft key add",
                                   other->name, k->name);
    }
    if (f->count == AUTH_KEYS_MAX)
        return error_set_param(err, ERR_CONFIG, "keys", "expected at most %d keys", AUTH_KEYS_MAX);
    struct key *keys = realloc(f->keys, (f->count + 1) * sizeof *keys);
    if (keys == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the keys");
    f->keys = keys;
    f->keys[f->count++] = *k;
    return OK;
}

enum status keys_file_remove(struct keys_file *f, const char *name, struct error *err)
{
    size_t i = 0;
    while (i < f->count && strcmp(f->keys[i].name, name) != 0)
        i++;
    if (i == f->count)
        return error_set_param(err, ERR_NOT_FOUND, "name", "no key is named \"%s\"", name);
    free(f->keys[i].models);
    memmove(&f->keys[i], &f->keys[i + 1], (--f->count - i) * sizeof f->keys[0]);
    return OK;
}

/* ---- to JSON ---------------------------------------------------------------------------------------------------- */

json_t *key_apis_to_json(unsigned apis)
{
    json_t *list = json_array();
    for (unsigned api = 0; api < API_COUNT; api++)
        if ((apis & API_BIT(api)) != 0)
            json_append(list, json_string(api_words[api]));
    return list;
}

static json_t *key_to_json(const struct key *k)
{
    char hash[BASE16_ENCODE_LENGTH(KEY_HASH_BYTES)];
    base16_encode_update(hash, sizeof k->hash, k->hash);
    json_t *models = json_array();
    if (k->model_count == 0)
        json_append(models, json_string("*"));
    for (size_t i = 0; i < k->model_count; i++)
        json_append(models, json_string(k->models[i]));
    return json_pack("{s:s, s:s%, s:o, s:o, s:f, s:f, s:i}", "name", k->name, "sha256", hash, sizeof hash, "models",
                     models, "apis", key_apis_to_json(k->apis), "requests_per_s", k->requests_per_s, "bytes_per_s",
                     k->bytes_per_s, "priority_max", (int)k->priority_max);
}

/* The folder of a path, in `out`. */
static void folder_of(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        (void)snprintf(out, size, ".");
    else
        (void)snprintf(out, size, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

/* Whoever changes the file, those who could read it before still can: its owner, and its group if it was allowed to, as
 * a daemon with a user of its own needs for a file that root owns. False if that is not possible. */
static bool keep_readers(int fd, const void *path)
{
    struct stat before;
    if (stat(path, &before) != 0)
        return true;
    const bool is_shared = (before.st_mode & S_IRGRP) != 0;
    if (is_shared && (fchown(fd, (uid_t)-1, before.st_gid) != 0 || fchmod(fd, S_IRUSR | S_IWUSR | S_IRGRP) != 0))
        return false;
    return before.st_uid == geteuid() || fchown(fd, before.st_uid, before.st_gid) == 0;
}

/* Write a new file beside it, which takes its name once it is on the disk. A symbolic link stays one. */
static enum status replace_file(const char *named, const char *text, struct error *err)
{
    char path[PATH_MAX], folder[PATH_MAX];
    if (realpath(named, path) == NULL)
        (void)snprintf(path, sizeof path, "%s", named);
    folder_of(path, folder, sizeof folder);
    if (!file_replace(path, text, strlen(text), keep_readers, path))
        return error_set(err, ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    const int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0) {
        (void)fsync(dir); /* the name as well */
        (void)close(dir);
    }
    return OK;
}

enum status keys_file_write(const struct keys_file *f, const char *path, struct error *err)
{
    json_t *list = json_array();
    for (size_t i = 0; i < f->count; i++)
        json_append(list, key_to_json(&f->keys[i]));
    json_t *root = json_pack("{s:o}", "keys", list);
    char *text = json_print(root, JSON_INDENT(2));
    json_decref(root);
    if (text == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the keys");
    const enum status st = replace_file(path, text, err);
    free(text);
    return st;
}

/* The folder is locked: the file itself is replaced at each change. */
enum status keys_file_lock(int *ret, const char *path, struct error *err)
{
    char folder[4096];
    folder_of(path, folder, sizeof folder);
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX) != 0) {
        const enum status st = error_set(err, ERR_IO, "%s: cannot be locked: %s", folder, strerror(errno));
        if (fd >= 0)
            (void)close(fd);
        return st;
    }
    *ret = fd;
    return OK;
}

void keys_file_unlock(int lock)
{
    (void)close(lock);
}
