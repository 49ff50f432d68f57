/* memory.c - see memory.h. A fifth of the memory is for what no bound counts: requests while they are parsed, of which
 * each HTTP thread has one, the kernel's buffers of sockets, files that are being read, and holes between what is
 * allocated. */
#include "config/memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "config/cgroup.h"

#define MIB (UINT64_C(1) << 20)

enum {
    UNCOUNTED_PART = 5,
    BASE_MB = 24,        /* the program, its libraries, stacks and heaps of threads, and requests of a few kilobytes */
    MODELS_LEAST_MB = 16 /* the smallest models that ship */
};

/* Each gets a part of the memory, at least what it needs to be of use, at most its default. */
static const struct share {
    enum setting_id id;
    const char *what; /* NULL: it is no memory by itself */
    uint64_t unit;    /* bytes that one of it takes */
    uint32_t least;   /* of these units */
    uint32_t part;    /* one of so many */
} shares[] = {
    {SETTING_bodies_memory_max_mb, "bodies", MIB, 0, 16}, /* at least what least_of says */
    {SETTING_pictures_memory_max_mb, "pictures", MIB, 32, 16},
    {SETTING_answers_memory_max_mb, "answers", MIB, 16, 32},
    {SETTING_sessions_memory_max_mb, "sessions", MIB, 10, 32},
    {SETTING_connections_max, "connections", HTTP_CONNECTION_BYTES_MAX, 256, 64},
    {SETTING_http_threads, NULL, 256 * MIB, 1, 1}, /* each parses one request, of up to three times its size */
    /* what models take */
    {SETTING_streams_max, NULL, 16 * MIB, 16, 1},
    {SETTING_picture_tokens_max, NULL, MIB / 4, 1024, 1},
    {SETTING_parking_mb, NULL, MIB, 2, 128},
    {SETTING_prefix_cache_mb, NULL, MIB, 2, 128},
};
#define SHARES (sizeof shares / sizeof shares[0])

uint64_t memory_there_is(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const uint64_t machine = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    const uint64_t group = cgroup_limits().memory;
    return group != 0 && (machine == 0 || group < machine) ? group : machine;
}

/* What the daemon is to get along with, in bytes; 0: unknown. */
static uint64_t memory_of(const struct settings *s, uint64_t there_is)
{
    return s->memory_max_mb != 0 ? s->memory_max_mb * MIB : there_is;
}

static uint64_t value_of(const struct settings *s, const struct share *of)
{
    return setting_number(setting_at(of->id), s);
}

static uint64_t bytes_beside_models(const struct settings *s)
{
    uint64_t bytes = BASE_MB * MIB;
    for (size_t i = 0; i < SHARES; i++)
        if (shares[i].what != NULL)
            bytes += value_of(s, &shares[i]) * shares[i].unit;
    return bytes;
}

static void set(struct settings *s, enum config_source sources[], enum setting_id id, uint64_t value)
{
    const struct setting *row = setting_at(id);
    setting_set_number(row, s, (uint32_t)(value < row->max ? value : row->max));
    sources[id] = CONFIG_FROM_SHARE;
}

/* Of bodies there must be room for a large one beside another that is being cut off, and for small ones. */
static uint64_t least_of(const struct settings *s, const struct share *of)
{
    return of->id == SETTING_bodies_memory_max_mb ? (UINT64_C(5) * s->body_bytes_max / 2 + MIB - 1) / MIB : of->least;
}

void memory_share(struct settings *s, enum config_source sources[SETTING_COUNT], uint64_t there_is)
{
    const uint64_t memory = memory_of(s, there_is);
    if (memory == 0)
        return;
    for (size_t i = 0; i < SHARES; i++) {
        const struct share *one = &shares[i];
        const uint64_t part = memory / one->part / one->unit, least = least_of(s, one);
        const uint64_t share = part > least ? part : least;
        if (!config_is_set(sources[one->id]) && share < setting_at(one->id)->def)
            set(s, sources, one->id, share);
    }
    const uint64_t counted = memory - memory / UNCOUNTED_PART, beside = bytes_beside_models(s);
    const uint64_t left = counted > beside ? (counted - beside) / MIB : 0;
    if (s->models_memory_max_mb == 0)
        set(s, sources, SETTING_models_memory_max_mb, left > MODELS_LEAST_MB ? left : MODELS_LEAST_MB);
}

/* ---- what a user reads ------------------------------------------------------------------------------------------ */

static unsigned mebibytes(uint64_t bytes)
{
    return (unsigned)(bytes / MIB);
}

/* "models 45, bodies 40, ..." */
static void list_bounds(const struct settings *s, char *out, size_t size)
{
    int used = snprintf(out, size, "models %u", s->models_memory_max_mb);
    for (size_t i = 0; i < SHARES && used >= 0 && (size_t)used < size; i++)
        if (shares[i].what != NULL)
            used += snprintf(out + used, size - (size_t)used, ", %s %u", shares[i].what,
                             mebibytes(value_of(s, &shares[i]) * shares[i].unit));
}

static const char *source_of(const struct settings *s, uint64_t there_is)
{
    if (s->memory_max_mb != 0)
        return "memory_max_mb";
    return cgroup_limits().memory == there_is ? "control group" : "machine";
}

void memory_describe(const struct settings *s, uint64_t there_is, char *out, size_t size)
{
    const uint64_t memory = memory_of(s, there_is);
    char bounds[ERROR_MESSAGE_MAX / 2];
    list_bounds(s, bounds, sizeof bounds);
    if (memory == 0)
        (void)snprintf(out, size, "memory: unknown; at most, in MiB: %s", bounds);
    else
        (void)snprintf(out, size, "memory: %u MiB (%s); at most, in MiB: %s, the daemon itself %u", mebibytes(memory),
                       source_of(s, there_is), bounds, BASE_MB);
}

/* Has a user set none of what is added up? */
static bool is_all_shared(const enum config_source sources[])
{
    bool is_any_set = config_is_set(sources[SETTING_models_memory_max_mb]);
    for (size_t i = 0; i < SHARES; i++)
        is_any_set = is_any_set || (shares[i].what != NULL && config_is_set(sources[shares[i].id]));
    return !is_any_set;
}

enum status memory_check(const struct settings *s, const enum config_source sources[SETTING_COUNT], uint64_t there_is,
                         char *warning, size_t size, struct error *err)
{
    const uint64_t memory = memory_of(s, there_is), models = s->models_memory_max_mb * MIB;
    const uint64_t sum = bytes_beside_models(s) + models, counted = memory - memory / UNCOUNTED_PART;
    char bounds[ERROR_MESSAGE_MAX / 2];
    warning[0] = '\0';
    if (memory == 0 || sum <= counted || (config_is_set(sources[SETTING_models_memory_max_mb]) && sum <= memory))
        return OK;
    list_bounds(s, bounds, sizeof bounds);
    if (is_all_shared(sources))
        return error_set_param(
            err, ERR_CONFIG, "memory_max_mb",
            "there are %u MiB of memory (%s); expected at least %u, or lower bounds of one's own: in MiB %s, the "
            "daemon itself %u, and a fifth of all for what is not counted",
            mebibytes(memory), source_of(s, there_is), mebibytes(sum / (UNCOUNTED_PART - 1) * UNCOUNTED_PART) + 1,
            bounds, BASE_MB);
    (void)snprintf(warning, size,
                   "the bounds of memory come to %u MiB, and there are %u (%s), so that %s: lower those that you have "
                   "set; in MiB %s, the daemon itself %u, and a fifth of all for what is not counted",
                   mebibytes(sum), mebibytes(memory), source_of(s, there_is),
                   sum > memory ? "the daemon may be killed" : "models get the least", bounds, BASE_MB);
    return OK;
}
