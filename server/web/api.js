// api.js - requests to the daemon that this page came from: the key, errors as exceptions, streams of events.

/** Where the daemon is, seen from the browser: a proxy may have put it below a path of its own. */
const ROOT = new URL("..", import.meta.url);

const LOADING_MS = 300_000; // how long a model that is being loaded is waited for
const KEY = "aftd-key"; // in sessionStorage: for this tab only, gone when it is closed

let askForKey = () => {};

/** Set what is called, with the daemon's message, when it requires a key or refuses the one it got. */
export function onKeyWanted(ask) {
    askForKey = ask;
}

export function setKey(key) {
    if (key) sessionStorage.setItem(KEY, key);
    else sessionStorage.removeItem(KEY);
}

/** The address of one of the daemon's paths, such as "classify" or "page/sample.jpg". */
export const addressOf = (path) => new URL(path, ROOT).href;

/** What an error answer of whichever of the daemon's APIs says, as an exception: `status`, and where told `code`,
 *  `param` and the seconds of Retry-After. */
async function errorOf(response) {
    const more = { status: response.status, retryAfter: Number(response.headers.get("Retry-After")) || undefined };
    try {
        const { error } = await response.json();
        return Object.assign(new Error(error.message ?? String(error)), more, { code: error.code, param: error.param });
    } catch { // a proxy's, for one
        return Object.assign(new Error(`the answer was ${response.status} ${response.statusText}`.trim()), more);
    }
}

export const hasKey = () => sessionStorage.getItem(KEY) !== null;

/** fetch() of a path with the key; an error answer is thrown, with the daemon's message. */
export async function call(path, options = {}) {
    const headers = new Headers(options.headers);
    const key = sessionStorage.getItem(KEY);
    if (key) headers.set("Authorization", `Bearer ${key}`);
    let response;
    try {
        response = await fetch(addressOf(path), { ...options, headers });
    } catch (error) {
        if (error.name === "AbortError") throw error;
        throw Object.assign(new Error("the daemon cannot be reached"), { isCut: true });
    }
    if (response.ok) return response;
    const error = await errorOf(response);
    if (error.status === 401) askForKey(error.message);
    throw error;
}

export const pause = (ms, signal) => new Promise((resolve, reject) => {
    setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
});

/** call() for work: while the daemon loads the model that is to do it, asks again, and calls `waits` each time. */
export async function callModel(path, options, waits) {
    const until = performance.now() + LOADING_MS;
    for (;;) {
        try {
            return await call(path, options);
        } catch (error) {
            if (error.code !== "model_loading" || performance.now() > until) throw error;
            waits();
            await pause(1000 * Math.min(error.retryAfter ?? 1, 10), options.signal);
        }
    }
}

/** callModel() with a body of JSON. */
export const askModel = (path, json, signal, waits) => callModel(path, {
    method: "POST", body: JSON.stringify(json), headers: { "Content-Type": "application/json" }, signal,
}, waits);

/** The path with those parameters that have a value. */
export function withQuery(path, parameters) {
    const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== "");
    return given.length > 0 ? `${path}?${new URLSearchParams(given)}` : path;
}

/** The next piece of a stream's text; undefined where the connection breaks or ends. */
async function readPiece(reader) {
    try {
        return (await reader.read()).value;
    } catch (error) {
        if (error.name === "AbortError") throw error;
        return undefined;
    }
}

/** The events of a stream, parsed. The daemon writes each as one line "data: JSON", those of /generate after "id: ID",
 *  which `onId` is given when the event has been taken; other lines are pings and blanks. If the last event does not
 *  come, the exception has `isCut`. EventSource would do this, but it cannot POST, send a key or be told why it was
 *  refused. */
export async function* events(response, onId = () => {}) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let id = null;
    let finished = false;
    for (;;) {
        const value = await readPiece(reader);
        if (value === undefined) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines) {
            if (line.startsWith("id: ")) id = line.slice("id: ".length);
            if (!line.startsWith("data: ")) continue;
            const event = JSON.parse(line.slice("data: ".length));
            if (event.error) throw new Error(event.error.message);
            finished ||= "finish_reason" in event;
            onId(id);
            yield event;
        }
    }
    if (!finished) throw Object.assign(new Error("the daemon cut the connection before the end"), { isCut: true });
}

/** One request of a panel at a time: a new one aborts the one before, cancel() the last one. So does stop(), for
 *  somebody who wants to keep what there is, which sets the signal's `stopped` to tell it apart. */
export class Turn {
    #controller = null;

    begin() {
        this.#controller?.abort();
        this.#controller = new AbortController();
        return this.#controller.signal;
    }

    cancel() {
        this.#controller?.abort();
        this.#controller = null;
    }

    stop() {
        if (this.#controller) this.#controller.signal.stopped = true;
        this.#controller?.abort();
    }
}
