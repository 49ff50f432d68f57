/* coding.c - see coding.h. Blocks are coded by as many streams as there are slots: a stream whose block is done begins
 * the next one. Nothing but speed depends on how many there are, or on how a pass's rows are shared. */
#include "server/cli/coding.h"

#include <stdlib.h>

#include "server/batch/stream_slot.h"
#include "server/cli/cli.h"

struct coder {
    struct stream_model shape;
    struct archive_blocks *blocks;
    bool restores;
    uint32_t next; /* of the blocks, to be begun */
    uint32_t slot_count, running, rows_max;
    struct stream_slot *slots; /* [slot_count]; without a block, one is free */
    uint8_t *windows;
    struct engine_part *parts; /* [slot_count] */
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
    free(c->slots);
    free(c->windows);
    free(c->parts);
    free(c->logits);
}

static bool init(struct coder *c, struct engine *e, const struct model *m, struct archive_blocks *b, bool restores)
{
    const struct engine_info *info = engine_info(e);
    const uint32_t streams = streams_for(b->count);
    *c = (struct coder){
        .shape = {.engine = e, .context = info->context, .window_size = m->config.context, .starts = info->starts},
        .blocks = b,
        .restores = restores,
        .slot_count = streams,
        .rows_max = streams + CODING_ROWS,
        .slots = calloc(streams, sizeof *c->slots),
        .windows = calloc(streams, m->config.context),
        .parts = calloc(streams, sizeof *c->parts),
    };
    c->logits = calloc((size_t)c->rows_max * BYTE_VALUES, sizeof *c->logits);
    if (c->slots == NULL || c->windows == NULL || c->parts == NULL || c->logits == NULL)
        return false;
    for (uint32_t i = 0; i < streams; i++) {
        c->slots[i].index = i;
        c->slots[i].window = c->windows + (size_t)i * c->shape.window_size;
    }
    return true;
}

/* The next block, where there is one. */
static void begin_block(struct coder *c, struct stream_slot *s)
{
    s->coding.block = NULL;
    if (c->next == c->blocks->count)
        return;
    struct coding_block *block = &c->blocks->blocks[c->next++];
    if (c->restores)
        stream_coding_begin_decode(&c->shape, s, block);
    else
        stream_coding_begin_encode(&c->shape, s, block);
    c->running++;
}

/* A row for each stream, the rest to those that wait with more, in order. Returns the number of parts. */
static uint32_t plan_pass(struct coder *c)
{
    uint32_t count = 0, rows = c->rows_max - c->running;
    float *logits = c->logits;
    for (uint32_t i = 0; i < c->slot_count; i++) {
        struct stream_slot *s = &c->slots[i];
        if (s->coding.block == NULL)
            continue;
        const uint32_t waiting = s->length - s->fed, more = waiting - 1 < rows ? waiting - 1 : rows;
        const bool wanted = !c->restores || more + 1 == waiting;
        s->choice = c->restores && wanted ? logits : NULL;
        c->parts[count++] = (struct engine_part){.stream = i,
                                                 .count = more + 1,
                                                 .bytes = s->window + s->fed,
                                                 .every = !c->restores,
                                                 .logits = wanted ? logits : NULL};
        logits += (size_t)(c->restores ? wanted : more + 1) * BYTE_VALUES;
        rows -= more;
    }
    return count;
}

/* True when the part's block is done. */
static bool use_part(const struct coder *c, struct stream_slot *s, const struct engine_part *p)
{
    s->fed += p->count;
    if (!c->restores)
        return stream_coding_encode(&c->shape, s, p->logits, p->count);
    if (s->choice == NULL)
        return false;
    (void)stream_coding_decode(s, s->choice);
    return stream_coding_go_on(&c->shape, s);
}

static size_t count_done(const struct coder *c, size_t finished)
{
    for (uint32_t i = 0; i < c->slot_count; i++)
        finished += c->slots[i].coding.block != NULL ? c->slots[i].coding.coded : 0;
    return finished;
}

/* *finished: bytes of blocks that are done. */
static int run_pass(struct coder *c, size_t *finished)
{
    const uint32_t parts = plan_pass(c);
    engine_feed(c->shape.engine, c->parts, parts);
    for (uint32_t i = 0; i < parts; i++) {
        const struct engine_part *p = &c->parts[i];
        struct stream_slot *s = &c->slots[p->stream];
        if (p->logits != NULL && !cli_check_logits(p->logits, (size_t)(p->every ? p->count : 1) * BYTE_VALUES))
            return CLI_FAILED;
        if (!use_part(c, s, p))
            continue;
        *finished += s->coding.block->text_bytes;
        c->running--;
        begin_block(c, s);
    }
    return CLI_OK;
}

int coding_run(struct engine *e, const struct model *m, struct archive_blocks *b, bool restores)
{
    struct coder c;
    size_t finished = 0;
    int code = init(&c, e, m, b, restores) ? CLI_OK : cli_fail("out of memory");
    struct cli_progress progress = cli_progress_begin(b->text_bytes);
    for (uint32_t i = 0; i < c.slot_count && code == CLI_OK; i++)
        begin_block(&c, &c.slots[i]);
    while (c.running > 0 && code == CLI_OK) {
        code = run_pass(&c, &finished);
        cli_progress_show(&progress, count_done(&c, finished), restores ? "restored" : "compressed");
    }
    cli_progress_end(&progress);
    clear(&c);
    return code;
}
