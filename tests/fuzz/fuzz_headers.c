/* fuzz_headers.c - headers that say where a request comes from: X-Forwarded-For, values apart by newlines, and the
 * whole as traceparent. A client is found that is an address or the peer, whatever they say, and only what a trusted
 * proxy has written behind that counts; a traceparent that is taken is printed as one. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "server/http/proxies.h"
#include "server/request/traceparent.h"

static void find(const struct proxies *p, char *text, const char *last, char out[INET6_ADDRSTRLEN])
{
    struct proxies_address named = {.family = AF_UNSPEC};
    for (char *rest = text, *value; (value = strsep(&rest, "\n")) != NULL;)
        proxies_read_forwarded(p, &named, value);
    if (last != NULL)
        proxies_read_forwarded(p, &named, last);
    fuzz_check(named.family == AF_INET6 || named.family == AF_UNSPEC, "the client is an address, or the peer");
    proxies_print_address(&named, out);
}

static void read_trace(const char *text)
{
    struct traceparent t, again;
    char printed[TRACEPARENT_BYTES];
    if (!traceparent_parse(&t, text))
        return;
    traceparent_renew_span(&t);
    traceparent_print(&t, printed);
    fuzz_check(traceparent_parse(&again, printed) && strcmp(again.trace, t.trace) == 0, "it is printed as it was read");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct proxies p;
    struct error err;
    char out[INET6_ADDRSTRLEN], *text = malloc(size + 1);
    fuzz_check(text != NULL, "there is memory");
    fuzz_check(proxies_parse(&p, "10.0.0.0/8,2001:db8::/32", &err) == OK, "the networks are fine");
    memcpy(text, data, size);
    text[size] = '\0';
    read_trace(text);
    find(&p, text, NULL, out);
    memcpy(text, data, size);
    find(&p, text, "192.0.2.1, 10.0.0.2", out); /* as trusted proxies write it behind what the client has */
    fuzz_check(strcmp(out, "192.0.2.1") == 0, "what the client writes has no effect behind it");
    free(text);
    return 0;
}
