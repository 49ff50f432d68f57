/* sessions_list.c - which sessions a client has. Under the lock it goes through that client's alone. */
#include "server/session/sessions_inner.h"

size_t sessions_list(struct sessions *s, const struct client_id *who, uint64_t before, size_t most,
                     struct session_info ret[], uint64_t *next, uint64_t *total)
{
    struct session *gone = sessions_enter(s);
    const struct session_holder *holder = session_room_find(&s->room, who);
    const struct session *one = holder != NULL ? holder->newest : NULL;
    size_t count = 0;
    while (one != NULL && before != 0 && one->serial >= before)
        one = one->made_before;
    for (; one != NULL && count < most; one = one->made_before) {
        ret[count++] = sessions_info_locked(s, one);
        *next = one->serial;
    }
    if (one == NULL)
        *next = 0;
    *total = session_room_use(&s->room, who).count;
    sessions_leave(s, gone);
    return count;
}
