/* fuzz_host.c - a Host, an Origin or a setting hosts of any bytes: what is taken for a host is one text, is read again
 * as itself, and is served only if it cannot be somebody else's name. An input is the Host, a NUL, and the setting. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

#include "server/request/hosts.h"

enum { TEXT_MAX = 1024 };

static void check_host(const struct host *h)
{
    struct host again;
    char origin[sizeof "https://" + HOST_NAME_BYTES_MAX + sizeof ":65535"];
    const size_t size = strnlen(h->name, sizeof h->name);
    fuzz_check(size > 0 && size <= HOST_NAME_BYTES_MAX, "a host has a name that ends");
    fuzz_check(strspn(h->name, "abcdefghijklmnopqrstuvwxyz0123456789-_.:[]") == size, "a host has plain characters");
    fuzz_check(host_read(&again, h->name, size) && strcmp(again.name, h->name) == 0 &&
                   again.is_address == h->is_address,
               "a host is read again as itself");
    (void)snprintf(origin, sizeof origin, "https://%s:65535", h->name);
    fuzz_check(host_read_origin(&again, origin) && strcmp(again.name, h->name) == 0, "so is its origin");
}

static bool is_local(const char *name)
{
    static const char end[] = ".localhost";
    const size_t size = strlen(name);
    return strcmp(name, end + 1) == 0 || (size >= sizeof end && strcmp(name + size - (sizeof end - 1), end) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum status allowed[] = {ERR_CONFIG};
    const uint8_t *nul = memchr(data, '\0', size);
    const size_t host_size = nul != NULL ? (size_t)(nul - data) : size;
    const size_t list_size = nul != NULL ? size - host_size - 1 : 0;
    char list[TEXT_MAX] = "auto";
    struct host h, page;
    struct hosts hosts;
    struct error err = {.message = ""};
    char origin[TEXT_MAX];

    (void)snprintf(origin, sizeof origin, "%.*s", (int)(host_size < sizeof origin ? host_size : sizeof origin - 1),
                   (const char *)data);
    if (host_read_origin(&page, origin))
        check_host(&page);
    if (list_size > 0)
        (void)snprintf(list, sizeof list, "%.*s", (int)(list_size < sizeof list ? list_size : sizeof list - 1),
                       (const char *)(nul + 1));
    const enum status st = hosts_init(&hosts, list, "machine.example", &err);
    if (st != OK)
        fuzz_check_error(st, &err, allowed, 1);
    if (!host_read(&h, (const char *)data, host_size))
        return 0;
    check_host(&h);
    if (st == OK && !hosts.any)
        fuzz_check(hosts_serve(&hosts, &h) == (h.is_address || is_local(h.name) || hosts_name(&hosts, &h)),
                   "only names that the setting has are served");
    return 0;
}
