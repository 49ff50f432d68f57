/* models_dir.h - the folder of models on the disk: which models are in it, in which version, and whether their files
 * have changed. Any thread; no state.
 *
 *     MODELS_DIR/NAME/config.json ..      a model
 *     MODELS_DIR/NAME/3/config.json ..    one with versions: the folder with the highest number counts
 *
 * A folder that is both counts as the former. Names that begin with a dot are ignored: so a folder can be filled under
 * such a name and then renamed. Folders elsewhere can be models of either kind too (model_sources.h). */
#ifndef SERVER_MODELS_MODELS_DIR_H
#define SERVER_MODELS_MODELS_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "config/limits.h"
#include "config/status.h"

enum { MODELS_DIR_PATH_BYTES = SETTING_TEXT_MAX + 2 * 256 + 2, MODELS_DIR_PRINT_BYTES = 32 }; /* 256: NAME_MAX, NUL */

struct found_model {
    char name[MODEL_NAME_MAX + 1];
    char path[MODELS_DIR_PATH_BYTES];      /* of the folder that has its config.json */
    uint32_t version;                      /* 0: it has none */
    uint8_t print[MODELS_DIR_PRINT_BYTES]; /* of its files' names, sizes and times: changes with them */
};
/* Have the same files been found? */
static inline bool found_model_is_same(const struct found_model *a, const struct found_model *b)
{
    return memcmp(a->print, b->print, sizeof a->print) == 0;
}

/* All models, by name: [*count] of ret.
 * Errors: ERR_IO (the folder), ERR_CONFIG (there is none, or too many), ERR_FORMAT (a name that no model may have, see
 * model_check_name), ERR_NOMEM. */
enum status models_dir_scan(struct found_model ret[REGISTRY_MODELS_MAX], size_t *count, const char *dir,
                            struct error *err);
/* "12" is 12; 0 for anything but a number from 1 on without leading zeros. */
uint32_t models_dir_version(const char *text);

/* A digest that is the same before and after reading a model's folder exactly if nobody has changed a file in it
 * meanwhile; it differs if there was no memory to look, and is set whatever comes of that. Errors: as
 * models_dir_look. */
enum status models_dir_print(uint8_t out[MODELS_DIR_PRINT_BYTES], const char *dir, struct error *err);
/* Is there a model in that folder, itself or as versions? *ret, set only if *there, gets that name, cut to what a name
 * may have; the path fits. Errors: ERR_NOMEM, ERR_IO (descriptors ran out, or the disk failed). */
enum status models_dir_look(struct found_model *ret, bool *there, const char *name, const char *path,
                            struct error *err);

#endif
