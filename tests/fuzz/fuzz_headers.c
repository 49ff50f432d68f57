/* fuzz_headers.c - headers that say where a request comes from: X-Forwarded-For and Forwarded, the values of each apart
 * by newlines and a NUL between the two; and the whole as traceparent. A client is found that is an address, whatever
 * they say, and only what a trusted proxy has written behind that counts; a traceparent that is taken is printed as
 * one. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "server/http/proxies.h"
#include "server/http/traceparent.h"

static void split(char *text, struct proxies_header *ret)
{
    ret->count = 0;
    for (char *rest = text, *value; ret->count < FORWARDED_HEADERS_MAX && (value = strsep(&rest, "\n")) != NULL;)
        ret->values[ret->count++] = value;
}

static void find(const struct proxies *p, const struct proxies_header *x, const struct proxies_header *standard,
                 char out[INET6_ADDRSTRLEN])
{
    struct proxies_address client = {.family = AF_INET, .bytes = {10, 0, 0, 1}};
    proxies_find_client(p, &client, x, standard);
    proxies_print_address(&client, out);
    fuzz_check(client.family == AF_INET || client.family == AF_INET6, "the client is an address");
}

/* Behind what is given, a trusted proxy names somebody who is not trusted. */
static void find_behind(const struct proxies *p, struct proxies_header h, bool is_standard)
{
    const struct proxies_header none = {.count = 0};
    char out[INET6_ADDRSTRLEN], *line = NULL;
    const char *last = h.count > 0 ? h.values[h.count - 1] : "";
    fuzz_check(asprintf(&line, "%s, %s192.0.2.1", last, is_standard ? "for=" : "") > 0, "there is memory");
    h.count = h.count > 0 ? h.count : 1;
    h.values[h.count - 1] = line;
    find(p, is_standard ? &none : &h, is_standard ? &h : &none, out);
    fuzz_check(strcmp(out, "192.0.2.1") == 0, "what the client writes has no effect behind it");
    free(line);
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
    char out[INET6_ADDRSTRLEN], *text = malloc(size + 2);
    struct proxies_header x, standard;
    fuzz_check(text != NULL, "there is memory");
    fuzz_check(proxies_parse(&p, "10.0.0.0/8,2001:db8::/32", &err) == OK, "the networks are fine");
    memcpy(text, data, size);
    text[size] = text[size + 1] = '\0';
    read_trace(text);
    split(text + strlen(text) + 1 <= text + size ? text + strlen(text) + 1 : text + size, &standard);
    split(text, &x);
    find(&p, &x, &standard, out);
    find_behind(&p, x, false);
    find_behind(&p, standard, true);
    free(text);
    return 0;
}
