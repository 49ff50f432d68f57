/* settings.h - the one table of settings: name, default, range or choices, help. The struct, the parser, the help
 * text, the printed configuration and the checks are all generated from it (settings.c); a setting is declared only
 * here. A struct settings is a plain value: it is filled once at start, copied freely and then only read, by any
 * thread. */
#ifndef CONFIG_SETTINGS_H
#define CONFIG_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/choices.h"
#include "config/limits.h"

/* Every setting has one kind, and each kind its own columns:
 *   NUMBER(name, default, min, max, help)         uint32_t
 *   TEXT(name, default, help)                     char[SETTING_TEXT_MAX + 1], never empty
 *   CHOICE(name, type, LIST, default, help)       enum type, words from LIST
 *   SWITCH(name, default, help)                   bool */
#define SETTINGS(NUMBER, TEXT, CHOICE, SWITCH)                                                                         \
    TEXT(listen_address, "127.0.0.1",                                                                                  \
         "addresses to listen on, IPv4 or IPv6, or * for all, separated by commas; or off")                            \
    NUMBER(listen_port, 8080, 0, 65535, "TCP port; 0: the kernel chooses one, which is logged")                        \
    TEXT(listen_unix, "off", "path of a Unix socket to listen on as well; or off")                                     \
    TEXT(listen_unix_mode, "0660", "permissions of that socket, in octal")                                             \
    TEXT(admin_address, "off", "addresses of the admin listener, separated by commas; or off")                         \
    NUMBER(admin_port, 8081, 0, 65535, "TCP port of the admin listener; 0: the kernel chooses one, which is logged")   \
    TEXT(admin_unix, "off", "path of a Unix socket for administration, open to the daemon's own user only; or off")    \
    TEXT(metrics_address, "off",                                                                                       \
         "addresses of a listener for /metrics, /healthz and /readyz alone, separated by commas; or off")              \
    NUMBER(metrics_port, 8082, 0, 65535, "TCP port of that listener; 0: the kernel chooses one, which is logged")      \
    TEXT(tls_certificate, "off", "PEM file of the certificate or its chain; TCP is then encrypted; or off")            \
    TEXT(tls_key, "off", "PEM file of the certificate's private key; or off")                                          \
    TEXT(keys_file, "off", "file of the keys that clients need, made by aft key; off: they need none")                 \
    TEXT(trusted_proxies, "off", "proxies whose X-Forwarded-For is believed: addresses, networks, unix; or off")       \
    TEXT(cors_origins, "off", "origins whose pages may call the daemon in a browser, separated by commas; *; or off")  \
    TEXT(hosts, "auto",                                                                                                \
         "names that clients may call this host: NAME, *.NAME, auto (the machine's name) or *;"                        \
         " separated by commas; addresses and localhost always count")                                                 \
    SWITCH(metrics_open, true, "serve /metrics without a key even where clients need one")                             \
    TEXT(model, "off", "folder of one model: NAME=PATH, or PATH that ends in its name; may be repeated")               \
    TEXT(models_dir, "weights/models", "folder whose subfolders are the models to load; off: if only model is given")  \
    SWITCH(models_lazy, false, "load a model only when a request first asks for it")                                   \
    CHOICE(models_broken, models_broken, MODELS_BROKEN, MODELS_BROKEN_SKIP,                                            \
           "at a start, a model whose files are not accepted: skip serves the others, refuse ends the daemon")         \
    TEXT(default_models, "off",                                                                                        \
         "model for requests that name none: for each task the first of these, separated by"                           \
         " commas, that is for it; else, or if off, the first by name")                                                \
    TEXT(aliases, "off", "other names that requests may use for models: ALIAS=NAME, separated by commas; or off")      \
    NUMBER(memory_max_mb, 0, 0, 16777216,                                                                              \
           "memory that the daemon is to get along with, in MiB, of which the bounds that are not set get shares; 0:"  \
           " what the control group allows, else what the machine has")                                                \
    NUMBER(models_memory_max_mb, 0, 0, 16777216,                                                                       \
           "most memory of all loaded models together, in MiB; 0: what the other bounds leave")                        \
    NUMBER(threads, 0, 0, ENGINE_THREADS_MAX, "compute threads; 0: one for each processor")                            \
    SWITCH(pin_threads, true, "with as many compute threads as processors, keep each on a processor of its own")       \
    TEXT(isa, "auto", "instruction set of the kernels: auto, or the name of a lower one")                              \
    TEXT(precision, "auto", "auto, f32, bf16 or int8, or MODEL=one of these for a single model; separated by commas")  \
    NUMBER(streams_max, 64, 1, ENGINE_STREAMS_MAX, "most streams that one text model runs at a time")                  \
    NUMBER(parking_mb, 32, 0, 1048576,                                                                                 \
           "memory of each text model for streams that wait so that other clients' can run, in MiB; 0: none wait")     \
    NUMBER(pass_rows_max, 16, 1, ENGINE_ROWS_MAX, "most prompt bytes fed in one pass beside the running streams")      \
    NUMBER(prefix_cache_mb, 32, 0, 1048576, "memory of each text model for saved prompt states, in MiB; 0: none")      \
    NUMBER(prefix_cache_bytes, 64, 8, 65536, "bytes of a prompt between two saved states")                             \
    SWITCH(prefix_cache_shared, false, "let one key's prompts start from states saved for another key")                \
    NUMBER(batch_images_max, 8, 1, ENGINE_PICTURES_MAX,                                                                \
           "most pictures of one size, or texts of one length, in a batch")                                            \
    NUMBER(batch_wait_us, 2000, 0, 1000000, "longest that a picture waits for others to share its batch")              \
    NUMBER(picture_step_us, 16000, 1, 1000000,                                                                         \
           "about how long pictures may hold up running streams at a time; one block of a picture for each thread "    \
           "always may")                                                                                               \
    NUMBER(picture_tokens_max, PICTURE_TOKENS_DEFAULT, 1, MODEL_TOKENS_MAX,                                            \
           "most patches of a picture whose request sets a size")                                                      \
    NUMBER(picture_threads, 4, 1, 64, "threads that decode and draw pictures")                                         \
    NUMBER(pictures_memory_max_mb, 512, 1, 1048576, "most memory for the pixels of all requests together, in MiB")     \
    NUMBER(queue_jobs_max, 256, 1, 65536, "most jobs that wait; further requests are answered 503")                    \
    NUMBER(priority_max, 100, 0, QUEUE_PRIORITY_MAX,                                                                   \
           "highest priority that a request may ask for where clients need no key; a key has its own, in keys_file")   \
    NUMBER(sessions_max, 256, 0, SESSIONS_MAX, "most sessions kept at a time")                                         \
    NUMBER(sessions_per_key_max, 0, 0, SESSIONS_MAX,                                                                   \
           "most sessions of one client: a key or, without keys, an address; 0: three quarters of the room,"           \
           " since the last quarter is kept for clients that have at most a 64th of it")                               \
    NUMBER(sessions_memory_max_mb, 256, 1, 1048576, "most memory of all sessions together, in MiB")                    \
    TEXT(sessions_dir, "off",                                                                                          \
         "folder in which sessions outlast the daemon; sessions_max and sessions_memory_max_mb then bound those in "   \
         "memory; or off")                                                                                             \
    NUMBER(sessions_stored_max, 4096, 1, SESSIONS_MAX,                                                                 \
           "most sessions in sessions_dir; for another, the one goes that was not used for longest")                   \
    NUMBER(sessions_dir_max_mb, 2048, 1, 16777216, "most that their files can come to, in MiB")                        \
    SWITCH(sessions_sync, false,                                                                                       \
           "have the disk write a session before its request is answered: then it outlasts a power cut, not just the " \
           "daemon")                                                                                                   \
    TEXT(sessions_redis, "off",                                                                                        \
         "Redis or Valkey server in which several daemons share sessions: redis://HOST:PORT/DB or unix:/PATH; or off") \
    TEXT(sessions_redis_password_file, "off",                                                                          \
         "file of one line for that server: PASSWORD or USER:PASSWORD; off: none is sent")                             \
    TEXT(sessions_redis_prefix, "aftd:", "what the names of its keys begin with")                                      \
    NUMBER(sessions_redis_timeout_ms, 1000, 10, 60000, "how long that server may take for a session")                  \
    NUMBER(sessions_lease_ms, 10000, 1000, 600000,                                                                     \
           "how long a daemon that has died keeps others from the sessions that it was using")                         \
    TEXT(replica, "auto", "name of this daemon for others that share its sessions; auto: the machine's name")          \
    SWITCH(session_cookie, false,                                                                                      \
           "tell browsers a new session's id as a cookie, aftd-session, for balancers that keep clients by one")       \
    NUMBER(session_ttl_s, 3600, 1, SESSION_TTL_MAX_S, "how long a session is kept after its last use")                 \
    NUMBER(http_threads, 4, 1, 64, "threads that serve connections")                                                   \
    NUMBER(connections_max, 4096, CONNECTIONS_MIN, 65536,                                                              \
           "most connections open at a time, besides those to the admin listener and that for monitors")               \
    NUMBER(connections_per_address_max, 0, 0, 65536, "most connections from one client address; 0: no limit")          \
    NUMBER(receive_timeout_ms, 30000, 100, 3600000, "how long a whole request may take to arrive")                     \
    NUMBER(idle_timeout_ms, 60000, 1000, 3600000, "how long a connection may be idle between requests")                \
    NUMBER(body_bytes_max, 16777216, 1024, HTTP_BODY_MAX, "largest request body")                                      \
    NUMBER(bodies_memory_max_mb, 512, 1, 1048576, "most memory of all request bodies together, in MiB")                \
    NUMBER(answers_memory_max_mb, 256, 16, 1048576,                                                                    \
           "most memory of all answers together that wait for their clients to read them, in MiB")                     \
    NUMBER(timeout_ms, 60000, 1, 86400000, "time limit of a request that sets none")                                   \
    NUMBER(timeout_ms_max, 600000, 1, 86400000, "longest time limit that a request may set")                           \
    NUMBER(max_tokens, 256, 1, GENERATE_TOKENS_MAX, "bytes generated for a request that sets no number")               \
    NUMBER(max_tokens_max, 1048576, 1, GENERATE_TOKENS_MAX, "most bytes that a request may ask for")                   \
    NUMBER(stream_buffer_bytes, 65536, 4096, 16777216,                                                                 \
           "unread bytes after which a slow client's request is cancelled")                                            \
    NUMBER(ping_ms, 15000, 100, 600000, "silence after which a stream is sent a comment line")                         \
    NUMBER(drain_delay_ms, 0, 0, 600000, "when stopping, how long new requests are still accepted")                    \
    NUMBER(drain_timeout_ms, 30000, 0, 3600000, "when stopping, how long running requests may continue")               \
    NUMBER(drain_idle_ms, 500, 0, 60000, "when stopping, how long an idle connection may still bring a last request")  \
    NUMBER(stuck_after_ms, 10000, 100, 3600000, "time without progress on waiting jobs after which /healthz fails")    \
    CHOICE(log_level, log_level, LOG_LEVELS, LOG_LEVEL_INFO, "least severe messages that are logged")                  \
    CHOICE(log_format, log_format, LOG_FORMATS, LOG_FORMAT_TEXT, "format of the log's lines")                          \
    SWITCH(page, true, "serve the web page at /")                                                                      \
    SWITCH(log_requests, true, "log a line for each request, but for probes and scrapes that go well")                 \
    SWITCH(log_clients, true, "name the client's address in it")

struct settings {
#define NUMBER(name, def, min, max, help) uint32_t name;
#define TEXT(name, def, help) char name[SETTING_TEXT_MAX + 1];
#define CHOICE(name, type, list, def, help) enum type name;
#define SWITCH(name, def, help) bool name;
    SETTINGS(NUMBER, TEXT, CHOICE, SWITCH)
#undef NUMBER
#undef TEXT
#undef CHOICE
#undef SWITCH
};

/* An index for each setting: SETTING_listen_port, ... */
enum setting_id {
#define NUMBER(name, def, min, max, help) SETTING_##name,
#define TEXT(name, def, help) SETTING_##name,
#define CHOICE(name, type, list, def, help) SETTING_##name,
#define SWITCH(name, def, help) SETTING_##name,
    SETTINGS(NUMBER, TEXT, CHOICE, SWITCH)
#undef NUMBER
#undef TEXT
#undef CHOICE
#undef SWITCH
        SETTING_COUNT
};

/* Who set a value. CONFIG_FROM_SHARE: nobody, and a share of the memory that there is (memory.h) takes the place of the
 * default. */
enum config_source {
    CONFIG_FROM_DEFAULT,
    CONFIG_FROM_SHARE,
    CONFIG_FROM_FILE,
    CONFIG_FROM_ENVIRONMENT,
    CONFIG_FROM_FLAG
};

static inline bool config_is_set(enum config_source by)
{
    return by != CONFIG_FROM_DEFAULT && by != CONFIG_FROM_SHARE;
}

enum setting_kind { SETTING_NUMBER, SETTING_TEXT, SETTING_CHOICE, SETTING_SWITCH };

/* A row of the table as data. */
struct setting {
    const char *name, *help;
    size_t offset;            /* in struct settings */
    const char *def_text;     /* texts */
    const char *const *words; /* choices: [max + 1] */
    enum setting_kind kind;
    uint32_t def, min, max; /* numbers; def also as a choice's index or a switch's 0 or 1 */
};

/* Static rows, in the table's order. id < SETTING_COUNT. */
const struct setting *setting_at(size_t id);
/* By name, '-' counting as '_'; NULL where there is none. `length` bytes of name are looked at. */
const struct setting *setting_find(const char *name, size_t length);
/* The setting's name that was meant (nearest.h); NULL where none is near enough to suggest. */
const char *setting_nearest(const char *name, size_t length);

/* Every setting at its default. */
void settings_init(struct settings *ret);

/* Store a value that is a uint32_t (numbers, choices, switches) or a text, which must fit. */
void setting_set_number(const struct setting *s, struct settings *to, uint32_t value);
void setting_set_text(const struct setting *s, struct settings *to, const char *text);
/* Read it back. */
uint32_t setting_number(const struct setting *s, const struct settings *from);
const char *setting_text(const struct setting *s, const struct settings *from);

/* What is accepted, in words: "a whole number from 0 to 65535", "one of error, warning, info, debug". */
void setting_describe(const struct setting *s, char *out, size_t size);

/* Parse what a user wrote on a command line or in the environment; a switch also as 1, yes or on, 0, no or off.
 * False, and nothing stored, if it is not what setting_describe says. */
bool setting_parse(const struct setting *s, const char *text, struct settings *to);

#endif
