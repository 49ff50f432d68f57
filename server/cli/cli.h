/* cli.h - what the verbs of the aft program share. Single threaded; errors go to standard error as "aft VERB: ...".
 * Exit codes: 0 done, 1 it failed, 2 the command line is wrong. */
#ifndef SERVER_CLI_CLI_H
#define SERVER_CLI_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "config/limits.h"
#include "config/status.h"
#include "engine/engine.h"
#include "engine/picture.h"
#include "weights/model.h"

enum cli_exit { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/*   function  name  arguments  help  example */
#define CLI_VERBS(X)                                                                                                   \
    X(classify, "classify", "MODEL FILE...", "print the likeliest labels of pictures, texts, or folders of them",      \
      "aft classify cifar10-aft-conv ship.jpg")                                                                        \
    X(explain, "explain", "MODEL [PICTURE] -o PNG", "draw what a model looks at in a picture, or its position biases", \
      "aft explain cifar10-aft-conv ship.jpg -o seen.png")                                                             \
    X(generate, "generate", "MODEL [TEXT]", "continue a text byte by byte",                                            \
      "aft generate enwik8-aft-conv 'The history of ' -n 60 -s 1")                                                     \
    X(complete, "complete", "MODEL [PICTURE] -o PNG", "keep the first rows of a picture and draw the rest",            \
      "aft complete cifar10-pixels-16 ship.jpg --samples 9 --scale 12 -o nine.png")                                    \
    X(score, "score", "MODEL FILE", "print the bits per byte of a text, or per sub-pixel of a picture",                \
      "aft score enwik8-aft-conv notes.txt")                                                                           \
    X(compress, "compress", "MODEL [FILE]", "compress a file (standard input) with the model's probabilities",         \
      "aft compress enwik8-aft-conv notes.txt -o notes.aftz")                                                          \
    X(decompress, "decompress", "MODEL [FILE]", "restore what compress made with the same model",                      \
      "aft decompress enwik8-aft-conv notes.aftz -o notes.txt")                                                        \
    X(models, "models", "[DIR...]", "list the models that can be named, or those in folders of models",                \
      "aft models --json")                                                                                             \
    X(inspect, "inspect", "MODEL", "print the architecture, sizes and tensors of a model",                             \
      "aft inspect enwik8-aft-conv")                                                                                   \
    X(verify, "verify", "MODEL...", "compare what models compute with their cases.safetensors",                        \
      "aft verify enwik8-aft-conv --precision int8")                                                                   \
    X(check_precision, "check-precision", "MODEL DATA",                                                                \
      "measure what bf16 and int8 cost in quality; record it for auto",                                                \
      "aft check-precision ./my-model held-out.txt --write")                                                           \
    X(evaluate, "evaluate", "MODEL DATA", "measure how good a model is on data that it was not trained on",            \
      "aft evaluate cifar10-aft-conv pictures/ --confusion table.png")                                                 \
    X(bench, "bench", "[MODEL]", "measure how fast a model runs here", "aft bench enwik8-aft-conv --threads 2")        \
    X(key, "key", "add|list|remove [NAME] --file F", "create, list and revoke the keys that clients of aftd need",     \
      "aft key add alice --file keys.json --models enwik8-aft-conv --rate 10/s")                                       \
    X(load, "load", "URL [PICTURE...]", "put a running daemon under load and report how it answers",                   \
      "aft load http://127.0.0.1:8080 --concurrency 64 --duration 20 --warmup 2")                                      \
    X(health, "health", "", "check whether this machine's daemon is healthy",                                          \
      "aft health --config /etc/aftd/aftd.json --ready --timeout 2")                                                   \
    X(ps, "ps", "", "list the requests that the daemon works on", "aft ps --json")                                     \
    X(cancel, "cancel", "ID...", "end requests that aft ps lists", "aft cancel 5f0c2a")                                \
    X(top, "top", "", "show the daemon's models and requests, every second", "aft top --count 10")

/* One option of a verb: `--name VALUE` or `--name=VALUE`, or `--name` alone for a flag. With a letter (cli_letter) also
 * `-x VALUE` or `-xVALUE`. A choice is one of the words in `argument`, as "shift|stop". */
enum cli_kind { CLI_FLAG, CLI_TEXT, CLI_TEXTS, CLI_CHOICE, CLI_UNSIGNED, CLI_NUMBER };
/* The values of an option that may be given several times. */
struct cli_texts {
    const char *at[CLI_TEXTS_MAX];
    size_t count;
};
struct cli_option {
    const char *name; /* without dashes; NULL ends the list */
    enum cli_kind kind;
    void *value;          /* bool, const char *, struct cli_texts, uint64_t, double */
    double min, max;      /* of a number; at most 2^53 for a whole one */
    const char *argument; /* what help calls its value: "FILE"; NULL for a flag */
    const char *def;      /* what holds without it, for help; NULL: nothing that needs telling */
    const char *help;
};

/* The letter of options of that name, the same in all verbs; 0: none. */
char cli_letter(const char *name);

struct cli_verb {
    const char *name, *arguments, *help, *example;
    int (*run)(int argc, char **argv); /* argv[0] is the verb */
};

#define X(verb, name, arguments, help, example) int cli_##verb(int argc, char **argv);
CLI_VERBS(X)
#undef X
extern const struct cli_verb cli_verbs[];
extern const size_t cli_verb_count;
const struct cli_verb *cli_find_verb(const char *name); /* NULL: there is none */

/* Take the options out of argv, before, between or after the other arguments, up to "--"; *count others (at least min,
 * at most max of them) are left at argv[1..]. CLI_OK to go on; otherwise the message is printed and the caller returns
 * the exit code (CLI_OK with *count < 0 after --help). */
int cli_parse(const struct cli_option *options, int argc, char **argv, int min, int max, int *count);

/* Print that there are too few arguments, which are expected and, unless it is NULL, what was taken as MODEL; returns
 * CLI_USAGE. */
int cli_fail_few(const char *model);

/* Print "aft VERB: message" (verb as set by main) and return CLI_FAILED. */
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
int cli_fail_error(const struct error *err);
/* The same for a wrong command line: points to --help and returns CLI_USAGE. */
int cli_fail_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cli_set_verb(const char *verb);
const char *cli_verb_name(void); /* "": none was set */
/* Print "aft VERB: warning: message". */
void cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What answers `aft VERB --help`; `options` end with a row without a name and live as long as the call. Unless set, it
 * prints them for a terminal. The manual page is made of the same rows by what deploy/man/pages.c sets here. */
typedef void cli_help(const struct cli_verb *verb, const struct cli_option *options);
void cli_set_help(cli_help *help);

/* Flush what was printed to standard output. CLI_FAILED, once and with the reason, if any of it could not be
 * written. */
int cli_flush(void);
/* What aft --version prints. */
void cli_print_version(const char *commit);

/* Print and return CLI_FAILED if one of logits [n] is infinite or not a number: weights that pass every check can still
 * overflow. */
int cli_check_logits(const float *logits, size_t n);

/* MODEL is a folder, or a name under AFTD_MODELS_DIR, weights/models/ or the installed models; of one with versions the
 * highest. Unknown keys of its config are reported on standard error. Errors: ERR_NOT_FOUND, saying where it was looked
 * for, and those of model_load. */
enum status cli_try_model(struct model **ret, const char *name, struct error *err);
/* The same. Prints why and returns NULL if it cannot be loaded, or is not for *task (NULL: any task will do). */
struct model *cli_load_model(const char *name, const enum model_task *task);
/* The folder of the latest model that was loaded. */
const char *cli_model_dir(void);
/* The folders in which models are found by name, in the order in which they are looked through; "": there is none at
 * this place. NULL behind the last. */
const char *cli_models_dir(size_t i);

/* What a verb's engine computes with; zeroed before the options are read. */
struct cli_engine {
    const char *precision; /* NULL: AFTD_PRECISION, else the daemon's default */
    uint64_t threads;      /* 0: one for each processor */
    const char *size;      /* of pictures, as picture_fit_choose takes it */
    uint64_t tokens_max;   /* 0: the usual limit of patches for that */
};
/* Rows of a verb's options; `otherwise` is the precision without the option, for help. */
#define CLI_THREADS_OPTION(threads) \
    {"threads", CLI_UNSIGNED, (threads), 0, ENGINE_THREADS_MAX, "N", "0", "compute threads; 0: one for each processor"},
#define CLI_PRECISION_OPTION(e, otherwise) \
    {"precision",                          \
     CLI_CHOICE,                           \
     (void *)&(e)->precision,              \
     0,                                    \
     0,                                    \
     "f32|bf16|int8|auto",                 \
     (otherwise),                          \
     "precision; auto: the fastest found good enough"},
#define CLI_SIZE_OPTIONS(e)                                                                              \
    {"size", CLI_TEXT, (void *)&(e)->size, 0,                                                            \
     0,      "SIZE",   "the model's",      "what the model sees: HxW, or native for the picture's own"}, \
        {"tokens-max", CLI_UNSIGNED, &(e)->tokens_max, 1, MODEL_TOKENS_MAX, "N", "4096", "limit of patches for --size"},
#define CLI_ENGINE_OPTIONS(e) CLI_THREADS_OPTION(&(e)->threads) CLI_PRECISION_OPTION(e, "$AFTD_PRECISION, or auto")

/* What precision_choose is to be asked for; NULL: the daemon's default. */
const char *cli_precision_setting(const struct cli_engine *with);
/* Where a daemon is asked: CLI_OK if none of these options is given. Prints why not and returns CLI_USAGE. */
int cli_engine_refuse(const struct cli_engine *with);

/* As engine_open, of the latest model loaded, with AFTD_ISA's instruction set and what `with` says. */
enum status cli_try_engine(struct engine **ret, const struct model *m, const struct cli_engine *with,
                           struct engine_options *o, struct error *err);
/* The same; prints why and returns NULL. A NULL model gives NULL, as cli_load_model has said why there is none. */
struct engine *cli_open_engine(const struct model *m, const struct cli_engine *with, struct engine_options *o);

/* What messages call a file that is to be read: "standard input" for "-". */
const char *cli_file_name(const char *path);
/* Read all of a file, or of standard input for "-", at most `max` bytes. Free *ret. Prints why not and returns
 * CLI_FAILED. */
int cli_read(uint8_t **ret, size_t *size, const char *path, size_t max);

/* Read the text that is given or, where `path` is not NULL or the text is "-", in the file or on standard input. Free
 * *ret. Prints why not and returns CLI_FAILED. */
int cli_read_text(uint8_t **ret, size_t *size, const char *text, const char *path, size_t max);

/* A file that a verb writes, and whether it is to say so in JSON. */
struct cli_output {
    const char *path; /* "-": standard output; NULL: none was named */
    bool json;
};
/* The row of a verb's options. */
#define CLI_OUTPUT_JSON_OPTION(output) \
    {"json", CLI_FLAG, &(output)->json, 0, 0, NULL, NULL, "say what was written, as a JSON object on one line"},
/* Prints why and returns CLI_USAGE if there is none, or both would go to standard output. */
int cli_output_check(const struct cli_output *o);
/* Write `bytes` to the file, whole or not at all, or to standard output for "-" (cli_flush reports what is lost there);
 * then, if that is wished, print {"path": input, "bytes_read", "output", "bytes"}. `input` may be NULL; the second is
 * left out if `read` is 0. Prints why and returns CLI_FAILED. */
int cli_output_write(const struct cli_output *o, const void *bytes, size_t size, const char *input, size_t read);
/* The same of a picture. */
int cli_output_png(const struct cli_output *o, const struct picture *p, const char *input);

/* Print an object on a line of its own; taken. NULL: there was no memory for it. Prints why and returns CLI_FAILED if
 * it cannot. */
int cli_print_json(json_t *object);
/* Bytes as a string; what is not UTF-8 in them is replaced. NULL: out of memory. */
json_t *cli_json_text(const void *bytes, size_t size);
/* The row of a verb's options that asks for such lines. */
#define CLI_JSON_OPTION(flag) \
    {"json", CLI_FLAG, (flag), 0, 0, NULL, NULL, "print each answer as a JSON object on one line"},

/* Print text that is not ours, such as a path: control characters, which a terminal would obey and which would end the
 * field of a line, as \xHH. */
void cli_print_field(FILE *to, const char *text);

struct picture_options;
/* A picture's file, decoded for that wish; picture_clear *ret, which is set only on success. Prints why not, with
 * the path, and returns CLI_FAILED. */
int cli_read_picture(struct picture *ret, const char *path, const struct picture_options *options);
struct explanation;
struct picture_fit;
/* A picture's file as a model is to see it, fit, or, NULL, was trained to: *ret is malloc'd, [H, W, 3]. Prints why not
 * and returns CLI_FAILED. */
int cli_read_pixels(uint8_t **ret, const char *path, const struct model_config *c, const struct picture_fit *fit);

/* Run a picture through a classifier's engine, opened for one, at the `size` that cli_engine has: *fit is how the model
 * saw it. `what` is to be seen meanwhile, into *maps, which the caller frees; NULL: nothing. Prints why not and
 * returns CLI_FAILED. */
int cli_see_picture(struct picture_fit *fit, struct engine *e, const struct model *m, const char *size,
                    const struct picture *p, const char *path, const struct explanation *what, float **maps);

/* Is it a terminal that obeys escapes? TERM=dumb says that it does not. */
bool cli_is_terminal(int fd);

/* How far a long run has come, on standard error where that is a terminal: a bar, what is said, and from the first
 * second on the time left. Zeroed it shows nothing. */
struct cli_progress {
    bool on;
    double began, shown; /* when */
    size_t total;
};
struct cli_progress cli_progress_begin(size_t total); /* while another is shown, this one is not */
void cli_progress_show(struct cli_progress *p, size_t done, const char *says); /* done <= total; not too often */
void cli_progress_end(struct cli_progress *p);
/* Wipe away what is drawn, before something else is printed. Messages do so themselves. */
void cli_progress_wipe(void);

/* A wait of which nothing else is known is told there, too: "loading NAME". There is one at a time; to end it again
 * does nothing. */
void cli_wait_begin(const char *says, const char *whom);
void cli_wait_end(void);

/* Colours only for a terminal, and not where NO_COLOR is set (no-color.org). */
bool cli_has_colors(int fd);
#define CLI_RED "\033[31m"
#define CLI_GREEN "\033[32m"
#define CLI_YELLOW "\033[33m"
#define CLI_PLAIN "\033[0m"

/* Does standard output go into a file, so that progress shown while it is written does not get between its lines? Not
 * through a pipe, behind which there may be the same terminal. */
bool cli_output_goes_to_file(void);

#define CLI_SCORE_ROWS 256 /* bytes of a pass: a compromise between memory and full tiles */

/* Sums of -log2 p, also by how many elements came before each: fewer than 64, 512, 4,096, 65,536, or more. */
struct cli_bits {
    double sum;
    size_t count;
    struct {
        double sum;
        size_t count;
    } by_past[5];
};

/* Add those of elements [size] under a generating model, engine opened for one stream and CLI_SCORE_ROWS, in windows of
 * the context, each from scratch; without a start embedding the very first element is left out, and size is at least 2,
 * else 1. A row gives the probability of an element and is fed the one before it, or the start embedding in the first
 * row of a window. `past`, if not 0: of windows of so many, each of which begins by half of the one before it, whose
 * elements are not added again. Prints why and returns CLI_FAILED if a probability is not finite. `progress` counts
 * elements, `before` of which came before these. */
int cli_score_bits(struct cli_bits *to, struct engine *e, const uint8_t *elements, size_t size, size_t past,
                   struct cli_progress *progress, size_t before);

/* Seconds on the monotonic clock. */
double cli_now(void);

#endif
