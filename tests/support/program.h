/* program.h - run a program to its end and collect what it wrote; tables of such runs. It computes in f32, as the
 * reference does, by the models of tests/data/models, unless AFTD_PRECISION and AFTD_MODELS_DIR say otherwise. A
 * program that outlives its time is killed. One thread. What keeps a run from happening ends the test; what the program
 * does is the result. */
#ifndef TESTS_SUPPORT_PROGRAM_H
#define TESTS_SUPPORT_PROGRAM_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define PROGRAM_ARGUMENTS_MAX 64

/* Where a program's output goes. */
enum program_sink {
    PROGRAM_COLLECTED, /* a pipe; the result holds all of it */
    PROGRAM_TERMINAL,  /* the same, but the program sees a terminal (raw: bytes are as written) */
    PROGRAM_FULL,      /* /dev/full: every write fails */
    PROGRAM_CLOSED     /* no file descriptor at all */
};

struct program_run {
    /* inputs; zero is fine for all but argv */
    const char *argv[PROGRAM_ARGUMENTS_MAX]; /* the program's path first, NULL after the last */
    const void *input;                       /* [input_size] for standard input, then its end; NULL: none */
    size_t input_size;
    enum program_sink out_sink, err_sink;
    size_t out_max;       /* read this many bytes of standard output, then close it; 0: all */
    bool ignores_sigpipe; /* start it as some parents do: a write to a closed pipe is then an error, not a signal */
    /* the result */
    int exit_code; /* -1 if a signal ended it */
    int signal;    /* 0 if none did */
    bool timed_out;
    double cpu_s;    /* processor time that it took */
    char *out, *err; /* with a NUL behind the last byte */
    size_t out_size, err_size;
};

void program_run(struct program_run *p);
/* Skip the running test, saying why, if PROGRAM_TERMINAL is not possible (a chroot without /dev/pts). */
void program_need_terminal(void);
void program_run_clear(struct program_run *p); /* frees the result; zeroed is fine */

/* The program `name` of the build that the running test belongs to (its folder is two above the test's), or the value
 * of the environment variable if that is set. */
void program_find(char path[PATH_MAX], const char *name, const char *variable);

/* N of AFTD_TEST_SLOW=N, by which time limits are stretched; 1 if it is not set. */
unsigned program_slowness(void);
/* How much of `n` a test does where more of the same finds little: half of it, all with AFTD_TEST_ALL; of that a half
 * in builds that are four times slower (AddressSanitizer's), a fifth in those that are ten times slower
 * (ThreadSanitizer's). */
int test_work(int n);

/* ---- tables of runs -------------------------------------------------------------------------------------------- */

/* A row: what is run and what must result. */
struct program_case {
    const char *name;
    const char *args[PROGRAM_ARGUMENTS_MAX - 2]; /* without the program itself; NULL after the last */
    const char *input;                           /* standard input; NULL: none */
    int exit_code;
    const char *out, *err; /* pieces of standard output and standard error; "": must be empty; NULL: anything */
};

/* Run all rows; the test fails, naming those that went otherwise. */
void program_expect(const char *path, const struct program_case *cases, size_t count);

#endif
