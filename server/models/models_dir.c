/* models_dir.c - see models_dir.h. */
#include "server/models/models_dir.h"

#include <dirent.h>
#include <errno.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/digits.h"
#include "weights/model.h"

enum { VERSION_MAX = 999999999 };

uint32_t models_dir_version(const char *text)
{
    uint64_t version = 0;
    const bool fine = text[0] != '0' && digits_read(&version, &text) && *text == '\0' && version <= VERSION_MAX;
    return fine ? (uint32_t)version : 0;
}

/* Does this failure leave open whether there is something? Memory or descriptors ran out, or the disk fails: a model
 * that is served must not be taken for one that somebody has removed. */
static bool is_open(int error)
{
    return error != ENOENT && error != ENOTDIR && error != EACCES && error != ELOOP && error != ENAMETOOLONG;
}

static enum status refuse_folder(const char *path, int error, struct error *err)
{
    return error_set(err, status_of_errno(error), "%s: %s", path, strerror(error));
}

static enum status has_config(bool *ret, const char *path, struct error *err)
{
    char config[MODELS_DIR_PATH_BYTES + 256 + sizeof "/config.json"];
    (void)snprintf(config, sizeof config, "%s/config.json", path);
    *ret = access(config, F_OK) == 0;
    return *ret || !is_open(errno) ? OK : refuse_folder(config, errno, err);
}

/* The highest number among the folders of `path` that have a config.json; 0: there is none, or no such folder. */
static enum status find_version(uint32_t *ret, const char *path, struct error *err)
{
    *ret = 0;
    enum status st = OK;
    DIR *dir = opendir(path);
    if (dir == NULL)
        return is_open(errno) ? refuse_folder(path, errno, err) : OK;
    errno = 0;
    for (const struct dirent *d; st == OK && (d = readdir(dir)) != NULL; errno = 0) {
        char sub[MODELS_DIR_PATH_BYTES + 256];
        const uint32_t version = models_dir_version(d->d_name);
        bool there = false;
        (void)snprintf(sub, sizeof sub, "%s/%s", path, d->d_name);
        if (version > *ret)
            st = has_config(&there, sub, err);
        if (there)
            *ret = version;
    }
    if (st == OK && errno != 0)
        st = refuse_folder(path, errno, err);
    (void)closedir(dir);
    return st;
}

static int is_file_of_model(const struct dirent *d)
{
    const char *dot = strrchr(d->d_name, '.');
    return dot != NULL && (strcmp(dot, ".json") == 0 || strcmp(dot, ".safetensors") == 0);
}

/* A file that was replaced by one of the same size and time has another inode, and one that was overwritten another
 * ctime, which nobody can set. */
enum status models_dir_print(uint8_t out[MODELS_DIR_PRINT_BYTES], const char *dir, struct error *err)
{
    struct sha256_ctx sha;
    struct dirent **names = NULL;
    const int count = scandir(dir, &names, is_file_of_model, alphasort);
    const enum status st = count < 0 && is_open(errno) ? refuse_folder(dir, errno, err) : OK;
    sha256_init(&sha);
    sha256_update(&sha, strlen(dir), (const uint8_t *)dir);
    for (int i = 0; i < count; i++) {
        char path[MODELS_DIR_PATH_BYTES + 256], line[512];
        struct stat s = {0};
        (void)snprintf(path, sizeof path, "%s/%s", dir, names[i]->d_name);
        (void)stat(path, &s);
        const int n = snprintf(line, sizeof line, "%s %llu %lld.%09ld %llu %lld.%09ld\n", names[i]->d_name,
                               (unsigned long long)s.st_size, (long long)s.st_mtim.tv_sec, s.st_mtim.tv_nsec,
                               (unsigned long long)s.st_ino, (long long)s.st_ctim.tv_sec, s.st_ctim.tv_nsec);
        sha256_update(&sha, n > 0 ? (size_t)n : 0, (const uint8_t *)line);
        free(names[i]);
    }
    free((void *)names);
    _Static_assert(MODELS_DIR_PRINT_BYTES == SHA256_DIGEST_SIZE, "a print is a digest");
    sha256_digest(&sha, MODELS_DIR_PRINT_BYTES, out);
    return st;
}

enum status models_dir_look(struct found_model *ret, bool *there, const char *name, const char *path, struct error *err)
{
    struct found_model m = {.version = 0};
    (void)snprintf(m.name, sizeof m.name, "%s", name);
    (void)snprintf(m.path, sizeof m.path, "%s", path);
    enum status st = has_config(there, m.path, err);
    if (st == OK && !*there) {
        const size_t end = strlen(m.path);
        st = find_version(&m.version, m.path, err);
        *there = st == OK && m.version != 0;
        (void)snprintf(m.path + end, sizeof m.path - end, "/%u", m.version);
    }
    if (*there)
        st = models_dir_print(m.print, m.path, err);
    if (*there && st == OK)
        *ret = m;
    return st;
}

static enum status look_at_all(struct found_model all[REGISTRY_MODELS_MAX], size_t *found, struct dirent *const *names,
                               size_t count, const char *dir, struct error *err)
{
    *found = 0;
    for (size_t i = 0; i < count; i++) {
        struct found_model m;
        char path[MODELS_DIR_PATH_BYTES];
        const char *name = names[i]->d_name;
        bool there = false;
        if (name[0] == '.')
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", dir, name);
        enum status st = models_dir_look(&m, &there, name, path, err);
        if (st == OK && !there)
            continue;
        if (st == OK)
            st = model_check_name(name, strlen(name), path, err);
        if (st == OK && *found == REGISTRY_MODELS_MAX)
            st = error_set(err, ERR_CONFIG, "%s: more than %d models", dir, REGISTRY_MODELS_MAX);
        if (st != OK)
            return st;
        all[(*found)++] = m;
    }
    if (*found > 0)
        return OK;
    return error_set(err, ERR_CONFIG, "models_dir = %s: no subfolder has a config.json of a model that this build runs",
                     dir);
}

enum status models_dir_scan(struct found_model ret[REGISTRY_MODELS_MAX], size_t *count, const char *dir,
                            struct error *err)
{
    struct dirent **names = NULL;
    const int entries = scandir(dir, &names, NULL, alphasort);
    if (entries < 0)
        return error_set(err, status_of_errno(errno), "models_dir = %s: %s", dir, strerror(errno));
    const enum status st = look_at_all(ret, count, names, (size_t)entries, dir, err);
    for (int i = 0; i < entries; i++)
        free(names[i]);
    free((void *)names);
    return st;
}
