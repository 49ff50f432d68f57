/* position_biases.h - the learnt position biases of an engine's blocks as tiles to look at: see engine_biases_shape and
 * engine_biases_read (engine.h). Constant after engine_open; any thread. */
#ifndef ENGINE_PASS_POSITION_BIASES_H
#define ENGINE_PASS_POSITION_BIASES_H

#include "engine/block/block.h"
#include "engine/core/types.h"

struct engine_biases position_biases_shape(const struct engine_core *e);
void position_biases_read(const struct engine_core *e, uint32_t layer, uint32_t head, float *out);

#endif
