/* decoder.c - see decoder.h. */
#include "engine/pass/decoder.h"

#include <assert.h>
#include <string.h>
#include <time.h>

#include "engine/core/team.h"
#include "engine/pass/token_sums.h"

enum { SUM_COLUMNS = 64 }; /* that one thread adds up at a time */

void decoder_plan(struct decoder *n, struct workspace *w, const struct engine_core *e, const struct model *m,
                  uint32_t streams_max, uint32_t rows_max)
{
    const struct model_config *c = e->config;
    const struct dims *d = &e->dims;
    n->rows_max = rows_max;
    n->context = model_config_limited(c, m->pos_embed != NULL) ? c->context : ENGINE_CONTEXT_UNLIMITED;
    workspace_note(w, &n->tok_embed, (uint64_t)BYTE_VALUES * d->channels, sizeof *n->tok_embed);
    if (m->start_embed != NULL)
        workspace_note(w, &n->start_embed, d->channels, sizeof *n->start_embed);
    if (m->pos_embed != NULL)
        workspace_note(w, &n->pos_embed, (uint64_t)c->context * d->channels, sizeof *n->pos_embed);
    activations_plan(&n->a, w, d, rows_max, e->threads);
    stream_states_plan(&n->states, w, streams_max, c->depth * e->mixer->layer_floats(e));
    workspace_note(w, &n->parts, streams_max, sizeof *n->parts);
    workspace_note(w, &n->bytes, rows_max, sizeof *n->bytes);
    workspace_note(w, &n->positions, rows_max, sizeof *n->positions);
    workspace_note(w, &n->wanted, rows_max, sizeof *n->wanted);
    workspace_note(w, &n->outputs, rows_max, sizeof *n->outputs);
    workspace_note(w, &n->logits, (uint64_t)rows_max * BYTE_VALUES, sizeof *n->logits);
    workspace_note(w, &n->summed, rows_max, sizeof *n->summed);
    workspace_note(w, &n->sums, streams_max, sizeof *n->sums);
}

void decoder_pack(struct decoder *n, const struct engine_core *e, const struct model *m)
{
    rows_pack(n->tok_embed, m->tok_embed, BYTE_VALUES, &e->dims);
    if (m->start_embed != NULL)
        rows_pack(n->start_embed, m->start_embed, 1, &e->dims);
    if (m->pos_embed != NULL)
        rows_pack(n->pos_embed, m->pos_embed, e->config->context, &e->dims);
}

/* List the rows of the pass and move the streams' positions on. Returns how many rows; *wanted is how many logits. */
static size_t lay_out(struct decoder *n, const struct engine_part *parts, size_t count, size_t *wanted)
{
    size_t rows = 0;
    *wanted = 0;
    assert(count <= n->states.count);
    for (size_t i = 0; i < count; i++) {
        const struct engine_part *p = &parts[i];
        const uint32_t position = n->states.position[p->stream];
        assert(p->count >= 1 && rows + p->count <= n->rows_max && p->count <= n->context - position);
        n->parts[i] = (struct stream_part){
            .state = stream_states_at(&n->states, p->stream),
            .first = (uint32_t)rows,
            .count = p->count,
            .position = position,
        };
        for (uint32_t j = 0; j < p->count; j++, rows++) {
            n->bytes[rows] = p->bytes + j;
            n->positions[rows] = position + j;
            if (p->logits != NULL && (p->every || j + 1 == p->count)) {
                n->wanted[*wanted] = (uint32_t)rows;
                n->outputs[(*wanted)++] = p->logits + (p->every ? (size_t)j * BYTE_VALUES : 0);
            }
        }
        n->states.position[p->stream] = position + p->count;
    }
    return rows;
}

/* List the rows whose hidden states are added up, of parts that lay_out has placed. */
static void lay_out_sums(struct decoder *n, const struct engine_part *parts, size_t count)
{
    n->summed_count = n->sums_count = 0;
    for (size_t i = 0; i < count; i++) {
        const struct stream_part *p = &n->parts[i];
        const size_t first = n->summed_count;
        if (parts[i].sums == NULL)
            continue;
        for (uint32_t j = n->start_embed != NULL && p->position == 0 ? 1 : 0; j < p->count; j++)
            n->summed[n->summed_count++] = p->first + j;
        n->sums[n->sums_count++] = (struct part_sums){parts[i].sums, first, n->summed_count - first};
    }
}

/* Team. */
static void embed(const struct decoder *n, const struct engine_core *e, size_t rows)
{
    const size_t channels = e->dims.channels;
#pragma omp for schedule(static)
    for (size_t r = 0; r < rows; r++) {
        const bool start = n->start_embed != NULL && n->positions[r] == 0;
        const float *token = start ? n->start_embed : n->tok_embed + *n->bytes[r] * channels;
        float *x = n->a.x + r * channels;
        if (n->pos_embed == NULL)
            memcpy(x, token, channels * sizeof *x);
        else
            for (size_t c = 0; c < channels; c++)
                x[c] = token[c] + n->pos_embed[n->positions[r] * channels + c];
    }
}

/* Team. The head runs over the wanted rows alone, gathered by the norm. */
static void predict(const struct decoder *n, const struct engine_core *e, size_t wanted)
{
    const float *normed = block_normed(e, &e->norm, &n->a, n->wanted, wanted);
    gemm_run(&e->gemm, &e->head, n->logits, BYTE_VALUES, normed, e->dims.channels, wanted, EPILOGUE_BIAS);
#pragma omp for schedule(static)
    for (size_t i = 0; i < wanted; i++)
        memcpy(n->outputs[i], n->logits + i * BYTE_VALUES, BYTE_VALUES * sizeof *n->logits);
}

/* Team. Nobody needs h any more. */
static void add_up(const struct decoder *n, const struct engine_core *e)
{
    const size_t channels = e->dims.channels, dim = e->dims.dim, slices = (dim + SUM_COLUMNS - 1) / SUM_COLUMNS;
    block_norm(e, &e->norm, n->a.h, n->a.x, n->summed, n->summed_count);
#pragma omp for schedule(static)
    for (size_t i = 0; i < n->sums_count * slices; i++) {
        const struct part_sums *s = &n->sums[i / slices];
        const size_t column = i % slices * SUM_COLUMNS, left = dim - column;
        token_sums_add(s->sums + column, n->a.h + s->first * channels + column, s->count, channels,
                       left < SUM_COLUMNS ? left : SUM_COLUMNS);
    }
}

/* The states of `count` parts for a layer; none after the last one, and where fetching them does not pay. */
static struct fetch states_of(const struct decoder *n, const struct engine_core *e, const struct stream_part *parts,
                              size_t count, uint32_t layer, const float *regions[GEMM_BLOCK])
{
    const size_t floats = e->mixer->layer_floats(e);
    for (size_t i = 0; i < count; i++)
        regions[i] = parts[i].state + layer * floats;
    const bool fetches = layer < e->config->depth && !pass_choice_is_other(&n->fetching);
    return (struct fetch){regions, fetches ? count : 0, floats * sizeof *regions[0], 0};
}

/* Take rows of streams through the halves of blocks that they have left, on the caller alone. A layer's states are
 * fetched during the products before it. Returns how many rows; other threads have taken the rest. */
static size_t step_rows(struct decoder *n, const struct engine_core *e, struct row_range r)
{
    const float *regions[GEMM_BLOCK];
    const struct stream_part *parts = n->parts + r.first; /* each of one row */
    const struct activations own = activations_from(&n->a, &e->dims, r.first);
    struct fetch states = states_of(n, e, parts, r.count, (r.halves + 1) / 2, regions);
    while (r.halves < 2 * e->config->depth) {
        const uint32_t layer = r.halves / 2;
        if (r.halves % 2 == 0) {
            const struct stream_pass pass = {parts, r.count};
            block_before_alone(e, &e->blocks[layer], &own, r.count, &states);
            e->mixer->mix_parts(e, layer, &n->a, &pass); /* `pass` says where its rows are */
            states = states_of(n, e, parts, r.count, layer + 1, regions);
        } else {
            block_after_alone(e, &e->blocks[layer], &own, r.count, &states);
        }
        r.halves++;
        if (r.halves < 2 * e->config->depth)
            row_stealing_offer(&n->share, &r);
    }
    return r.count;
}

/* Team. Each row is a stream's next byte, and there are many: each thread takes its own rows through all blocks, and
 * then rows of others, without waiting in between. each <= GEMM_BLOCK. */
static void step_streams(struct decoder *n, const struct engine_core *e, size_t rows, size_t each)
{
    struct row_range r;
    size_t through = 0;
#pragma omp for schedule(static) nowait
    for (size_t first = 0; first < rows; first += each)
        through += step_rows(n, e, (struct row_range){first, rows - first < each ? rows - first : each, 0});
    while (row_stealing_next(&n->share, through, &r))
        through = step_rows(n, e, r);
#pragma omp barrier
}

/* Team. */
static void run_blocks(struct decoder *n, const struct engine_core *e, size_t rows, const struct stream_pass *pass)
{
    for (uint32_t layer = 0; layer < e->config->depth; layer++) {
        block_before(e, &e->blocks[layer], &n->a, rows);
        e->mixer->mix_streams(e, layer, &n->a, pass);
        block_after(e, &e->blocks[layer], &n->a, rows);
    }
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void decoder_feed(struct decoder *n, const struct engine_core *e, const struct engine_part *parts, size_t count)
{
    size_t wanted;
    const size_t rows = lay_out(n, parts, count, &wanted);
    lay_out_sums(n, parts, count);
    const struct stream_pass pass = {n->parts, count};
    const bool alone = rows == count && e->mixer->mix_parts != NULL;
    const size_t dealt = block_rows_of_task(e, rows), each = alone ? dealt : 0;
    const size_t most = rows < GEMM_ROWS_MAX ? rows : GEMM_ROWS_MAX;
    struct pass_choice *few = dealt == 0 && e->threads > 1 ? &n->team[most - 1] : NULL;
    struct pass_choice *choice = each != 0 ? &n->fetching : few;
    const bool other = choice != NULL && pass_choice_is_other(choice), by_one = other && each == 0;
    const uint64_t began_ns = now_ns();
    row_stealing_begin(&n->share, each != 0 ? rows : 0);
#pragma omp parallel num_threads(by_one ? 1 : e->threads)
    {
        if (each != 0)
            thread_pinning_pin(e->pinning, team_thread());
        else
            thread_pinning_unpin(e->pinning);
        embed(n, e, rows);
        if (each != 0)
            step_streams(n, e, rows, each);
        else
            run_blocks(n, e, rows, &pass);
        predict(n, e, wanted);
        if (n->sums_count > 0)
            add_up(n, e);
    }
    if (choice != NULL) /* as if there were as many rows each time */
        pass_choice_tell(choice, other, (now_ns() - began_ns) * (each != 0 ? n->states.count : most) / rows);
}
