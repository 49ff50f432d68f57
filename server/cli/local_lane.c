/* local_lane.c - see local_lane.h. */
#include "server/cli/local_lane.h"

#include <stdlib.h>

#include "config/settings.h"
#include "server/operation/stream_lane.h"

int local_lane_open(struct local_lane *l, const char *name, enum model_task task, const struct cli_engine *with,
                    uint32_t streams, bool shifts)
{
    const struct settings settings = {.streams_max = streams, .pass_rows_max = LOCAL_ROWS};
    struct model *m = cli_load_model(name, &task);
    struct error err;
    if (m == NULL)
        return CLI_FAILED;
    /* as in hosted_model_load, a stream that is fed ahead has two states */
    const bool ahead = shifts && model_config_feeds_ahead(&m->config, m->pos_embed != NULL);
    struct engine_options o = {.streams_max = ahead ? 2 * streams : streams,
                               .rows_max = streams + (ahead ? 2 * LOCAL_ROWS : LOCAL_ROWS)};
    struct engine *e = cli_open_engine(m, with, &o);
    struct hosted_model *h = e != NULL ? calloc(1, sizeof *h) : NULL;
    if (h == NULL) {
        engine_close(e);
        model_free(m);
        return e != NULL ? cli_fail("out of memory") : CLI_FAILED;
    }
    *h = (struct hosted_model){.holders = HOSTED_BY_USER, .model = m, .engine = e, .rows_max = streams + LOCAL_ROWS};
    h->ahead_rows_max = ahead ? LOCAL_ROWS : 0;
    l->model = h;
    l->job = job_create(sizeof *l->job);
    if (l->job == NULL || queue_create(&l->queue, 1, 1) != OK)
        return cli_fail("out of memory");
    hosted_model_reference(h);
    job_take_model(l->job, h);
    return stream_lane_create(&l->streams, h, l->queue, &settings, &err) == OK ? CLI_OK : cli_fail_error(&err);
}

void local_lane_close(struct local_lane *l)
{
    job_release(l->job);
    stream_lane_free(l->streams);
    queue_free(l->queue);
    hosted_model_release(l->model);
}

int local_lane_submit(struct local_lane *l, enum status begun)
{
    return begun == OK && job_submit(l->job, l->queue, l->model->lane, UINT64_MAX) == OK ? CLI_OK
                                                                                         : cli_fail("out of memory");
}

bool local_lane_step(struct local_lane *l)
{
    (void)stream_lane_step(l->streams);
    return !job_is_done(l->job);
}

int local_lane_end(struct local_lane *l)
{
    if (!job_is_done(l->job))
        job_cancel(l->job, ERR_CLIENT_GONE);
    while (!job_is_done(l->job))
        (void)local_lane_step(l);
    const struct job_result *r = job_result(l->job);
    return r->status == OK ? CLI_OK : cli_fail("%s", r->error.message);
}
