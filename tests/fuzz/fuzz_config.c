/* fuzz_config.c - a configuration file of any bytes, and a flag and a variable of any text, are refused with a
 * reason, or are settings that, printed as a file, are read again as themselves. An input is the file, a NUL, what
 * the flag and the variable have in common, "NAME=VALUE". */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"

enum { TEXT_MAX = 512 };

static char *print(const struct config *c)
{
    char *text = NULL;
    size_t size = 0;
    struct error err;
    FILE *to = open_memstream(&text, &size);
    fuzz_check(to != NULL && config_print(c, to, &err) == OK && fclose(to) == 0, "settings can be printed");
    fuzz_check_utf8(text, size);
    return text;
}

static void check_again(const struct config *c)
{
    struct config again;
    struct error err = {.message = ""};
    char *text = print(c), path[TEXT_MAX];
    (void)snprintf(path, sizeof path, "--config=%s", fuzz_file(text, strlen(text)));
    char *argv[] = {(char[]){"aftd"}, path, NULL};
    if (config_load(&again, 2, argv, NULL, NULL, NULL, &err) != OK)
        fuzz_fail(err.message);
    char *second = print(&again);
    fuzz_check(strcmp(text, second) == 0, "printed settings are read again as themselves");
    free(text);
    free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum status allowed[] = {ERR_CONFIG};
    const uint8_t *nul = memchr(data, '\0', size);
    const size_t file_size = nul != NULL ? (size_t)(nul - data) : size;
    const size_t left = nul != NULL ? size - file_size - 1 : 0;
    char path[TEXT_MAX], flag[TEXT_MAX], variable[TEXT_MAX + sizeof "AFTD_"];
    struct config c;
    struct error err = {.message = ""};
    (void)snprintf(path, sizeof path, "--config=%s", fuzz_file(data, file_size));
    (void)snprintf(flag, sizeof flag, "--%.*s", (int)(left < TEXT_MAX / 2 ? left : TEXT_MAX / 2),
                   nul != NULL ? (const char *)nul + 1 : "");
    (void)snprintf(variable, sizeof variable, "AFTD_%s", flag + 2);
    char *argv[] = {(char[]){"aftd"}, path, left > 0 ? flag : NULL, NULL};
    char *envp[] = {left > 0 ? variable : NULL, NULL};
    const enum status st = config_load(&c, left > 0 ? 3 : 2, argv, envp, NULL, NULL, &err);
    if (st != OK)
        fuzz_check_error(st, &err, allowed, 1);
    else if (c.action == CONFIG_RUN)
        check_again(&c);
    return 0;
}
