/* hosted_model.c - see hosted_model.h. */
#include "server/models/hosted_model.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config/settings.h"
#include "server/core/log.h"
#include "server/core/metrics.h"
#include "server/core/queue.h"
#include "server/models/precision.h"

enum { READS_MAX = 4 }; /* attempts, if somebody changes the files meanwhile; copying takes about as long as reading */

/* ---- who holds it ---------------------------------------------------------------------------------------------- */

void hosted_model_hold(struct hosted_model *e, enum hosted_holder by)
{
    assert(by == HOSTED_BY_USER || (atomic_load(&e->holders) & by) == 0);
    (void)atomic_fetch_add_explicit(&e->holders, by, memory_order_relaxed);
}

void hosted_model_let_go(struct hosted_model *e, enum hosted_holder by)
{
    if (e == NULL)
        return;
    assert(by == HOSTED_BY_USER || (atomic_load(&e->holders) & by) != 0);
    struct queue *queue = e->queue; /* outlives *e, which may be gone after the next line */
    const unsigned left = atomic_fetch_sub_explicit(&e->holders, by, memory_order_acq_rel) - by;
    if (left == HOSTED_BY_LANE && queue != NULL)
        queue_wake(queue);
    if (left != 0)
        return;
    engine_close(e->engine); /* before the model, whose config it borrows */
    model_free(e->model);
    free(e);
}

uint32_t hosted_model_users(const struct hosted_model *e)
{
    return atomic_load(&e->holders) & (HOSTED_BY_REGISTRY - 1);
}

bool hosted_model_is_abandoned(const struct hosted_model *e)
{
    return atomic_load_explicit(&e->holders, memory_order_acquire) == HOSTED_BY_LANE;
}

/* ---- loading --------------------------------------------------------------------------------------------------- */

static void warn_of_key(void *arg, const char *message)
{
    const struct found_model *found = arg;
    log_warning("%s: %s", found->path, message);
}

/* Can a picture be drawn to its end? Every sub-pixel except the last is fed; a start embedding takes one more place. */
static enum status check_pictures(const struct hosted_model *e, const char *path, struct error *err)
{
    const struct model_config *c = &e->model->config;
    const struct engine_info *info = engine_info(e->engine);
    const uint64_t total = (uint64_t)3 * c->size[0] * c->size[1], fed = total - (info->starts ? 0 : 1);
    if (c->task != TASK_IMAGE_GENERATION || (total <= COMPLETE_TOTAL_MAX && fed <= info->context))
        return OK;
    return error_set_param(
        err, ERR_UNSUPPORTED, "input.size",
        "%s: input.size is [%u, %u], %llu sub-pixels; this build serves pictures that fit into the context, here "
        "%u, and at most %u",
        path, c->size[0], c->size[1], (unsigned long long)total, info->context, COMPLETE_TOTAL_MAX);
}

/* A row for each stream and those that prompts get besides; if there are only prompts, what suits the matrix
 * products. */
static uint32_t rows_of_pass(const struct settings *s)
{
    const uint32_t most = ENGINE_ROWS_MAX - s->streams_max;
    const uint32_t rows = s->streams_max + (s->pass_rows_max < most ? s->pass_rows_max : most);
    return rows > ENGINE_PROMPT_ROWS ? rows : ENGINE_PROMPT_ROWS;
}

/* Streams that are fed ahead have two states each, and at most two rows more in a pass. */
static uint32_t ahead_rows(const struct model *m, const struct settings *s)
{
    const uint32_t each = 2 * s->streams_max, rows = each > s->pass_rows_max ? each : s->pass_rows_max;
    const uint32_t most = ENGINE_ROWS_MAX - rows_of_pass(s);
    if (!model_config_feeds_ahead(&m->config, m->pos_embed != NULL))
        return 0;
    return rows < most ? rows : most;
}

/* What was made is to be freed even if this fails. */
static enum status read_once(struct hosted_model *e, struct precision_choice *precision, struct found_model *found,
                             const struct settings *s, struct error *err)
{
    struct engine_options options = {
        .isa = strcmp(s->isa, "auto") == 0 ? NULL : s->isa,
        .threads = s->threads,
        .keeps_places = s->pin_threads,
        .pictures_max = s->batch_images_max,
        .tokens_max = s->picture_tokens_max,
        .streams_max = s->streams_max,
        .rows_max = e->rows_max,
    };
    enum status st = model_load_as(&e->model, found->name, found->path, warn_of_key, found, err);
    if (st == OK)
        st = precision_choose(precision, s->precision, found->name, found->path, precision_stored(e->model),
                              options.isa, err);
    if (st == OK && model_config_causal(&e->model->config) && !precision->has_digest) {
        st = precision_digest(precision->digest, found->path, err);
        precision->has_digest = st == OK;
    }
    if (st != OK)
        return st;
    e->ahead_rows_max = ahead_rows(e->model, s);
    options.precision = precision->precision;
    options.rows_max += e->ahead_rows_max;
    options.streams_max *= e->ahead_rows_max > 0 ? 2 : 1;
    return engine_open(&e->engine, e->model, &options, err);
}

/* The files are read one after the other, and some of them twice: for the tensors, and for the digest that identifies
 * states. If one was changed before the last was read, all are read again. *precision has its digest if the model
 * generates. */
static enum status read_files(struct hosted_model *e, struct precision_choice *precision,
                              const struct found_model *found, const struct settings *s, struct error *err)
{
    struct found_model named = *found;
    for (int i = 0; i < READS_MAX; i++) {
        uint8_t before[MODELS_DIR_PRINT_BYTES], after[MODELS_DIR_PRINT_BYTES];
        engine_close(e->engine);
        model_free(e->model);
        e->engine = NULL;
        e->model = NULL;
        (void)models_dir_print(before, found->path, NULL);
        const enum status st = read_once(e, precision, &named, s, err);
        (void)models_dir_print(after, found->path, NULL);
        if (memcmp(before, after, sizeof before) != 0)
            continue;
        if (st == OK && precision->is_outdated)
            log_warning(
                "%s: precision.json does not count, since it is of other files or of an earlier aftd: products in "
                "%s; aft check-precision --write measures again",
                found->path, engine_precision_word(precision->precision));
        return st;
    }
    return error_set(err, ERR_IO, "%s: its files were changed while they were read, %d times in a row", found->path,
                     READS_MAX);
}

enum status hosted_model_load(struct hosted_model **ret, const struct found_model *found, const struct settings *s,
                              struct error *err)
{
    struct precision_choice precision = {.has_digest = false};
    struct hosted_model *e = calloc(1, sizeof *e);
    if (e == NULL)
        return error_set(err, ERR_NOMEM, "%s: no memory to load the model", found->path);
    hosted_model_reference(e); /* the caller is its user */
    e->version = found->version;
    e->rows_max = rows_of_pass(s);
    e->created_s = (int64_t)time(NULL);
    enum status st = read_files(e, &precision, found, s, err);
    if (st == ERR_ARGUMENT) /* all options come from settings */
        st = ERR_CONFIG;
    if (st == OK)
        st = check_pictures(e, found->path, err);
    if (st != OK) {
        hosted_model_release(e);
        return st;
    }
    e->precision_by = precision.by;
    if (model_config_causal(&e->model->config))
        model_identity_init(&e->identity, precision.digest, engine_info(e->engine));
    model_drop_weights(e->model); /* the engine has packed its own */
    e->bytes = engine_info(e->engine)->weight_bytes + engine_info(e->engine)->workspace_bytes;
    if (model_config_causal(&e->model->config))
        e->bytes += (uint64_t)s->parking_mb << 20;
    if (e->model->config.task == TASK_TEXT_GENERATION)
        e->bytes += (uint64_t)s->prefix_cache_mb << 20;
    *ret = e;
    return OK;
}

static double megabytes(uint64_t bytes)
{
    return (double)bytes / 1e6;
}

void hosted_model_publish(struct hosted_model *e, const struct settings *s)
{
    const struct engine_info *info = engine_info(e->engine);
    const struct model_config *c = &e->model->config;
    const bool streams = model_config_causal(c);
    const struct metrics_model labels = {
        .name = e->model->name,
        .task = model_task_name(c->task),
        .mixer = mixer_type_name(c->mixer.type),
        .precision = info->precision,
        .precision_by = precision_reason_word(e->precision_by),
    };
    e->metrics_label = metrics_model_add(&labels);
    metrics_gauge_set(METRIC_MODEL_RESIDENT_BYTES, e->metrics_label, e->bytes);
    metrics_gauge_set(METRIC_STREAM_SLOTS, e->metrics_label, streams ? s->streams_max : 0);
    metrics_gauge_set(METRIC_STREAM_STATE_BYTES, e->metrics_label, streams ? info->stream_bytes : 0);
    char of_streams[64] = "";
    if (streams)
        (void)snprintf(of_streams, sizeof of_streams, ", with %u streams of %.2f MB", s->streams_max,
                       megabytes(info->stream_bytes * (e->ahead_rows_max > 0 ? 2 : 1)));
    log_info("model %s: %s, %s, %s (by its %s), %.2f million parameters; memory: %.2f MB of packed weights, %.2f MB to "
             "work in%s",
             e->model->name, model_task_name(c->task), mixer_type_name(c->mixer.type), info->precision,
             precision_reason_word(e->precision_by), (double)e->model->parameters / 1e6, megabytes(info->weight_bytes),
             megabytes(info->workspace_bytes), of_streams);
}
