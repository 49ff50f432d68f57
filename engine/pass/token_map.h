/* token_map.h - what each patch of a picture is to a block, as one number: see engine_batch_want_map (engine.h). */
#ifndef ENGINE_PASS_TOKEN_MAP_H
#define ENGINE_PASS_TOKEN_MAP_H

#include "engine/pass/block.h"

/* out [tokens - before], 0..1: the map of one picture, whose rows are qkv [tokens, dims.qkv] as the block's projections
 * left them; its first `before` tokens are not patches. `head` as in engine.h. One thread of a team; allocates
 * nothing. */
void token_map(float *out, const struct engine_core *e, const float *qkv, size_t tokens, size_t before, uint32_t head);

#endif
