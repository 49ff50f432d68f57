/* stream_shares.h - who of those in a lane of streams, or waiting for it, runs: slots are shared out evenly among
 * clients, and what a client has evenly among its jobs (max-min fairness: nobody's share can grow but at the cost of
 * one that is no larger).
 *
 * A free slot goes to the client that has fewest. When none is free, a stream is parked for one who has at least two
 * fewer: of the client with most, or of the client's own job with most, the one that came last. So a job's further
 * samples take what nobody else waits for, and give it back. Streams that are parked take turns with those of their
 * own client that run, and clients that have no slot with all others, each for STREAM_TURN_NS. One client's jobs that
 * wait in the queue while each of the others has a single stream stay first in, first out.
 *
 * Room to park is for newcomers: who takes a slot from another may have no more in the lane than could still come into
 * it. Thus half of what is left stays for the next client, however many come.
 * Engine thread only; nothing here allocates after the start. */
#ifndef SERVER_OPERATION_STREAM_SHARES_H
#define SERVER_OPERATION_STREAM_SHARES_H

#include <stdbool.h>
#include <stdint.h>

#include "server/core/client_id.h"

struct stream_slots;

enum { STREAM_NONE = -1 };

/* Of a moment; what each client has is with its first job in the places (struct stream_share). */
struct stream_shares {
    struct stream_slots *slots;
    uint32_t end; /* of the jobs */
    uint64_t now_ns;
    int64_t most; /* that a client in the queue may have for its job to be next */
};

/* Count anew, after anything has changed in the lane; to be called before the functions below. `p` outlives it. */
void stream_shares_count(struct stream_shares *s, struct stream_slots *p, uint64_t now_ns);

/* How many slots the client has that has fewest of those with any. UINT32_MAX: none has. */
uint32_t stream_shares_fewest(const struct stream_shares *s);

/* Slots that the client has now. */
uint32_t stream_shares_running(const struct stream_shares *s, const struct client_id *client);
/* The same; below 0: a job of it that waits in the queue must go on waiting, for want of a slot, or because others in
 * the lane come before (stream_shares_put_first). As queue_load, with the shares. */
int64_t stream_shares_load(void *shares, const struct client_id *client);
/* Make room for the first sample of such a job: the slot that a stream is to be parked from, or STREAM_NONE. */
int stream_shares_slot_for(const struct stream_shares *s, const struct client_id *client);

/* The next sample of a job in the lane that is to run, if any waits: which one, and the slot that a stream is to be
 * parked from before (STREAM_NONE: one is free). False: all is as it should be. */
struct stream_move {
    uint32_t owner; /* of the sample, among the places' jobs */
    int parked;     /* the sample, among those parked; STREAM_NONE: the job's next that has not begun */
    int slot;
};
bool stream_shares_next(const struct stream_shares *s, struct stream_move *ret);
/* What stream_shares_next gave comes before the jobs of clients that have more, and before those of clients that have
 * as much if its job has nothing running either. */
void stream_shares_put_first(struct stream_shares *s, const struct stream_move *next);
/* The next one that runs in turn with others. False: nobody's turn has come. */
bool stream_shares_turn(const struct stream_shares *s, struct stream_move *ret);

#endif
