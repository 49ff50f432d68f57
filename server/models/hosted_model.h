/* hosted_model.h - a loaded model: its constants, its engine, and who still uses it.
 * It is held by the registry while requests can find it, by its lane in the batcher, and by its users: each request and
 * job that is for it, and whoever lists it for a moment. Once only its lane holds it, nobody can begin to use it any
 * more, and the batcher lets go of it: so a model may be replaced while requests run, which finish on the one that they
 * began with. The last holder to let go frees it. */
#ifndef SERVER_MODELS_HOSTED_MODEL_H
#define SERVER_MODELS_HOSTED_MODEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/status.h"
#include "engine/engine.h"
#include "server/models/model_identity.h"
#include "server/models/models_dir.h"
#include "server/models/precision.h"
#include "weights/model.h"

struct queue;
struct settings;

/* Constant except for the holders, and for the label, which is set when the batcher has the model already. The engine
 * is for the engine thread, engine_info for any. */
struct hosted_model {
    atomic_uint holders; /* sum of enum hosted_holder */
    struct model *model;
    struct engine *engine;
    enum precision_reason precision_by;
    uint32_t version;               /* of a model that has versions, else 0 */
    uint32_t lane;                  /* of the queue, from batcher_serve on */
    struct queue *queue;            /* woken when only the lane holds it; NULL: there is none */
    atomic_uint metrics_label;      /* of {model}, from hosted_model_publish on */
    uint64_t bytes;                 /* of memory: weights, workspace, states of all streams and of prompts */
    int64_t created_s;              /* Unix time of loading */
    uint32_t rows_max;              /* bytes of one pass, all streams together: streams_max and more */
    uint32_t ahead_rows_max;        /* bytes fed ahead in a pass (stream_window.h), beside those; 0: no stream shifts */
    struct model_identity identity; /* of generating models: what their states and archives are checked against */
};

/* Read a model's files, check all that is in them, and open an engine. Any thread: no matrix product is shared among
 * threads here. *ret has one user, the caller, and is set only on OK.
 * Errors: ERR_CONFIG (a setting that does not suit the model), ERR_UNSUPPORTED (a sound model that this build does not
 * serve), ERR_NOMEM and those of model_load, naming the file. */
enum status hosted_model_load(struct hosted_model **ret, const struct found_model *found, const struct settings *s,
                              struct error *err);
/* Announce it in the log and the metrics; to be called before requests can find it. */
void hosted_model_publish(struct hosted_model *e, const struct settings *s);

/* All holders are in one word, so that it is clear who lets go last, and who leaves the model to its lane alone: the
 * number of users, and above it a bit each for the registry and the lane, which hold it at most once. */
enum hosted_holder { HOSTED_BY_USER = 1, HOSTED_BY_REGISTRY = 1 << 24, HOSTED_BY_LANE = 1 << 25 };
void hosted_model_hold(struct hosted_model *e, enum hosted_holder by);
void hosted_model_let_go(struct hosted_model *e, enum hosted_holder by); /* NULL is a no-op */
/* Add a user, who got the model from somebody that holds it; remove one. */
static inline void hosted_model_reference(struct hosted_model *e)
{
    hosted_model_hold(e, HOSTED_BY_USER);
}
static inline void hosted_model_release(struct hosted_model *e)
{
    hosted_model_let_go(e, HOSTED_BY_USER);
}
/* How many users there are. Only a hint while requests can find the model. */
uint32_t hosted_model_users(const struct hosted_model *e);
/* Does only its lane hold it? Then nobody else ever will again. */
bool hosted_model_is_abandoned(const struct hosted_model *e);

#endif
