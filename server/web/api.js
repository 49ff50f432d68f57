// api.js - requests to the daemon that this page came from: the key, errors as exceptions, streams of events.

/** Where the daemon is, seen from the browser: a proxy may have put it below a path of its own. */
const ROOT = new URL("..", import.meta.url);

const KEY = "aftd-key"; // in sessionStorage: for this tab only, gone when it is closed

let askForKey = () => {};

/** Set what is called, with the daemon's message, when it requires a key or refuses the one it got. */
export function onKeyWanted(ask) {
    askForKey = ask;
}

export function setKey(key) {
    sessionStorage.setItem(KEY, key);
}

/** The address of one of the daemon's paths, such as "classify" or "page/sample.jpg". */
export const addressOf = (path) => new URL(path, ROOT).href;

/** The message of an error answer, from whichever of the daemon's APIs. */
async function messageOf(response) {
    try {
        const { error } = await response.json();
        return error.message ?? String(error);
    } catch {
        return `the daemon answered ${response.status} ${response.statusText}`;
    }
}

/** fetch() of a path with the key; an error answer is thrown, with the daemon's message and status. */
export async function call(path, options = {}) {
    const headers = new Headers(options.headers);
    const key = sessionStorage.getItem(KEY);
    if (key) headers.set("Authorization", `Bearer ${key}`);
    let response;
    try {
        response = await fetch(addressOf(path), { ...options, headers });
    } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new Error("the daemon cannot be reached");
    }
    if (response.ok) return response;
    const message = await messageOf(response);
    if (response.status === 401) askForKey(message);
    throw Object.assign(new Error(message), { status: response.status });
}

/** The path with those parameters that have a value. */
export function withQuery(path, parameters) {
    const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== "");
    return given.length > 0 ? `${path}?${new URLSearchParams(given)}` : path;
}

/** The events of a stream, parsed. The daemon writes each as one line "data: JSON"; other lines are pings and blanks.
 *  EventSource would do this, but it cannot POST, send a key or be told why it was refused. */
export async function* events(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let finished = false;
    for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines) {
            if (!line.startsWith("data: ")) continue;
            const event = JSON.parse(line.slice("data: ".length));
            if (event.error) throw new Error(event.error.message);
            finished ||= "finish_reason" in event;
            yield event;
        }
    }
    if (!finished) throw new Error("the daemon cut the connection before the end");
}

/** One request of a panel at a time: a new one aborts the one before. So does stop(), which sets the signal's `stopped`
 *  to tell the two apart. */
export class Turn {
    #controller = null;

    begin() {
        this.#controller?.abort();
        this.#controller = new AbortController();
        return this.#controller.signal;
    }

    stop() {
        if (this.#controller) this.#controller.signal.stopped = true;
        this.#controller?.abort();
    }
}

/** An element with properties, `class` and `data-*` included, and children: texts, elements. */
export function make(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
        if (name in element && name !== "list") element[name] = value;
        else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
}

/** The daemon's messages begin with a lower-case letter and have no full stop. */
export const sentence = (message) => `${message[0].toUpperCase()}${message.slice(1)}.`;

/** Show a panel's error; null hides it, and so does an abort by the user. */
export function showError(panel, error) {
    const at = panel.querySelector(".error");
    at.hidden = !error || error.name === "AbortError";
    at.textContent = at.hidden ? "" : sentence(error.message);
}

export function showStatus(panel, text) {
    panel.querySelector(".status").textContent = text;
}

/** A button that puts the seed that was used into its field, so that the same can be generated again. */
export function offerSeed(button, field, seed) {
    button.hidden = field.value !== "";
    button.textContent = `Keep the seed ${seed}`;
    button.onclick = () => {
        field.value = seed;
        button.hidden = true;
        field.focus();
    };
}

/** Of models for one task the name of the daemon's default. */
export const defaultOf = (models) => (models.find((model) => model.default) ?? models[0])?.id;

/** Fill a <select> with these models, keeping the one chosen before; hide it if there is no choice. */
export function offerModels(select, models) {
    const before = select.value;
    select.replaceChildren(...models.map(({ id }) => make("option", { value: id }, id)));
    if (models.length > 0) select.value = models.some(({ id }) => id === before) ? before : defaultOf(models);
    select.closest(".model").hidden = models.length < 2;
}
