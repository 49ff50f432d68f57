/* fuzz_request.c - a body of any bytes is refused with a reason, or is a request of which every value is in its
 * bounds. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "config/settings.h"
#include "server/generate_request.h"

static void check_request(const struct generate_request *r, const struct settings *s)
{
    const struct generate_input *in = &r->in;
    const struct sampler_options *o = &in->sampler;

    fuzz_check(memchr(r->model, '\0', sizeof r->model) != NULL, "a model's name ends");
    fuzz_check_utf8(r->model, strlen(r->model));
    fuzz_check(in->max_tokens >= 1 && in->max_tokens <= s->max_tokens_max, "max_tokens is in its bounds");
    fuzz_check(r->timeout_ms >= 1 && r->timeout_ms <= s->timeout_ms_max, "timeout_ms is in its bounds");
    fuzz_check(in->prompt_bytes <= GENERATE_PROMPT_MAX && (in->prompt_bytes == 0 || in->prompt != NULL),
               "the prompt is as long as it says, and not too long");
    for (size_t i = 0; i < in->prompt_bytes; i++) { /* all of it is there to be read */
        const volatile uint8_t byte = in->prompt[i];
        (void)byte;
    }
    fuzz_check(o->seed <= SEED_MAX && o->top_k <= BYTE_VALUES, "seed and top_k are in their bounds");
    fuzz_check(o->temperature >= 0.0f && o->temperature <= 100.0f, "the temperature is in its bounds");
    fuzz_check(o->top_p > 0.0f && o->top_p <= 1.0f && o->min_p >= 0.0f && o->min_p <= 1.0f,
               "top_p and min_p are in their bounds");
    fuzz_check(o->repetition_penalty > 0.0f && o->repetition_penalty <= 100.0f,
               "the repetition penalty is in its bounds");
    fuzz_check(in->stops.count <= GENERATE_STOPS_MAX, "stop strings are few");
    for (uint32_t i = 0; i < in->stops.count; i++)
        fuzz_check(in->stops.lengths[i] >= 1 && in->stops.lengths[i] <= GENERATE_STOP_BYTES_MAX,
                   "stop strings are short");
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
