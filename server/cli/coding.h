/* coding.h - compresses or restores the blocks of a text as the daemon's engine thread does, without a daemon: the same
 * coder of streams over an engine of its own. Single threaded. */
#ifndef SERVER_CLI_CODING_H
#define SERVER_CLI_CODING_H

#include <stdbool.h>

#include "engine/engine.h"
#include "server/coding/archive.h"

#define CODING_STREAMS_MAX 64 /* blocks at a time: more make no step faster */
#define CODING_ROWS 256       /* bytes of a pass beside one for each stream */

/* The options of an engine for so many blocks. */
struct engine_options coding_options(uint32_t blocks);
/* Encode or restore all blocks, with an engine that was opened with these options. Prints why and returns
 * CLI_FAILED. */
int coding_run(struct engine *e, const struct model *m, struct archive_blocks *b, bool restores);

#endif
