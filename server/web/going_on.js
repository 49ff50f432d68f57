// going_on.js - a text that goes on where its connection broke, or its daemon drained: the same request, from the id of
// the last event. The daemon that answers then need not be the same.
import { askModel, events, pause } from "./api.js";

const TRIES = 8; // without anything new
const FIRST_MS = 200;
const MOST_MS = 5000;

/** May the same request have an answer later? */
const passes = (error) => error.isCut || [502, 503, 504].includes(error.status);

/** The events of POST /generate, the last of which tells how the text ended. Where it breaks off, `waits` is called,
 *  and what is missing asked for until it comes; loading: as askModel's `waits`. */
export async function* generation(asked, signal, loading, waits) {
    let id = null;
    let [left, ms] = [TRIES, FIRST_MS];
    for (;;) {
        let failure = Object.assign(new Error("the daemon drains, and no other goes on"), { isCut: true });
        try {
            const more = id === null ? {} : { from: id };
            const response = await askModel("generate", { ...asked, moves: true, ...more }, signal, loading);
            for await (const event of events(response, (told) => { id = told; })) {
                if (event.finish_reason === "moved") break;
                yield event;
                if ("finish_reason" in event) return;
                [left, ms] = [TRIES, FIRST_MS];
            }
        } catch (error) {
            failure = error;
        }
        if (signal.aborted || id === null || !passes(failure) || left === 0) throw failure;
        left--;
        waits();
        await pause(ms * (1 + Math.random()) / 2, signal); // so that pages which were cut together come back one by one
        ms = Math.min(2 * ms, MOST_MS);
    }
}
