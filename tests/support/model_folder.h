/* model_folder.h - a models_dir of small models that change while a daemon serves them. One thread. A failing step ends
 * the test. */
#ifndef TESTS_SUPPORT_MODEL_FOLDER_H
#define TESTS_SUPPORT_MODEL_FOLDER_H

/* Copy a model directory's config.json and model.safetensors to FOLDER/NAME, which may exist already and may contain a
 * '/'. */
void model_folder_put(const char *folder, const char *name, const char *source);
/* The same, but broken so that no loader should accept it. */
enum model_fault {
    MODEL_TRUNCATED,   /* the weights end early */
    MODEL_WRONG_SHAPE, /* config.json speaks of another size */
    MODEL_BAD_JSON,    /* config.json ends early */
    MODEL_NO_TENSOR,   /* one is missing */
    MODEL_FAULTS
};
void model_folder_break(const char *folder, const char *name, const char *source, enum model_fault fault);
void model_folder_drop(const char *folder, const char *name);

#endif
