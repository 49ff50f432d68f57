/* page.c - the page for people: GET / and GET /page/{}, the files of server/web/ as they are, which the compiler
 * puts into the binary. HTTP threads; constant but for the tags, which are made once.
 *
 * The page talks only to this daemon, and its policy makes the browser enforce that: no script, style, picture or
 * connection from elsewhere, no inline ones, and no frame around the page. */
#include "server/api/route_table.h"

#include <nettle/base16.h>
#include <nettle/sha2.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "config/settings.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/service.h"

/* This file's object depends on all of them, as the Makefile says.
 *   symbol, name below /page/, file from the project's root, Content-Type; the first is what / is, and only there,
 *   because it finds the others by where they lie from it: a proxy may have put all of it below a path of its own */
#define FILES(X)                                                                     \
    X(page_index, "index.html", "server/web/index.html", "text/html; charset=utf-8") \
    X(page_css, "page.css", "server/web/page.css", "text/css; charset=utf-8")        \
    X(page_js, "page.js", "server/web/page.js", SCRIPT)                              \
    X(page_api, "api.js", "server/web/api.js", SCRIPT)                               \
    X(page_elements, "elements.js", "server/web/elements.js", SCRIPT)                \
    X(page_keep, "keep.js", "server/web/keep.js", SCRIPT)                            \
    X(page_models, "models.js", "server/web/models.js", SCRIPT)                      \
    X(page_picture, "picture.js", "server/web/picture.js", SCRIPT)                   \
    X(page_sending, "sending.js", "server/web/sending.js", SCRIPT)                   \
    X(page_classify, "classify.js", "server/web/classify.js", SCRIPT)                \
    X(page_generate, "generate.js", "server/web/generate.js", SCRIPT)                \
    X(page_going_on, "going_on.js", "server/web/going_on.js", SCRIPT)                \
    X(page_coloured, "coloured.js", "server/web/coloured.js", SCRIPT)                \
    X(page_command, "command.js", "server/web/command.js", SCRIPT)                   \
    X(page_revisions, "revisions.js", "server/web/revisions.js", SCRIPT)             \
    X(page_complete, "complete.js", "server/web/complete.js", SCRIPT)                \
    X(page_many, "many.js", "server/web/many.js", SCRIPT)                            \
    X(page_score, "score.js", "server/web/score.js", SCRIPT)                         \
    X(page_surprise, "surprise.js", "server/web/surprise.js", SCRIPT)                \
    X(page_maps, "maps.js", "server/web/maps.js", SCRIPT)                            \
    X(page_seen, "seen.js", "server/web/seen.js", SCRIPT)                            \
    X(page_label, "label.js", "server/web/label.js", SCRIPT)                         \
    X(page_labels, "labels.js", "server/web/labels.js", SCRIPT)                      \
    X(page_live, "live.js", "server/web/live.js", SCRIPT)                            \
    X(page_icon, "icon.svg", "server/web/icon.svg", "image/svg+xml")                 \
    X(page_sample, "sample.jpg", "weights/models/cifar10-aft-conv/sample.jpg", "image/jpeg")
#define SCRIPT "text/javascript; charset=utf-8"

/* .incbin works in every compiler and cross compiler that builds aftd. */
#define X(symbol, name, file, type)                                                                                    \
    __asm__(".pushsection .rodata\n.global " #symbol ", " #symbol "_end\n" #symbol ":\n.incbin \"" file "\"\n" #symbol \
            "_end:\n.popsection");                                                                                     \
    extern const uint8_t symbol[] __attribute__((visibility("hidden")));                                               \
    extern const uint8_t symbol##_end[] __attribute__((visibility("hidden")));
FILES(X)
#undef X

static const struct file {
    const char *name, *type;
    const uint8_t *from, *to;
} files[] = {
#define X(symbol, name, file, type) {name, type, symbol, symbol##_end},
    FILES(X)
#undef X
};
enum { FILE_COUNT = sizeof files / sizeof files[0], TAG_BYTES = 16 };

static const char policy[] = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
                             "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
_Static_assert(sizeof policy <= HTTP_HEADER_VALUE_MAX, "the policy is sent whole");

/* ETags: the same for the same file in every build. */
static char tags[FILE_COUNT][BASE16_ENCODE_LENGTH(TAG_BYTES) + sizeof "\"\""];
static pthread_once_t tags_made = PTHREAD_ONCE_INIT;

static void make_tags(void)
{
    for (size_t i = 0; i < FILE_COUNT; i++) {
        struct sha256_ctx sha;
        uint8_t digest[TAG_BYTES];
        sha256_init(&sha);
        sha256_update(&sha, (size_t)(files[i].to - files[i].from), files[i].from);
        sha256_digest(&sha, sizeof digest, digest);
        tags[i][0] = '"';
        base16_encode_update(tags[i] + 1, sizeof digest, digest);
        tags[i][1 + BASE16_ENCODE_LENGTH(TAG_BYTES)] = '"'; /* the NUL after it is there */
    }
}

/* Does the client have it (RFC 9110, 13.1.2)? Tags have no quotes inside, so ours is found as a whole or not at all. */
static bool client_has(const struct request *x, const char *tag)
{
    const char *given = request_header(x, "If-None-Match");
    return given != NULL && (strcmp(given, "*") == 0 || strstr(given, tag) != NULL);
}

static enum status page_answer(struct request *x, size_t i)
{
    const struct file *f = &files[i];
    const size_t bytes = (size_t)(f->to - f->from);
    (void)pthread_once(&tags_made, make_tags);
    request_add_header(x, "ETag", tags[i]);
    request_add_header(x, "Cache-Control",
                       "no-cache"); /* cache, but ask each time: the next daemon may have another page */
    request_add_header(x, "Content-Security-Policy", policy);
    request_add_header(x, "X-Content-Type-Options", "nosniff");
    request_add_header(x, "Referrer-Policy", "no-referrer");
    if (client_has(x, tags[i]))
        return request_reply(x, 304, NULL, NULL, 0);
    char *body = malloc(bytes);
    if (body == NULL)
        return reply_send_json(x, 200, NULL); /* says that memory is short */
    memcpy(body, f->from, bytes);
    return request_reply(x, 200, f->type, body, bytes);
}

static enum status refuse_absent(const struct request *x, struct error *err)
{
    return error_set(err, ERR_NOT_FOUND, "there is nothing at \"%s\"%s", json_quote(x->path).text,
                     x->service->settings->page ? "" : ": the page is switched off");
}

enum status api_page(struct request *x, struct error *err)
{
    return x->service->settings->page ? page_answer(x, 0) : refuse_absent(x, err);
}

enum status api_page_file(struct request *x, struct error *err)
{
    for (size_t i = 1; x->service->settings->page && i < FILE_COUNT; i++)
        if (strcmp(files[i].name, x->segments[0]) == 0)
            return page_answer(x, i);
    return refuse_absent(x, err);
}
