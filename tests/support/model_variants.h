/* model_variants.h - text models of kinds that no folder of the repository has, and a folder of models to serve. One
 * thread. A failing step ends the test. */
#ifndef TESTS_SUPPORT_MODEL_VARIANTS_H
#define TESTS_SUPPORT_MODEL_VARIANTS_H

/* FOLDER/NAME as a link to DIR/NAME, DIR from the repository's root. */
void model_variants_link(const char *folder, const char *dir, const char *name);
/* FOLDER/starting, a text model with a start embedding and a context of 48, of the tensors of a picture model; and
 * FOLDER/endless, one whose context has no end, 6 bytes at a time. */
void model_variants_write(const char *folder);

#endif
