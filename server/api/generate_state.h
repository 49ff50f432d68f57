/* generate_state.h - where the text of a request begins: after a state that the client sends, after one that the
 * daemon has kept, or at a prompt that is yet to be fed. HTTP threads; no state. */
#ifndef SERVER_API_GENERATE_STATE_H
#define SERVER_API_GENERATE_STATE_H

#include <stdbool.h>

#include "config/status.h"
#include "server/api/generate_request.h"
#include "server/operation/stream_snapshot.h"

struct hosted_model;

/* Read a blob for this model, with all checks. *ret is set only on OK: stream_snapshot_clear. Errors: ERR_ARGUMENT
 * (param "state"), ERR_NOMEM. */
enum status generate_state_open(struct stream_snapshot *ret, const uint8_t *blob, size_t size,
                                const struct hosted_model *e, struct error *err);

/* Make the text continue from the request's blob, r->state; or from a copy of `s`, which is of this model. r->in.from
 * becomes that state, the prompt begins with the pending bytes, and sampler options that the request does not give are
 * the state's. Errors: ERR_ARGUMENT (param "state" or "session": the blob is wrong, the context has no room, or the
 * text is too long), ERR_NOMEM. */
enum status generate_state_read(struct generate_request *r, const struct hosted_model *e, struct error *err);
enum status generate_state_continue(struct generate_request *r, const struct hosted_model *e,
                                    const struct stream_snapshot *s, struct error *err);

/* How many bytes at the prompt's end the model gets. The last one stays pending: if there is no other, nothing must be
 * fed, and generate_state_begin does. */
size_t generate_state_kept(const struct generate_input *in, const struct hosted_model *e);
/* The state of a text that has not begun, with the last generate_state_kept bytes of the prompt pending. *ret is set
 * only on OK. Errors: ERR_NOMEM. */
enum status generate_state_begin(struct stream_snapshot *ret, const struct generate_input *in,
                                 const struct hosted_model *e, struct error *err);

/* Options that the request does not give become the state's. An error if they do not go together with the request's. */
enum status generate_state_take_options(struct generate_request *r, const struct sampler_options *from,
                                        struct error *err);

#endif
