/* evaluation.h - how good a model is on data that it was not trained on, in one precision or in several at a time: what
 * aft evaluate tells and aft check-precision records. Single threaded but for the reading of pictures.
 *
 * Data is, by what the model is for:
 *   pictures to labels   a folder with a folder of pictures for each label, at any depth below it: named as labels, or
 *                        as many as there are labels and, by name, in their order, as ImageNet's are
 *   texts to labels      a folder with a folder of texts for each label likewise, or a file of a JSON object a line,
 *                        with "text" and "label"; of longer texts than the model takes, the beginning
 *   text                 a file, scored in windows as long as the context, each from scratch, or of `past` bytes, of
 *                        each of which the first half is scored in the one before
 *   pictures             a folder of pictures, at any depth */
#ifndef SERVER_CLI_EVALUATION_H
#define SERVER_CLI_EVALUATION_H

#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"
#include "server/cli/cli.h"

enum { EVALUATION_TOP = 5, EVALUATION_BINS = 15, EVALUATION_TABLE_MAX = 4096 };

/* What one engine made of it. Zeroed to begin with. */
struct evaluation {
    size_t samples;       /* pictures or texts; of generators, elements that were scored */
    struct cli_bits bits; /* generators */
    /* classifiers */
    uint32_t classes;
    size_t right, right_of_top; /* the likeliest label, or one of the EVALUATION_TOP likeliest */
    double loss;                /* sum of -ln p of the right label */
    /* [classes, classes]: of each label, how often it was told to be each; NULL with more than EVALUATION_TABLE_MAX. */
    uint32_t *confusion;
    struct evaluation_bin { /* those with a probability of the told label between i and i + 1 EVALUATION_BINS-ths */
        size_t count, right;
        double probability; /* sum */
    } bins[EVALUATION_BINS];
};
void evaluation_clear(struct evaluation *r);

/* How engines have to be opened for it. */
struct engine_options evaluation_engine_options(const struct model *m);

/* Evaluate the model by `count` engines of it, one result each; size: HxW in pixels at which it is to see pictures, or
 * NULL, the trained one; past: of a text, 0 for the context. CLI_FAILED or CLI_USAGE, and why is printed. */
int evaluation_run(struct evaluation *results, struct engine *const *engines, size_t count, const struct model *m,
                   const char *data, const char *size, uint32_t past);

/* Expected calibration error (Guo et al. 2017, eq. 3), 0..1: by how much the probability of the told label is off. */
double evaluation_calibration(const struct evaluation *r);

#endif
