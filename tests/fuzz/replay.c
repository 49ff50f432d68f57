/* replay.c - runs a fuzz target on inputs that there are, without libFuzzer and with any compiler: under the address
 * sanitizer of `make asan` this finds again whatever fuzzing once found.
 *
 *     build/asan/fuzz_NAME FILE|FOLDER...     each of the files and of those in the folders; options (-...) are skipped
 *
 * A fault ends the process; the input's path is on standard error then. One thread. */
#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

enum { INPUT_BYTES_MAX = 1 << 20 };

static char running[PATH_MAX + 2]; /* the path of the input that runs, and a line's end */
static unsigned long inputs;

static int replay_file(const char *path)
{
    static uint8_t bytes[INPUT_BYTES_MAX];
    FILE *f = fopen(path, "rb");
    const size_t size = f != NULL ? fread(bytes, 1, sizeof bytes, f) : 0;
    const int is_bad = f == NULL || ferror(f) || size == sizeof bytes;
    if (f != NULL)
        (void)fclose(f);
    if (is_bad) {
        (void)fprintf(stderr, "%s: expected a file of less than %d bytes\n", path, (int)INPUT_BYTES_MAX);
        return -1;
    }
    (void)snprintf(running, sizeof running, "%s\n", path);
    uint8_t *exact = malloc(size); /* so that a byte too many is seen */
    if (exact == NULL && size > 0)
        return -1;
    if (size > 0)
        memcpy(exact, bytes, size);
    (void)LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    inputs++;
    return 0;
}

static int replay(const char *path)
{
    struct stat s;
    if (stat(path, &s) != 0 || !S_ISDIR(s.st_mode))
        return replay_file(path);
    DIR *dir = opendir(path);
    int code = dir != NULL ? 0 : -1;
    for (struct dirent *entry; code == 0 && (entry = readdir(dir)) != NULL;) {
        char inner[PATH_MAX];
        if (entry->d_name[0] != '.')
            code = snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name) < (int)sizeof inner ? replay_file(inner)
                                                                                                   : -1;
    }
    if (dir != NULL)
        (void)closedir(dir);
    return code;
}

/* Of the sanitizers, where they are: what to call before they end the process. */
extern void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void tell_input(void)
{
    (void)!write(STDERR_FILENO, "replaying ", strlen("replaying "));
    (void)!write(STDERR_FILENO, running, strlen(running));
}

static void on_abort(int number)
{
    (void)number;
    tell_input();
}

int main(int argc, char *argv[])
{
    if (__sanitizer_set_death_callback != NULL)
        __sanitizer_set_death_callback(tell_input);
    (void)signal(SIGABRT, on_abort); /* as fuzz_fail does */
    for (int i = 1; i < argc; i++)
        if (argv[i][0] != '-' && replay(argv[i]) != 0)
            return EXIT_FAILURE;
    (void)printf("%lu inputs\n", inputs);
    return inputs > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
