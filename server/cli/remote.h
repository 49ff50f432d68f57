/* remote.h - a daemon that does a verb's work in place of a local model: `aft VERB --url URL`, or --unix PATH. One
 * request and its answer, by libcurl; proxies from the environment are not used. Single threaded. Errors of the daemon
 * are printed in its own words. */
#ifndef SERVER_CLI_REMOTE_H
#define SERVER_CLI_REMOTE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "server/cli/cli.h"

struct curl_slist; /* libcurl's */

/* What the options say; zeroed before they are read. */
struct remote {
    const char *url, *unix_path, *key, *ca_file;
    const char *model; /* --model, or what stands for it on the command line; NULL: the daemon's own */
    bool asks;         /* there is a daemon to ask; else `model` is one of our own */
    double timeout_s;  /* for the whole answer; 0: no limit but that for connecting */
    bool trusts_all;   /* with https, whatever certificate there is */
};
/* Rows of a verb's options: where a daemon is, its key, and all that verbs have which do with or without one. */
#define REMOTE_DAEMON_OPTIONS(r)                                                                                 \
    {"url", CLI_TEXT, (void *)&(r)->url, 0, 0, "URL", NULL, "ask the daemon at [http(s)://]HOST:PORT"},          \
        {"unix", CLI_TEXT, (void *)&(r)->unix_path, 0, 0, "SOCKET", NULL, "ask the daemon at this Unix socket"}, \
        {"ca-file", CLI_TEXT, (void *)&(r)->ca_file, 0, 0, "FILE", "the system's", "trusted CA certificates (PEM)"},
#define REMOTE_KEY_OPTION(r) \
    {"key", CLI_TEXT, (void *)&(r)->key, 0, 0, "KEY", "$AFT_KEY", "the daemon's key; other users can see it"},
#define REMOTE_OPTIONS(r)                                                                                        \
    {"model", CLI_TEXT, (void *)&(r)->model, 0, 0, "MODEL", "a daemon's own", "in place of the argument MODEL"}, \
        REMOTE_DAEMON_OPTIONS(r) REMOTE_KEY_OPTION(r)

/* Is there a daemon to ask? Fills in what is left out (the key, the URL of a socket). Prints what is wrong and returns
 * CLI_USAGE. */
int remote_check(struct remote *r);
/* cli_parse, for a verb that computes by itself, with `with`, or asks a daemon: *r says afterwards which, and by which
 * model; *count arguments, at least min and at most max, are left at argv[1..] beside MODEL, which a daemon that is
 * asked does not have. */
int remote_parse(struct remote *r, const struct cli_engine *with, const struct cli_option *options, int argc,
                 char **argv, int min, int max, int *count);

struct remote_parameter {
    const char *name, *value; /* NULL: left out */
    bool option;              /* an option's value: if the daemon refuses it, the command line is wrong */
};

struct remote_request {
    const char *method;      /* NULL: POST; any other has no body */
    const char *path, *type; /* Content-Type; NULL: bytes */
    const struct remote_parameter *query;
    size_t query_count;
    const struct cli_texts *headers; /* "Name: value", beside its own; NULL: none */
    const char *file;                /* what messages begin with, such as a picture's path; NULL: nothing */
    const void *body;                /* [size], borrowed; NULL: what is in the file */
    size_t size;
    /* If the answer is server-sent events: takes the value of each. False: go no further; it has printed why. */
    bool (*on_event)(void *arg, json_t *event);
    void *arg;
    /* In: the id of the event that a stream goes on after, empty for none. Then that of the last event that on_event
     * took. NULL: there is none to tell. */
    char *id;                       /* [REMOTE_ID_BYTES] */
    struct remote_trouble *trouble; /* NULL: print all that goes wrong */
};

enum { REMOTE_ID_BYTES = STREAM_OFFSET_MAX + 1, REMOTE_MESSAGE_BYTES = 1024 };

/* Why the whole answer did not come, where the same request may have it later: the connection broke, or could not be
 * made, or the answer was 502, 503 or 504. It is not printed then. */
struct remote_trouble {
    bool passes; /* else it was printed */
    char message[REMOTE_MESSAGE_BYTES];
};

/* The answer to a request that the daemon did not refuse. */
struct remote_answer {
    char *bytes; /* [size] and a NUL; NULL if all of it was events */
    size_t size;
};

/* POST it and read the whole answer. Prints why not and returns an exit code. free ret->bytes. */
int remote_post(const struct remote *r, const struct remote_request *q, struct remote_answer *ret);
/* The same of a file, NULL: of nothing; the answer is what the verb puts out. */
int remote_post_file(const struct remote *r, const char *path, const struct remote_parameter *query, size_t count,
                     const char *file, const struct cli_output *out);
/* The same, and the answer is a JSON object: json_decref *ret. */
int remote_post_json(const struct remote *r, const struct remote_request *q, json_t **ret);
/* GET a path, in the same way. */
int remote_get(const struct remote *r, const char *path, struct remote_answer *ret);
int remote_get_json(const struct remote *r, const char *path, json_t **ret);
/* The same by any method, of what is called `name` below the path `folder`, which ends with a slash. */
int remote_named_json(const struct remote *r, const char *method, const char *folder, const char *name, json_t **ret);

/* What all requests have in common, for one that is made elsewhere. Where it goes, and with what headers: curl_free and
 * curl_slist_free_all them whatever comes of it; prints why not and returns an exit code. All of it set in `easy`, a
 * CURL that lives no longer than they, with where to put why it fails [CURL_ERROR_SIZE]: false, out of memory. */
int remote_address(char **url, struct curl_slist **headers, const struct remote *r, const struct remote_request *q);
bool remote_set_up(void *easy, const struct remote *r, const char *url, struct curl_slist *headers, char *why);
/* That URL alone: curl_free it. */
int remote_url(char **ret, const char *url, const struct remote_request *q);

/* What messages call the daemon. */
const char *remote_name(const struct remote *r);

/* Bytes as a JSON string in base64; NULL: out of memory. */
json_t *remote_base64(const uint8_t *bytes, size_t size);
/* Decode the bytes: free *ret. False if it is not base64, or out of memory. */
bool remote_read_base64(uint8_t **ret, size_t *size, const json_t *value);

/* The line of aft --version: libcurl. */
void remote_print_versions(void);

#endif
