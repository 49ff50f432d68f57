/* coding.c - see coding.h. Blocks are coded by as many streams as there are slots: a stream whose block is done begins
 * the next one. Nothing but speed depends on how many there are, or on how a pass's rows are shared. */
#include "server/cli/coding.h"

#include <stdlib.h>

#include "server/cli/cli.h"

/* A stream, and the coder of its block; without a block, it is free. */
struct place {
    struct stream_window window;
    struct block_coder coder;
    const float *choice; /* logits of the pass that the next byte is restored from; NULL: none is */
};

struct coder {
    struct stream_model model;
    struct archive_blocks *blocks;
    bool restores;
    uint32_t next; /* the next block to begin */
    uint32_t place_count, running, rows_max;
    struct place *places; /* [place_count] */
    uint8_t *windows;
    struct engine_part *parts; /* [place_count] */
    float *logits;             /* [rows_max, BYTE_VALUES] */
};

static uint32_t streams_for(uint32_t blocks)
{
    return blocks < 1 ? 1 : blocks < CODING_STREAMS_MAX ? blocks : CODING_STREAMS_MAX;
}

struct engine_options coding_options(uint32_t blocks)
{
    const uint32_t streams = streams_for(blocks);
    return (struct engine_options){.streams_max = streams, .rows_max = streams + CODING_ROWS};
}

static void clear(struct coder *c)
{
    free(c->places);
    free(c->windows);
    free(c->parts);
    free(c->logits);
}

static bool init(struct coder *c, struct engine *e, const struct model *m, struct archive_blocks *b, bool restores)
{
    const uint32_t streams = streams_for(b->count);
    *c = (struct coder){
        .model = stream_model_of(e, m->config.context),
        .blocks = b,
        .restores = restores,
        .place_count = streams,
        .rows_max = streams + CODING_ROWS,
        .places = calloc(streams, sizeof *c->places),
        .windows = calloc(streams, m->config.context),
        .parts = calloc(streams, sizeof *c->parts),
    };
    c->logits = calloc((size_t)c->rows_max * BYTE_VALUES, sizeof *c->logits);
    if (c->places == NULL || c->windows == NULL || c->parts == NULL || c->logits == NULL)
        return false;
    for (uint32_t i = 0; i < streams; i++) {
        c->places[i].window = (struct stream_window){
            .model = &c->model, .stream = i, .elements = c->windows + (size_t)i * c->model.window_size};
    }
    return true;
}

/* Begin the next block, if there is one. */
static void begin_block(struct coder *c, struct place *p)
{
    p->coder.block = NULL;
    if (c->next == c->blocks->count)
        return;
    struct coding_block *block = &c->blocks->blocks[c->next++];
    if (c->restores)
        block_coder_begin_decode(&p->coder, &p->window, block);
    else
        block_coder_begin_encode(&p->coder, &p->window, block);
    c->running++;
}

/* Give a row to each stream and the rest to those that have more to feed, in order. Returns the number of parts. */
static uint32_t plan_pass(struct coder *c)
{
    uint32_t count = 0, rows = c->rows_max - c->running;
    float *logits = c->logits;
    for (uint32_t i = 0; i < c->place_count; i++) {
        struct place *p = &c->places[i];
        const struct stream_window *w = &p->window;
        if (p->coder.block == NULL)
            continue;
        const uint32_t waiting = w->length - w->fed, more = waiting - 1 < rows ? waiting - 1 : rows;
        const bool wanted = !c->restores || more + 1 == waiting;
        p->choice = c->restores && wanted ? logits : NULL;
        c->parts[count++] = (struct engine_part){.stream = i,
                                                 .count = more + 1,
                                                 .bytes = w->elements + w->fed,
                                                 .every = !c->restores,
                                                 .logits = wanted ? logits : NULL};
        logits += (size_t)(c->restores ? wanted : more + 1) * BYTE_VALUES;
        rows -= more;
    }
    return count;
}

/* True when the place's block is done. */
static bool use_part(const struct coder *c, struct place *p, const struct engine_part *part)
{
    p->window.fed += part->count;
    if (!c->restores)
        return block_coder_encode(&p->coder, part->logits, part->count);
    if (p->choice == NULL)
        return false;
    block_coder_decode(&p->coder, p->choice);
    return block_coder_go_on(&p->coder);
}

static size_t count_done(const struct coder *c, size_t finished)
{
    for (uint32_t i = 0; i < c->place_count; i++)
        finished += c->places[i].coder.block != NULL ? c->places[i].coder.coded : 0;
    return finished;
}

/* *finished: bytes of blocks that are done. */
static int run_pass(struct coder *c, size_t *finished)
{
    const uint32_t parts = plan_pass(c);
    engine_feed(c->model.engine, c->parts, parts);
    for (uint32_t i = 0; i < parts; i++) {
        const struct engine_part *part = &c->parts[i];
        struct place *p = &c->places[part->stream];
        if (part->logits != NULL &&
            !cli_check_logits(part->logits, (size_t)(part->every ? part->count : 1) * BYTE_VALUES))
            return CLI_FAILED;
        if (!use_part(c, p, part))
            continue;
        *finished += p->coder.block->text_bytes;
        c->running--;
        begin_block(c, p);
    }
    return CLI_OK;
}

int coding_run(struct engine *e, const struct model *m, struct archive_blocks *b, bool restores)
{
    struct coder c;
    size_t finished = 0;
    int code = init(&c, e, m, b, restores) ? CLI_OK : cli_fail("out of memory");
    struct cli_progress progress = cli_progress_begin(b->text_bytes);
    for (uint32_t i = 0; i < c.place_count && code == CLI_OK; i++)
        begin_block(&c, &c.places[i]);
    while (c.running > 0 && code == CLI_OK) {
        code = run_pass(&c, &finished);
        cli_progress_show(&progress, count_done(&c, finished), restores ? "restored" : "compressed");
    }
    cli_progress_end(&progress);
    clear(&c);
    return code;
}
