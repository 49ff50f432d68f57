/* fuzz_openai.c - a body of any bytes to /v1/completions is refused with a reason, or is a request of which every value
 * is in its bounds. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "config/settings.h"
#include "server/api/openai_request.h"
#include "tests/fuzz/generation.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum status allowed[] = {ERR_ARGUMENT};
    struct settings settings;
    struct openai_request r = {0};
    struct error err = {.message = ""};

    settings_init(&settings);
    const enum status st = openai_request_parse(&r, false, data, size, &settings, &err);
    if (st == OK) {
        fuzz_check(memchr(r.model, '\0', sizeof r.model) != NULL, "a model's name ends");
        fuzz_check_utf8(r.model, strlen(r.model));
        fuzz_check_generation(&r.in, &settings);
        fuzz_check(!r.include_usage || r.in.stream, "usage is a chunk's of a stream alone");
        fuzz_check(!r.in.prompt_logprobs || (r.echo && r.in.logprobs > 0), "what is told of a prompt was asked for");
    } else {
        fuzz_check_error(st, &err, allowed, 1);
    }
    openai_request_clear(&r);
    return 0;
}
