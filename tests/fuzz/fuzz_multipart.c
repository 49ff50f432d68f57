/* fuzz_multipart.c - a request with parts: a NUL ends its Content-Type, the body is behind it. It is taken apart into
 * pieces of itself, or refused with a reason. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "server/fields/multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum status allowed[] = {ERR_ARGUMENT};
    const uint8_t *nul = size > 0 ? memchr(data, '\0', size) : NULL;
    struct multipart m;
    struct error err = {.message = ""};
    if (nul == NULL)
        return 0;
    const size_t body_size = size - (size_t)(nul + 1 - data);
    uint8_t *body = malloc(body_size > 0 ? body_size : 1), *behind = body;
    fuzz_check(body != NULL, "there is memory for a body");
    memcpy(body, nul + 1, body_size);
    enum status st = multipart_begin(&m, (const char *)data, body, body_size, &err);
    for (bool end = false; st == OK && !end;) {
        struct multipart_part p = {.size = 0};
        st = multipart_next(&m, &p, &end, &err);
        if (st != OK || end)
            break;
        fuzz_check(p.bytes >= behind && p.size <= (size_t)(body + body_size - p.bytes), "a part is in the body");
        fuzz_check(strlen(p.name) < sizeof p.name && strlen(p.type) < sizeof p.type, "names end");
        behind = (uint8_t *)p.bytes + p.size;
    }
    if (st != OK)
        fuzz_check_error(st, &err, allowed, 1);
    free(body);
    return 0;
}
