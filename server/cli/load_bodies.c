/* load_bodies.c - see load.h: what requests carry, made once before the first is sent. */
#include <inttypes.h>
#include <jansson.h>
#include <nettle/base64.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "server/cli/load.h"
#include "server/cli/pictures.h"
#include "server/media/picture.h"

static const char own_prompt[] = "The history of ";

void load_bodies_clear(struct load_bodies *b)
{
    for (size_t i = 0; i < b->count; i++)
        free(b->at[i].bytes);
    free(b->at);
    memset(b, 0, sizeof *b);
}

/* Takes bytes, even if it fails. */
static int add_body(struct load_bodies *b, uint8_t *bytes, size_t size)
{
    if (size > LOAD_BODIES_BYTES_MAX - b->bytes) {
        free(bytes);
        return cli_fail("the bodies of the requests take more than %" PRIu64 " bytes; give fewer pictures",
                        LOAD_BODIES_BYTES_MAX);
    }
    if (b->count == b->room) {
        const size_t room = b->room == 0 ? 64 : 2 * b->room;
        struct load_body *more = realloc(b->at, room * sizeof *more);
        if (more == NULL) {
            free(bytes);
            return cli_fail("out of memory");
        }
        b->at = more;
        b->room = room;
    }
    b->at[b->count++] = (struct load_body){bytes, size};
    b->bytes += size;
    return CLI_OK;
}

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

static int add_picture(struct load_bodies *b, const char *path)
{
    struct error err;
    uint8_t *bytes = NULL;
    size_t size = 0;
    if (b->count == LOAD_PICTURES_MAX)
        return cli_fail("more than %d pictures; give fewer", LOAD_PICTURES_MAX);
    if (cli_read(&bytes, &size, path, HTTP_BODY_MAX, &err) != OK)
        return cli_fail_error(&err);
    if (picture_media_type(bytes, size) == NULL) {
        free(bytes);
        return cli_fail("%s is not a picture: expected a JPEG, PNG or WebP", path);
    }
    return add_body(b, bytes, size);
}

static int add_pictures(struct load_bodies *b, const struct load_options *o)
{
    struct cli_pictures pictures = {.count = 0};
    int code = CLI_OK;
    for (size_t i = 0; i < o->picture_count && code == CLI_OK; i++)
        code = cli_pictures_add(&pictures, o->pictures[i]);
    for (size_t i = 0; i < pictures.count && code == CLI_OK; i++)
        code = add_picture(b, pictures.paths[i]);
    cli_pictures_clear(&pictures);
    return code;
}

/* ---- prompts ----------------------------------------------------------------------------------------------------- */

/* All bytes that prompts are cut from; free *ret. */
static int read_source(uint8_t **ret, size_t *size, const struct load_options *o)
{
    struct error err;
    const char *path = o->prompt_file;
    if (path == NULL && o->prompt != NULL && strcmp(o->prompt, "-") == 0)
        path = "-";
    if (path != NULL) {
        const size_t max = o->prompt_bytes > 0 ? LOAD_BODIES_BYTES_MAX : GENERATE_PROMPT_MAX;
        return cli_read(ret, size, path, max, &err) == OK ? CLI_OK : cli_fail_error(&err);
    }
    const char *text = o->prompt != NULL ? o->prompt : own_prompt;
    *size = strlen(text);
    *ret = (uint8_t *)strdup(text);
    return *ret != NULL ? CLI_OK : cli_fail("out of memory");
}

/* How much is generated, and how it comes; NULL: out of memory. */
static json_t *how_much(const struct load_options *o)
{
    return json_pack("{s:I, s:b}", "max_tokens", (json_int_t)o->max_tokens, "stream", o->whole ? 0 : 1);
}

static int add_object(struct load_bodies *b, json_t *object)
{
    char *text = object != NULL ? json_print(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text != NULL ? add_body(b, (uint8_t *)text, strlen(text)) : cli_fail("out of memory");
}

/* A prompt is sent in base64, as it may be any bytes. */
static int add_prompt(struct load_bodies *b, const struct load_options *o, const uint8_t *prompt, size_t size)
{
    const size_t encoded = BASE64_ENCODE_RAW_LENGTH(size);
    const uint64_t seed = (o->seed + b->count) & SEED_MAX;
    const char *model = o->models[LOAD_GENERATE];
    char *base64 = malloc(encoded + 1);
    json_t *object = NULL;
    if (base64 != NULL) {
        base64_encode_raw(base64, size, prompt);
        object = json_pack("{s:o, s:f, s:I}", "prompt_base64", json_stringn_nocheck(base64, encoded), "temperature",
                           o->temperature, "seed", (json_int_t)seed);
    }
    if (object != NULL && !o->sessions && json_object_update_new(object, how_much(o)) != 0) {
        json_decref(object);
        object = NULL;
    }
    free(base64);
    if (model != NULL && object != NULL && json_object_set_new(object, "model", json_string(model)) != 0) {
        json_decref(object);
        return cli_fail("--model is \"%s\", expected a name in UTF-8", model);
    }
    return add_object(b, object);
}

/* Each prompt begins in the source where the one before ended, and the source starts over at its end. Each has its own
 * seed, so that texts differ where prompts do not. */
static int add_prompts(struct load_bodies *b, const struct load_options *o)
{
    uint8_t *source = NULL, *prompt = NULL;
    size_t size = 0, from = 0;
    int code = read_source(&source, &size, o);
    const size_t length = o->prompt_bytes > 0 ? (size_t)o->prompt_bytes : size;
    if (code == CLI_OK && size == 0 && length > 0)
        code = cli_fail("the prompt is empty, and --prompt-bytes is %zu: expected text to fill them with", length);
    if (code != CLI_OK)
        goto done;
    prompt = malloc(length + 1);
    if (prompt == NULL) {
        code = cli_fail("out of memory");
        goto done;
    }
    for (size_t n = 0; n < LOAD_PROMPTS_MAX && code == CLI_OK && b->bytes <= LOAD_BODIES_BYTES_MAX / 4; n++) {
        for (size_t i = 0; i < length; i++) {
            prompt[i] = source[from];
            from = from + 1 < size ? from + 1 : 0;
        }
        code = add_prompt(b, o, prompt, length);
    }
done:
    free(prompt);
    free(source);
    return code;
}

int load_bodies_make(struct load_bodies bodies[LOAD_KINDS], const struct load_options *o)
{
    int code = CLI_OK;
    if (o->kinds[LOAD_CLASSIFY])
        code = add_pictures(&bodies[LOAD_CLASSIFY], o);
    if (code == CLI_OK && o->kinds[LOAD_GENERATE])
        code = o->sessions ? add_object(&bodies[LOAD_GENERATE], how_much(o)) : add_prompts(&bodies[LOAD_GENERATE], o);
    return code;
}

int load_bodies_make_sessions(struct load_bodies *ret, const struct load_options *o)
{
    return o->sessions ? add_prompts(ret, o) : CLI_OK;
}
