/* token_map.h - what each patch of a picture is to a block and its heads, as one number each: see engine_batch_want_map
 * (engine.h). */
#ifndef ENGINE_PASS_TOKEN_MAP_H
#define ENGINE_PASS_TOKEN_MAP_H

#include "engine/core/types.h"
#include "engine/pass/block.h"

/* Fill in what of m->out is this layer's, of one picture whose rows are qkv [tokens, dims.qkv] as the block's
 * projections left them; its first `before` tokens are not patches. One thread of a team; allocates nothing. */
void token_maps(const struct engine_map *m, const struct engine_core *e, uint32_t layer, const float *qkv,
                size_t tokens, size_t before);

#endif
