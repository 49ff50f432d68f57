/* output.c - a verb's result as a file that is written whole or not at all, or as JSON; see cli.h. Single threaded. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/file.h"
#include "config/json.h"
#include "config/utf8.h"
#include "server/cli/cli.h"
#include "server/media/png.h"

/* Write into something that no other file can replace: a pipe, a device. */
static int write_into(const char *path, const uint8_t *bytes, size_t size)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const bool written = fd >= 0 && file_write_all(fd, bytes, size);
    const int why = errno;
    const bool closed = fd >= 0 && close(fd) == 0;
    return written && closed ? CLI_OK : cli_fail("%s: %s", path, strerror(written ? errno : why));
}

static bool set_mode(int fd, const void *mode)
{
    return fchmod(fd, *(const mode_t *)mode) == 0;
}

static int replace(const char *path, const uint8_t *bytes, size_t size, mode_t mode)
{
    return file_replace(path, bytes, size, set_mode, &mode) ? CLI_OK : cli_fail("%s: %s", path, strerror(errno));
}

static int write_to(const char *path, const void *bytes, size_t size)
{
    struct stat st;
    if (strcmp(path, "-") == 0) {
        (void)fwrite(bytes, 1, size, stdout); /* cli_flush reports what is lost of it */
        return CLI_OK;
    }
    if (stat(path, &st) != 0) {
        const mode_t mask = umask(0);
        (void)umask(mask);
        return errno == ENOENT ? replace(path, bytes, size, 0666 & ~mask) : cli_fail("%s: %s", path, strerror(errno));
    }
    if (S_ISDIR(st.st_mode))
        return cli_fail("%s: %s", path, strerror(EISDIR));
    if (!S_ISREG(st.st_mode))
        return write_into(path, bytes, size);
    if (access(path, W_OK) != 0)
        return cli_fail("%s: %s", path, strerror(errno));
    char *real = realpath(path, NULL); /* a link stays a link */
    if (real == NULL)
        return cli_fail("%s: %s", path, strerror(errno));
    const int code = replace(real, bytes, size, st.st_mode & 07777);
    free(real);
    return code;
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

int cli_print_json(json_t *object)
{
    char *text = json_print(object, JSON_REAL_PRECISION(9));
    json_decref(object);
    if (text == NULL)
        return cli_fail("out of memory");
    (void)printf("%s\n", text);
    free(text);
    return CLI_OK;
}

json_t *cli_json_text(const void *bytes, size_t size)
{
    char *text = malloc(UTF8_GROWTH * size + 1);
    size_t length = 0;
    if (text == NULL)
        return NULL;
    (void)utf8_repair(text, &length, bytes, size, true);
    json_t *value = json_stringn(text, length);
    free(text);
    return value;
}

int cli_output_check(const struct cli_output *o)
{
    if (o->path == NULL)
        return cli_fail_usage("-o is missing: where to write the PNG");
    if (o->json && strcmp(o->path, "-") == 0)
        return cli_fail_usage("--json and the file would both go to standard output: use -o FILE");
    return CLI_OK;
}

int cli_output_write(const struct cli_output *o, const void *bytes, size_t size, const char *input, size_t read)
{
    const int code = write_to(o->path, bytes, size);
    if (code != CLI_OK || !o->json)
        return code;
    json_t *told = json_pack("{s:o}", "path", input != NULL ? cli_json_text(input, strlen(input)) : json_null());
    if (read > 0)
        json_put(told, "bytes_read", json_integer((json_int_t)read));
    json_put(told, "output", cli_json_text(o->path, strlen(o->path)));
    json_put(told, "bytes", json_integer((json_int_t)size));
    return cli_print_json(told);
}

int cli_output_png(const struct cli_output *o, const struct picture *p, const char *input)
{
    char *png = NULL;
    size_t size = 0;
    struct error err;
    if (png_encode(&png, &size, p, &err) != OK)
        return cli_fail_error(&err);
    const int code = cli_output_write(o, png, size, input, 0);
    free(png);
    return code;
}

void cli_print_field(FILE *to, const char *text)
{
    for (; *text != '\0'; text++)
        (void)fprintf(to, (unsigned char)*text < 0x20 || *text == 0x7f ? "\\x%02x" : "%c", (unsigned char)*text);
}
