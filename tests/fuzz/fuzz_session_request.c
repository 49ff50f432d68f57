/* fuzz_session_request.c - a body of any bytes that asks for a session is refused with a reason, or is a request of
 * which every value is in its bounds. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "config/settings.h"
#include "server/api/generate_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum status allowed[] = {ERR_ARGUMENT};
    struct settings settings;
    struct generate_request r = {0};
    struct error err = {.message = ""};

    settings_init(&settings);
    const enum status st = generate_request_parse_session(&r, data, size, &settings, &err);
    if (st != OK)
        fuzz_check_error(st, &err, allowed, 1);
    else
        fuzz_check(memchr(r.model, '\0', sizeof r.model) != NULL, "a model's name ends");
    generate_request_clear(&r);
    return 0;
}
