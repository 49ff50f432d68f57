/* model_variants.h - text models of kinds that no folder of the repository has, and a folder of models to serve. One
 * thread. A failing step ends the test. */
#ifndef TESTS_SUPPORT_MODEL_VARIANTS_H
#define TESTS_SUPPORT_MODEL_VARIANTS_H

#include <stddef.h>

#include "tests/support/model_copy.h"

/* FOLDER/NAME as a link to DIR/NAME, DIR from the repository's root. */
void model_variants_link(const char *folder, const char *dir, const char *name);
/* The same of whole paths, each by its own last name. */
void model_variants_link_all(const char *folder, const char *const paths[], size_t count);
/* FOLDER/NAME, which is made, of a copy that was changed, which is cleared. */
void model_variants_put(struct model_copy *c, const char *folder, const char *name);

/* FOLDER/starting, a text model with a start embedding and a context of 48, of the tensors of a picture model. */
void model_variants_write_starting(const char *folder);
/* FOLDER/NAME, of the text model SOURCE one whose context has no end, `context` bytes at a time. */
void model_variants_write_endless(const char *folder, const char *name, const char *source, int context);
/* FOLDER/starting and FOLDER/endless, the latter of aft-conv, 6 bytes at a time. */
void model_variants_write(const char *folder);

#endif
