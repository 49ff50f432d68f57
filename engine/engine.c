/* engine.c - the boundary: what engine.h promises, put together from the encoder or the decoder and one mixer. */
#include "engine/engine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "config/version.h"
#include "engine/core/processors.h"
#include "engine/pass/decoder.h"
#include "engine/pass/encoder.h"

struct engine {
    struct thread_pinning pinning;
    struct engine_core core;
    struct engine_info info;
    struct workspace workspace;
    struct encoder encoder; /* classifiers */
    struct decoder decoder; /* generators */
};

/* All threads read it all the time: a line of it that held something else too would travel between them. */
static void *make_mixing(size_t bytes)
{
    enum { LINE = 64 };
    const size_t lines = bytes / LINE + 1;
    void *made = aligned_alloc(LINE, lines * LINE);
    if (made != NULL)
        memset(made, 0, lines * LINE);
    return made;
}

/* Patches or bytes of a sequence of the trained size. */
static uint32_t trained_elements(const struct model_config *c)
{
    return model_config_tokens(c) - (c->input == INPUT_IMAGE && c->pooling == POOLING_CLASS_TOKEN ? 1 : 0);
}

enum status engine_describe(struct engine_info *ret, const struct engine_options *o, struct error *err)
{
    const struct kernels *kernels = kernels_select(o->isa);
    if (kernels == NULL)
        return error_set_param(err, ERR_ARGUMENT, "isa",
                               "instruction set \"%s\" is unknown or not supported by this machine", o->isa);
    *ret = (struct engine_info){
        .threads = o->threads != 0 ? o->threads : processors_count(), .isa = kernels->isa, .blas = gemm_library()};
    return OK;
}

void engine_print_versions(FILE *to)
{
    const struct kernels *all[KERNELS_TABLES_MAX + 1];
    char text[128];
    int used = snprintf(text, sizeof text, "%s, of", kernels_select(NULL)->isa);
    kernels_list(all);
    for (size_t i = 0; all[i] != NULL && used >= 0 && (size_t)used < sizeof text; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s %s", i > 0 ? "," : "", all[i]->isa);
    version_print_library("instruction set", text, to);
    version_print_library("BLAS", gemm_library(), to);
#ifdef _OPENMP
    version_print_file("OpenMP", (void (*)(void))omp_set_num_threads, to);
#endif
}

static bool are_in_range(const struct model *m, const struct engine_options *o)
{
    if (model_config_causal(&m->config))
        return o->streams_max >= 1 && o->streams_max <= ENGINE_STATES_MAX && o->rows_max >= 1 &&
               o->rows_max <= ENGINE_ROWS_MAX;
    return o->pictures_max >= 1 && o->pictures_max <= ENGINE_PICTURES_MAX && o->tokens_max <= MODEL_TOKENS_MAX;
}

static enum status pack(struct engine *e, const struct model *m, struct error *err)
{
    struct engine_core *core = &e->core;
    const struct model_config *c = core->config;
    enum status st = OK;
    core->head_keys = mixer_facts(c->mixer.type)->keys == KEYS_PER_HEAD;
    for (uint32_t i = 0; i < core->dims.channels; i++)
        core->head_of[i] = !core->head_keys ? i : i < c->dim ? i / (c->dim / c->mixer.heads) : 0;
#pragma omp parallel for schedule(dynamic) num_threads((int)core->threads)
    for (uint32_t i = 0; i < c->depth; i++) {
        struct error of_block;
        const enum status packed = block_pack(&core->blocks[i], &core->dims, &m->blocks[i], &of_block);
        if (core->mixer->pack != NULL)
            core->mixer->pack(&core->blocks[i], core, &m->blocks[i]);
        if (packed != OK)
#pragma omp critical(pack_failed)
        {
            st = packed;
            if (err != NULL)
                *err = of_block;
        }
    }
    packed_norm_pack(&core->norm, &m->norm, c->dim);
    if (st == OK)
        st = linear_pack(&core->head, 0, &m->head, err);
    if (st == OK && !model_config_causal(c))
        st = encoder_pack(&e->encoder, core, m, err);
    else if (st == OK)
        decoder_pack(&e->decoder, core, m);
    return st == OK ? model_check_unchanged(m, err) : st;
}

/* To OpenBLAS a team of one is not a team: it then starts threads of its own for large products, as many as this. */
static void set_threads(uint32_t threads)
{
#ifdef _OPENMP
    omp_set_num_threads((int)threads);
#else
    (void)threads;
#endif
}

const char *engine_precision_word(enum engine_precision precision)
{
#define X(constant, word) word,
    static const char *const words[] = {ENGINE_PRECISIONS(X)};
#undef X
    return words[precision];
}

static const enum precision precisions[] = {
    [ENGINE_F32] = PRECISION_F32, [ENGINE_BF16] = PRECISION_BF16, [ENGINE_INT8] = PRECISION_INT8};

bool engine_precision_pays(enum engine_precision precision, const char *isa)
{
    const struct kernels *kernels = kernels_select(isa);
    return kernels != NULL && kernels->pays[precisions[precision]];
}

static uint64_t count_macs(const struct model *m)
{
    const struct model_config *c = &m->config;
    const struct block_weights *b = &m->blocks[0];
    const uint64_t outputs = (uint64_t)b->q.out + b->k.out + b->v.out + b->out.out + 2 * (uint64_t)c->hidden;
    const uint64_t row = (uint64_t)c->depth * c->dim * outputs;
    if (model_config_causal(c))
        return row + (uint64_t)c->dim * BYTE_VALUES;
    const uint64_t patch = c->input == INPUT_IMAGE ? (uint64_t)3 * c->patch[0] * c->patch[1] * c->dim : 0;
    return row * model_config_tokens(c) + patch * trained_elements(c) + (uint64_t)c->dim * c->classes;
}

/* The engine must be planned. */
static uint64_t count_mixer_macs(const struct engine_core *e)
{
    const struct model_config *c = e->config;
    const uint32_t tokens = model_config_tokens(c);
    const bool grid = c->input == INPUT_IMAGE && tokens == trained_elements(c);
    const struct sequence_pass trained = {.sequences = 1,
                                          .tokens = tokens,
                                          .height = grid ? c->size[0] / c->patch[0] : 1,
                                          .width = grid ? c->size[1] / c->patch[1] : tokens};
    uint64_t macs = 0;
    for (uint32_t i = 0; i < c->depth; i++)
        macs += e->mixer->macs(e, &e->blocks[i], model_config_causal(c) ? NULL : &trained);
    return macs;
}

static void set_elements_max(struct engine_info *info, const struct model *m, const struct engine_options *o)
{
    const struct model_config *c = &m->config;
    const uint32_t trained = trained_elements(c);
    if (model_config_causal(c))
        return;
    info->fixed_size = c->input == INPUT_IMAGE && model_config_fixed_size(c, m->pos_embed != NULL);
    info->elements_max =
        c->input == INPUT_IMAGE && !info->fixed_size && o->tokens_max > trained ? o->tokens_max : trained;
    if (c->input == INPUT_BYTES)
        info->elements_max = model_text_max(m);
}

/* Room for at `most` rows of the blocks in their precision. */
static void plan_rows(struct engine *e, enum precision precision, uint64_t most)
{
    struct gemm_rows *rows = &e->core.gemm.rows;
    const uint32_t widest = e->core.config->hidden > e->core.dims.dim ? e->core.config->hidden : e->core.dims.dim;
    rows->bytes = gemm_row_bytes(precision, widest);
    workspace_note(&e->workspace, &rows->shared, (most + GEMM_ROWS_MAX - 1) * rows->bytes, 1);
    workspace_note(&e->workspace, &rows->own, (uint64_t)e->core.threads * GEMM_BLOCK * rows->bytes, 1);
}

/* Note all memory. Weights come first, so that info can tell them from the rest. */
static void plan(struct engine *e, const struct model *m, const struct engine_options *o)
{
    struct engine_core *core = &e->core;
    struct workspace *w = &e->workspace;
    const struct model_config *c = core->config;
    const enum precision precision = precisions[o->precision];
    for (uint32_t i = 0; i < c->depth; i++) {
        core->blocks[i].mixing = (char *)core->mixing + i * core->mixer->block_bytes;
        block_plan(&core->blocks[i], w, &core->dims, precision, &m->blocks[i]);
        if (core->mixer->plan != NULL)
            core->mixer->plan(&core->blocks[i], w, core, &m->blocks[i]);
    }
    packed_norm_plan(&core->norm, w, core->dims.channels);
    gemm_plan(&core->head, w, PRECISION_F32, m->head.out, m->head.in);
    e->info.weight_bytes = w->bytes;
    workspace_note(w, &core->head_of, core->dims.channels, sizeof *core->head_of);
    if (!model_config_causal(c)) {
        encoder_plan(&e->encoder, w, core, m, o->pictures_max, trained_elements(c), e->info.elements_max);
    } else {
        decoder_plan(&e->decoder, w, core, m, o->streams_max, o->rows_max);
        e->info.stream_bytes = e->decoder.states.stream_floats * sizeof *e->decoder.states.memory;
        e->info.context = e->decoder.context;
        e->info.starts = m->start_embed != NULL;
    }
    plan_rows(e, precision, model_config_causal(c) ? o->rows_max : e->encoder.rows_max);
    e->info.workspace_bytes = w->bytes - e->info.weight_bytes;
}

enum status engine_open(struct engine **ret, const struct model *m, const struct engine_options *o, struct error *err)
{
    const struct mixer *mixer;
    struct engine *e = NULL;
    struct engine_info info;
    enum status st = engine_describe(&info, o, err);
    if (st != OK)
        return st;
    assert(are_in_range(m, o) && info.threads <= ENGINE_THREADS_MAX);
    gemm_setup();
    mixer = kernels_select(o->isa)->mixers[m->config.mixer.type];
    e = calloc(1, sizeof *e);
    if (e != NULL) {
        row_stealing_open(&e->decoder.share);
        e->core.blocks = calloc(m->config.depth, sizeof *e->core.blocks);
        e->core.mixing = make_mixing(m->config.depth * mixer->block_bytes);
    }
    if (e == NULL || e->core.blocks == NULL || e->core.mixing == NULL) {
        st = error_set(err, ERR_NOMEM, "not enough memory for an engine of %u blocks", m->config.depth);
        goto done;
    }
    workspace_init(&e->workspace);
    e->core.config = &m->config;
    e->core.mixer = mixer;
    e->core.kernels = kernels_select(o->isa);
    e->core.threads = info.threads;
    e->info = info;
    e->core.pinning = &e->pinning;
    if (o->keeps_places)
        thread_pinning_init(&e->pinning, e->core.threads);
    dims_init(&e->core.dims, &m->config);
    set_elements_max(&e->info, m, o);
    plan(e, m, o);
    st = workspace_take(&e->workspace, err);
    if (st == OK)
        st = pack(e, m, err);
    if (st != OK)
        goto done;
    e->core.gemm.kernels = e->core.kernels;
    e->core.gemm.threads = e->core.threads;
    e->info.precision = engine_precision_word(o->precision);
    e->info.dim = m->config.dim;
    e->info.macs = count_macs(m);
    e->info.mixer_macs = count_mixer_macs(&e->core);
    *ret = e;
    e = NULL;
done:
    engine_close(e);
    return st;
}

void engine_close(struct engine *e)
{
    if (e == NULL)
        return;
    row_stealing_close(&e->decoder.share);
    workspace_clear(&e->workspace);
    free(e->core.mixing);
    free(e->core.blocks);
    free(e);
}

const struct engine_info *engine_info(const struct engine *e)
{
    return &e->info;
}

uint32_t engine_batch_max(const struct engine *e, uint32_t elements)
{
    const struct encoder *n = &e->encoder;
    assert(elements > 0 && elements <= n->elements_max);
    const uint64_t fit = n->rows_max / (elements + encoder_rows_before(n));
    return fit < n->pictures_max ? (uint32_t)fit : n->pictures_max;
}

void engine_pictures_begin(struct engine *e, const uint8_t *const pixels[], size_t n, uint32_t height, uint32_t width)
{
    set_threads(e->core.threads);
    encoder_begin(&e->encoder, &e->core, pixels, n, height, width);
}

void engine_texts_begin(struct engine *e, const uint8_t *const texts[], size_t n, uint32_t length)
{
    set_threads(e->core.threads);
    encoder_begin_texts(&e->encoder, &e->core, texts, n, length);
}

bool engine_batch_step(struct engine *e)
{
    return engine_batch_step_part(e, SIZE_MAX);
}

bool engine_batch_step_part(struct engine *e, size_t inputs_max)
{
    set_threads(e->core.threads);
    return encoder_step(&e->encoder, &e->core, inputs_max);
}

size_t engine_batch_left(const struct engine *e)
{
    assert(e->encoder.next_block < e->core.config->depth);
    return e->encoder.pass.sequences - e->encoder.next_sequence;
}

/* Is the batch done, and has it an i-th input? */
static bool is_done(const struct engine *e, size_t i)
{
    return e->encoder.next_block == e->core.config->depth && i < e->encoder.pass.sequences;
}

const float *engine_batch_logits(const struct engine *e, size_t i)
{
    assert(is_done(e, i));
    return e->encoder.logits + i * e->core.head.n;
}

const float *engine_batch_pooled(const struct engine *e, size_t i)
{
    assert(is_done(e, i));
    return e->encoder.pooled + i * e->core.dims.channels;
}

void engine_batch_want_map(struct engine *e, size_t i, const struct engine_map *wanted)
{
    struct encoder *n = &e->encoder;
    assert(e->core.config->input == INPUT_IMAGE && i < n->pictures_max);
    n->maps[i] = wanted != NULL ? *wanted : (struct engine_map){.out = NULL};
    if (wanted == NULL)
        return;
    assert(i < n->pass.sequences && n->next_block == 0 && n->next_sequence == 0);
    assert(wanted->layers >= 1 && wanted->layer + wanted->layers <= e->core.config->depth);
    assert(wanted->head + wanted->heads <= engine_heads(e));
    n->any_map = true;
}

uint32_t engine_heads(const struct engine *e)
{
    return model_config_heads(e->core.config);
}

struct engine_biases engine_biases_shape(const struct engine *e)
{
    const bool has_any = mixer_facts(e->core.config->mixer.type)->biases != BIASES_NONE;
    return has_any ? e->core.mixer->biases_shape(&e->core) : (struct engine_biases){0};
}

void engine_biases_read(const struct engine *e, uint32_t layer, uint32_t head, float *out)
{
    const struct engine_biases shape = engine_biases_shape(e);
    assert(layer < shape.layers && head < (shape.by_position ? shape.height * shape.width : shape.heads));
    e->core.mixer->read_biases(&e->core, layer, head, out);
}

void engine_stream_reset(struct engine *e, uint32_t stream)
{
    assert(stream < e->decoder.states.count);
    e->decoder.states.position[stream] = 0;
}

uint32_t engine_stream_position(const struct engine *e, uint32_t stream)
{
    assert(stream < e->decoder.states.count);
    return e->decoder.states.position[stream];
}

/* Walk over all layers of a state at `position`. */
static void walk(const struct engine *e, float *state, uint32_t position, struct state_walk *w)
{
    const struct mixer *mixer = e->core.mixer;
    const size_t floats = mixer->layer_floats(&e->core);
    for (uint32_t layer = 0; position > 0 && layer < e->core.config->depth; layer++)
        mixer->walk_state(&e->core, layer, state + layer * floats, position, w);
}

void engine_stream_copy(struct engine *e, uint32_t from, uint32_t to)
{
    const struct stream_states *s = &e->decoder.states;
    assert(from != to);
    float *source = stream_states_at(s, from);
    struct state_walk w = {.kind = STATE_COPY, .from = source, .to = stream_states_at(s, to)};
    walk(e, source, s->position[from], &w);
    s->position[to] = s->position[from];
}

size_t engine_stream_saved_bytes(const struct engine *e, uint32_t position)
{
    struct state_walk w = {.kind = STATE_COUNT};
    walk(e, e->decoder.states.memory, position, &w);
    return w.floats * sizeof *e->decoder.states.memory;
}

void engine_stream_save(struct engine *e, uint32_t stream, uint8_t *out)
{
    struct state_walk w = {.kind = STATE_SAVE, .out = out};
    walk(e, stream_states_at(&e->decoder.states, stream), e->decoder.states.position[stream], &w);
}

enum status engine_stream_check(const struct engine *e, uint32_t position, const uint8_t *in, size_t size,
                                struct error *err)
{
    const uint32_t context = e->decoder.context, most = context < ENGINE_POSITION_MAX ? context : ENGINE_POSITION_MAX;
    if (position > most)
        return error_set_param(err, ERR_ARGUMENT, "state", "the state was saved at position %u, expected at most %u",
                               position, most);
    const size_t expected = engine_stream_saved_bytes(e, position);
    if (size != expected)
        return error_set_param(err, ERR_ARGUMENT, "state", "the state has %zu bytes, expected %zu at position %u", size,
                               expected, position);
    struct state_walk w = {.kind = STATE_CHECK, .in = in};
    walk(e, e->decoder.states.memory, position, &w);
    if (w.is_not_a_number)
        return error_set_param(err, ERR_ARGUMENT, "state", "the state contains a number that is not finite");
    return OK;
}

void engine_stream_restore(struct engine *e, uint32_t stream, uint32_t position, const uint8_t *in)
{
    assert(position <= e->decoder.context && position <= ENGINE_POSITION_MAX);
    struct state_walk w = {.kind = STATE_RESTORE, .in = in};
    walk(e, stream_states_at(&e->decoder.states, stream), position, &w);
    e->decoder.states.position[stream] = position;
}

void engine_feed(struct engine *e, const struct engine_part *parts, size_t n)
{
    if (n == 0)
        return;
    set_threads(e->core.threads);
    decoder_feed(&e->decoder, &e->core, parts, n);
}
