/* generation.c - see generation.h. */
#include "tests/fuzz/generation.h"

#include <math.h>

#include "tests/fuzz/fuzz.h"

static void check_prompts(const struct generate_input *in)
{
    size_t begin = 0;
    fuzz_check(in->prompt_bytes <= GENERATE_PROMPT_MAX && (in->prompt_bytes == 0 || in->prompt != NULL),
               "the prompts are as long as they say, and not too long");
    fuzz_check(in->prompt_count >= 1 && in->prompt_count <= GENERATE_PROMPTS_MAX, "prompts are few, and some");
    if (in->prompt != NULL) {
        for (uint32_t i = 0; i < in->prompt_count; i++) {
            fuzz_check(in->ends[i] >= begin, "prompts lie one behind another");
            begin = in->ends[i];
        }
        fuzz_check(begin == in->prompt_bytes, "the last prompt ends where all do");
    }
    for (size_t i = 0; i < in->prompt_bytes; i++) { /* all of it is there to be read */
        const volatile uint8_t byte = in->prompt[i];
        (void)byte;
    }
}

static void check_sampler(const struct sampler_options *o)
{
    fuzz_check(o->top_k <= BYTE_VALUES, "top_k is in its bounds");
    fuzz_check(o->temperature >= 0.0f && o->temperature <= 100.0f, "the temperature is in its bounds");
    fuzz_check(o->top_p > 0.0f && o->top_p <= 1.0f && o->min_p >= 0.0f && o->min_p <= 1.0f,
               "top_p and min_p are in their bounds");
    fuzz_check(o->repetition_penalty > 0.0f && o->repetition_penalty <= 100.0f,
               "the repetition penalty is in its bounds");
    fuzz_check(fabsf(o->presence_penalty) <= 2.0f && fabsf(o->frequency_penalty) <= 2.0f,
               "the other penalties are in their bounds");
    for (size_t b = 0; b < BYTE_VALUES; b++)
        fuzz_check(fabsf(o->bias[b]) <= 100.0f && (o->is_biased || o->bias[b] == 0.0f), "biases are in their bounds");
    fuzz_check(sampler_can_draw(o), "a byte can be drawn");
}

void fuzz_check_generation(const struct generate_input *in, const struct settings *s)
{
    const uint64_t samples = (uint64_t)in->prompt_count * in->n;
    check_prompts(in);
    check_sampler(&in->sampler);
    fuzz_check(in->n >= 1 && samples <= GENERATE_SAMPLES_MAX, "texts are few, and some");
    fuzz_check(in->max_tokens <= s->max_tokens_max && samples * in->max_tokens <= GENERATE_TOKENS_MAX,
               "max_tokens is in its bounds, of one text and of all");
    fuzz_check(in->logprobs <= 1 + GENERATE_LIKELIEST_MAX, "the numbers told of a byte are few");
    fuzz_check(in->priority >= QUEUE_PRIORITY_MIN && in->priority <= QUEUE_PRIORITY_MAX,
               "the priority is in its bounds");
    fuzz_check(in->stops.count <= GENERATE_STOPS_MAX, "stop strings are few");
    for (uint32_t i = 0; i < in->stops.count; i++)
        fuzz_check(in->stops.lengths[i] >= 1 && in->stops.lengths[i] <= GENERATE_STOP_BYTES_MAX,
                   "stop strings are short");
}
