/* fuzz_inference.c - the body of an Open Inference Protocol request: two bytes say where its JSON ends (65535: it is
 * all JSON), the body is behind them. It is refused with a reason, or is a request whose tensors lie in it and can be
 * read. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/limits.h"
#include "config/settings.h"
#include "server/api/inference_inputs.h"
#include "server/api/inference_request.h"

enum { WHOLE = 65535, READ_MAX = 1 << 20 };

static const enum status allowed[] = {ERR_ARGUMENT};

static void read_tensor(const struct inference_tensor *t)
{
    struct error err = {.message = ""};
    enum status st = OK;
    if (t->type == INFERENCE_BYTES) {
        size_t at = 0;
        for (uint64_t i = 0; i < t->elements && st == OK; i++) {
            const uint8_t *bytes;
            size_t size;
            st = inference_next_bytes(t, &at, &bytes, &size, &err);
            for (size_t k = 0; st == OK && k < size; k++) { /* all of it is there to be read */
                const volatile uint8_t byte = bytes[k];
                (void)byte;
            }
        }
    } else if (t->elements <= READ_MAX) {
        uint8_t *pixels = malloc(t->elements + 1);
        fuzz_check(pixels != NULL, "there is memory for pixels");
        st = inference_read_pixels(pixels, t, &err);
        free(pixels);
    }
    if (st != OK)
        fuzz_check_error(st, &err, allowed, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct settings settings;
    struct inference_request r;
    struct error err = {.message = ""};
    char length[16];
    if (size < 2)
        return 0;
    settings_init(&settings);
    const unsigned head = data[0] | (unsigned)data[1] << 8;
    const size_t body_size = size - 2;
    uint8_t *body = malloc(body_size > 0 ? body_size : 1);
    fuzz_check(body != NULL, "there is memory for a body");
    memcpy(body, data + 2, body_size);
    (void)snprintf(length, sizeof length, "%u", head);
    const enum status st = inference_request_parse(&r, body, body_size, head == WHOLE ? NULL : length, &settings, &err);
    if (st != OK) {
        fuzz_check_error(st, &err, allowed, 1);
    } else {
        fuzz_check(r.input_count >= 1 && r.input_count <= INFERENCE_TENSORS_MAX, "inputs are few, and some");
        fuzz_check(r.timeout_ms <= settings.timeout_ms_max, "the timeout is in its bounds");
        for (uint32_t i = 0; i < r.input_count; i++)
            read_tensor(&r.inputs[i]);
        inference_request_clear(&r);
    }
    free(body);
    return 0;
}
