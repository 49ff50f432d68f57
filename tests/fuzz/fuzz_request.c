/* fuzz_request.c - a body of any bytes is refused with a reason, or is a request of which every value is in its
 * bounds. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "config/settings.h"
#include "server/api/generate_request.h"
#include "tests/fuzz/generation.h"

static void check_request(const struct generate_request *r, const struct settings *s)
{
    fuzz_check(memchr(r->model, '\0', sizeof r->model) != NULL, "a model's name ends");
    fuzz_check_utf8(r->model, strlen(r->model));
    fuzz_check(r->in.max_tokens >= 1, "something is to be generated");
    fuzz_check(r->timeout_ms <= s->timeout_ms_max, "timeout_ms is in its bounds");
    fuzz_check_generation(&r->in, s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum status allowed[] = {ERR_ARGUMENT};
    struct settings settings;
    struct generate_request r = {0};
    struct error err = {.message = ""};

    settings_init(&settings);
    const enum status st = generate_request_parse(&r, data, size, &settings, &err);
    if (st == OK)
        check_request(&r, &settings);
    else
        fuzz_check_error(st, &err, allowed, 1);
    generate_request_clear(&r);
    return 0;
}
