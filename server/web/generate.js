// generate.js - the panel that continues a prompt: text as it is drawn, each byte coloured by its probability if asked.
import { Turn, callModel, events } from "./api.js";
import { colouring, fillLegend, tellBytes } from "./coloured.js";
import { make, offerSeed, showError, showStatus } from "./elements.js";
import { modelsFor, offer, offerModels } from "./models.js";

const POINT = "Point at a character, or go to it with the arrow keys, to see what else was likely there.";
const ALTERNATIVES = 5; // bytes told for each that is drawn
const LOGPROBS_MAX = 262144; // numbers that the daemon tells of one text

const panel = document.getElementById("generate");
const form = panel.querySelector("form");
const fields = form.elements;
const stop = panel.querySelector(".stop");
const text = panel.querySelector(".text");
const keep = panel.querySelector(".keep");
const notes = panel.querySelector(".notes");
const legend = panel.querySelector(".legend");
const told = panel.querySelector(".told");
const turn = new Turn();

/** The request that the form describes; the daemon chooses for empty fields. */
function request() {
    const body = {
        prompt: fields.prompt.value, temperature: Number(fields.temperature.value),
        stream: true, context_overflow: fields.context_overflow.value,
    };
    if (fields.model.value) body.model = fields.model.value;
    for (const name of ["max_tokens", "seed", "top_k", "top_p", "min_p", "repetition_penalty"])
        if (fields[name].value !== "") body[name] = Number(fields[name].value);
    if (fields.colour.checked) {
        const each = Math.floor(LOGPROBS_MAX / body.max_tokens); // the byte that is drawn is one of them
        body.logprobs = Math.max(0, Math.min(ALTERNATIVES, each - 1));
    }
    return body;
}

// What arrived since the last frame: a new layout of the text for each event would take longer than the events do.
let arrived = [];

function append(...nodes) {
    if (arrived.length === 0) requestAnimationFrame(flush);
    arrived.push(...nodes);
}

function flush() {
    if (arrived.length === 0) return;
    const follows = text.scrollTop + text.clientHeight >= text.scrollHeight - 4; // unless the reader has scrolled up
    text.append(...arrived);
    text.normalize(); // neighbouring pieces of text become one
    arrived = [];
    if (follows) text.scrollTop = text.scrollHeight;
}

const inBytes = (count) => `${count.toLocaleString("en")} ${count === 1 ? "byte" : "bytes"}`;

/** What the model's context did to the prompt and the text, as sentences. */
function remark({ finish_reason: reason, usage, model }) {
    const context = modelsFor("text-generation").find(({ id }) => id === model)?.context;
    const its = `the model’s context${context ? ` of ${inBytes(context)}` : ""}`;
    const dropped = usage.prompt_tokens_dropped;
    const said = [];
    if (dropped > 0)
        said.push(`The first ${inBytes(dropped)} of the prompt ${dropped === 1 ? "is" : "are"} beyond ${its}: ` +
            "the model has not seen what stands there.");
    if (reason === "context") said.push(`The text ends because ${its} is full.`);
    return said.join(" ");
}

function finish(event) {
    const { finish_reason: reason, usage, timings, seed } = event;
    const bytes = usage.completion_tokens;
    const rate = timings.decode_ms > 0 ? Math.round(bytes / timings.decode_ms * 1000) : 0;
    const ends = { stop: "ended", length: "full length", timeout: "out of time", cancelled: "cancelled",
        context: "no more context" };
    showStatus(panel, `${inBytes(bytes)}, ${ends[reason] ?? reason}: the first after ` +
        `${timings.first_byte_ms.toFixed(1)} ms, then ${rate.toLocaleString("en")} bytes/s.`);
    notes.textContent = remark(event);
    offerSeed(keep, fields.seed, seed);
}

async function generate() {
    const signal = turn.begin();
    const asked = request();
    const colour = colouring();
    let bytes = 0;
    showError(panel, null);
    showStatus(panel, "Writing…");
    arrived = [];
    text.replaceChildren(make("span", { className: "given" }, asked.prompt));
    legend.hidden = told.hidden = !fields.colour.checked;
    told.textContent = POINT;
    notes.textContent = "";
    keep.hidden = true;
    stop.disabled = false;
    try {
        const response = await callModel("generate", {
            method: "POST", signal, body: JSON.stringify(asked), headers: { "Content-Type": "application/json" },
        }, () => showStatus(panel, "The model is being loaded…"));
        for await (const event of events(response)) {
            if ("text" in event) append(...(event.logprobs ? colour(event.logprobs) : [event.text]));
            bytes += event.tokens ?? 0;
            if ("finish_reason" in event) finish(event);
        }
    } catch (error) {
        if (signal.aborted && !signal.stopped) return; // a new text has begun
        showStatus(panel, signal.aborted ? `Stopped after ${inBytes(bytes)}.` : "");
        if (!signal.aborted) showError(panel, error);
    }
    flush();
    stop.disabled = true;
}

export function setModels() {
    offerModels(fields.model, offer(panel, "text-generation", "The text appears here."));
}

form.addEventListener("submit", (event) => {
    event.preventDefault();
    generate();
});
form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
});
stop.addEventListener("click", () => turn.stop());

fillLegend(legend);
tellBytes(text, told);
