/* models_dir.c - see models_dir.h. */
#include "server/models_dir.h"

#include <dirent.h>
#include <errno.h>
#include <nettle/sha2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weights/model.h"

enum { VERSION_DIGITS_MAX = 9 };

static bool has_config(const char *path)
{
    char config[MODELS_DIR_PATH_BYTES + 256 + sizeof "/config.json"];
    (void)snprintf(config, sizeof config, "%s/config.json", path);
    return access(config, F_OK) == 0;
}

uint32_t models_dir_version(const char *text)
{
    const size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > VERSION_DIGITS_MAX || text[digits] != '\0' || text[0] == '0')
        return 0;
    return (uint32_t)strtoul(text, NULL, 10);
}

/* The highest number among the folders of `path` that have a config.json; 0: there is none. */
static uint32_t find_version(const char *path)
{
    uint32_t best = 0;
    DIR *dir = opendir(path);
    if (dir == NULL)
        return 0;
    for (const struct dirent *d; (d = readdir(dir)) != NULL;) {
        char sub[MODELS_DIR_PATH_BYTES + 256];
        const uint32_t version = models_dir_version(d->d_name);
        (void)snprintf(sub, sizeof sub, "%s/%s", path, d->d_name);
        if (version > best && has_config(sub))
            best = version;
    }
    (void)closedir(dir);
    return best;
}

static int is_file_of_model(const struct dirent *d)
{
    const char *dot = strrchr(d->d_name, '.');
    return dot != NULL && (strcmp(dot, ".json") == 0 || strcmp(dot, ".safetensors") == 0);
}

/* A file that was replaced by one of the same size and time has another inode. `changed`: when each was written to,
 * renamed or linked counts as well. */
static void take_print(uint8_t out[MODELS_DIR_PRINT_BYTES], const char *dir, bool changed)
{
    struct sha256_ctx sha;
    struct dirent **names = NULL;
    const int count = scandir(dir, &names, is_file_of_model, alphasort);
    sha256_init(&sha);
    sha256_update(&sha, strlen(dir), (const uint8_t *)dir);
    for (int i = 0; i < count; i++) {
        char path[MODELS_DIR_PATH_BYTES + 256], line[512];
        struct stat s = {0};
        (void)snprintf(path, sizeof path, "%s/%s", dir, names[i]->d_name);
        (void)stat(path, &s);
        const struct timespec at = changed ? s.st_ctim : (struct timespec){0};
        const int n = snprintf(line, sizeof line, "%s %llu %lld.%09ld %llu %lld.%09ld\n", names[i]->d_name,
                               (unsigned long long)s.st_size, (long long)s.st_mtim.tv_sec, s.st_mtim.tv_nsec,
                               (unsigned long long)s.st_ino, (long long)at.tv_sec, at.tv_nsec);
        sha256_update(&sha, n > 0 ? (size_t)n : 0, (const uint8_t *)line);
        free(names[i]);
    }
    free((void *)names);
    _Static_assert(MODELS_DIR_PRINT_BYTES == SHA256_DIGEST_SIZE, "a print is a digest");
    sha256_digest(&sha, MODELS_DIR_PRINT_BYTES, out);
}

void models_dir_print(uint8_t out[MODELS_DIR_PRINT_BYTES], const char *path)
{
    take_print(out, path, true);
}

/* False: there is no model of that name, which is short enough. */
static bool look_at(struct found_model *ret, const char *dir, const char *name)
{
    struct found_model m = {.version = 0};
    (void)snprintf(m.name, sizeof m.name, "%s", name);
    (void)snprintf(m.path, sizeof m.path, "%s/%s", dir, name);
    if (!has_config(m.path)) {
        const size_t end = strlen(m.path);
        m.version = find_version(m.path);
        if (m.version == 0)
            return false;
        (void)snprintf(m.path + end, sizeof m.path - end, "/%u", m.version);
    }
    take_print(m.print, m.path, false);
    *ret = m;
    return true;
}

static enum status look_at_all(struct found_model *all, size_t *found, struct dirent *const *names, size_t count,
                               const char *dir, struct error *err)
{
    *found = 0;
    for (size_t i = 0; i < count; i++) {
        char path[MODELS_DIR_PATH_BYTES];
        const char *name = names[i]->d_name;
        (void)snprintf(path, sizeof path, "%s/%s", dir, name);
        if (name[0] == '.' || (!has_config(path) && find_version(path) == 0))
            continue;
        if (model_check_name(name, strlen(name), path, err) != OK)
            return ERR_FORMAT;
        if (*found == REGISTRY_MODELS_MAX)
            return error_set(err, ERR_CONFIG, "%s: more than %d models", dir, REGISTRY_MODELS_MAX);
        *found += look_at(&all[*found], dir, name);
    }
    if (*found > 0)
        return OK;
    return error_set(err, ERR_CONFIG, "models_dir = %s: no subfolder has a config.json of a model that this build runs",
                     dir);
}

enum status models_dir_scan(struct found_model **ret, size_t *count, const char *dir, struct error *err)
{
    struct dirent **names = NULL;
    const int entries = scandir(dir, &names, NULL, alphasort);
    if (entries < 0)
        return error_set(err, ERR_IO, "models_dir = %s: %s", dir, strerror(errno));
    struct found_model *all = calloc(REGISTRY_MODELS_MAX, sizeof *all);
    enum status st = all != NULL ? look_at_all(all, count, names, (size_t)entries, dir, err)
                                 : error_set(err, ERR_NOMEM, "no memory for the list of models");
    if (st == OK)
        *ret = all;
    else
        free(all);
    for (int i = 0; i < entries; i++)
        free(names[i]);
    free((void *)names);
    return st;
}

enum status models_dir_find(struct found_model *ret, const char *dir, const char *name, struct error *err)
{
    if (name[0] != '.' && model_check_name(name, strlen(name), dir, NULL) == OK && look_at(ret, dir, name))
        return OK;
    return error_set_param(err, ERR_NOT_FOUND, "model", "there is no folder of a model \"%.*s\" in models_dir",
                           MODEL_NAME_MAX, name);
}
