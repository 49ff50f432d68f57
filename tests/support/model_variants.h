/* model_variants.h - text models of kinds that no folder of the repository has, and a folder of models to serve. One
 * thread. A failing step ends the test. */
#ifndef TESTS_SUPPORT_MODEL_VARIANTS_H
#define TESTS_SUPPORT_MODEL_VARIANTS_H

#include <stddef.h>

#include "tests/support/model_copy.h"

/* FOLDER/NAME as a link to DIR/NAME, DIR from the repository's root. */
void model_variants_link(const char *folder, const char *dir, const char *name);
/* The same for whole paths, each linked by its last name. */
void model_variants_link_all(const char *folder, const char *const paths[], size_t count);
/* Make FOLDER/NAME from a copy that was changed, and clear the copy. */
void model_variants_put(struct model_copy *c, const char *folder, const char *name);

/* Make FOLDER/starting, a text model with a start embedding and a context of 48, from the tensors of a picture
 * model. */
void model_variants_write_starting(const char *folder);
/* Make FOLDER/NAME from the text model SOURCE: one without an end of its context, `context` bytes at a time. */
void model_variants_write_endless(const char *folder, const char *name, const char *source, int context);
/* Make FOLDER/NAME from the text model SOURCE: one with a chat_template, whose messages are as these say. */
#define MODEL_VARIANTS_SYSTEM "Be: {content}\n"
#define MODEL_VARIANTS_USER "Q: {content}\n"
#define MODEL_VARIANTS_ASSISTANT "A: {content}\n"
void model_variants_write_chat(const char *folder, const char *name, const char *source, const char *reply,
                               const char *stop);
/* Make FOLDER/starting and FOLDER/endless, the latter from aft-conv, 6 bytes at a time. */
void model_variants_write(const char *folder);

#endif
