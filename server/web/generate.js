// generate.js - the panel that continues a prompt: text as it is drawn, each byte coloured by its probability if asked.
import { Turn } from "./api.js";
import { colouring, fillLegend, tellBytes } from "./coloured.js";
import { copyButton, curl, offerCommand } from "./command.js";
import { generation } from "./going_on.js";
import { inBytes, make, offerSeed, showError, showLoading, showStatus } from "./elements.js";
import { modelOf, offer, offerModels } from "./models.js";
import { Revisions } from "./revisions.js";

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
const afterwards = panel.querySelector(".afterwards"); // what can be done with a text
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
        const each = Math.floor(LOGPROBS_MAX / (body.max_tokens ?? 1)); // the byte that is drawn is one of them
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

/** What the model's context did to the prompt and the text, as sentences. */
function remark({ finish_reason: reason, usage, model }) {
    const context = modelOf(model)?.context;
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
    const ends = { length: "maximum", timeout: "out of time", context: "context full" };
    showStatus(panel, `${inBytes(bytes)}${reason === "stop" ? "" : ` (${ends[reason] ?? reason})`}, first byte after ` +
        `${timings.first_byte_ms.toFixed(1)} ms, then ${rate.toLocaleString("en")} bytes/s.`);
    notes.textContent = remark(event);
    offerSeed(keep, fields.seed, seed);
}

async function generate() {
    const signal = turn.begin();
    const asked = request();
    const colour = colouring();
    let bytes = 0;
    let waiting = false;
    const waits = () => {
        waiting = true;
        showStatus(panel, `The text broke off after ${inBytes(bytes)}. Waiting to go on…`);
    };
    if (text.hasChildNodes()) revisions.keep();
    showError(panel, null);
    showStatus(panel, "Writing…");
    arrived = [];
    text.replaceChildren(make("span", { className: "given" }, asked.prompt));
    legend.hidden = told.hidden = !fields.colour.checked;
    told.textContent = POINT;
    notes.textContent = "";
    keep.hidden = true;
    stop.disabled = false;
    afterwards.hidden = true;
    try {
        for await (const event of generation(asked, signal, () => showLoading(panel), waits)) {
            if (waiting) showStatus(panel, "Writing…");
            waiting = false;
            if ("text" in event) append(...(event.logprobs ? colour(event.logprobs) : [event.text]));
            bytes += event.tokens ?? 0;
            if ("finish_reason" in event) finish(event);
        }
    } catch (error) {
        if (signal.aborted && !signal.stopped) return; // another text is shown
        showStatus(panel, signal.aborted ? `Stopped after ${inBytes(bytes)}.` : "");
        if (!signal.aborted) showError(panel, error);
    }
    flush();
    stop.disabled = true;
    afterwards.hidden = false;
}

// ---- a text goes on -----------------------------------------------------------------------------------------------

const revisions = new Revisions(panel.querySelector(".undo"), takeShown, show);

function takeShown() {
    flush();
    return {
        prompt: text.querySelector(".given")?.textContent ?? fields.prompt.value, nodes: [...text.childNodes],
        said: panel.querySelector(".status").textContent, noted: notes.textContent, coloured: !legend.hidden,
    };
}

function show({ prompt, nodes, said, noted, coloured }) {
    turn.cancel();
    arrived = [];
    fields.prompt.value = prompt;
    text.replaceChildren(...nodes);
    notes.textContent = noted;
    legend.hidden = told.hidden = !coloured;
    told.textContent = POINT;
    afterwards.hidden = nodes.length === 0;
    stop.disabled = keep.hidden = true;
    showError(panel, null);
    showStatus(panel, said);
}

/** The prompt and what was written; of a character whose last bytes are missing, nothing. */
const wholeText = () => text.textContent.replace(/\uFFFD+$/, "");

/** All of the text becomes the prompt, to be changed there. */
function edit() {
    const whole = wholeText();
    revisions.keep();
    show({ prompt: whole, nodes: [], said: "Change the prompt, and have it continued.", noted: "", coloured: false });
    fields.prompt.focus();
    fields.prompt.setSelectionRange(whole.length, whole.length);
    fields.prompt.scrollTop = fields.prompt.scrollHeight;
}

function goOn() {
    if (!form.reportValidity()) return;
    const whole = wholeText();
    revisions.keep();
    text.replaceChildren();
    fields.prompt.value = whole;
    form.requestSubmit();
}

/** What the chosen model knows of a text. */
function tellContext() {
    const model = modelOf(fields.model.value), context = model?.context;
    const sees = context ? `The model sees the last ${inBytes(context)}, and`
        : "The model’s texts have no end, and each byte of them takes as long as the first: it";
    panel.querySelector(".sees").textContent =
        model?.mixer ? `${sees} writes in the manner of what it was trained on.` : "";
    fields.context_overflow.parentElement.hidden = model?.mixer && !context;
}

export function setModels() {
    offerModels(fields.model, offer(panel, "text-generation", "The text appears here."));
    tellContext();
}
fields.model.addEventListener("change", tellContext);

form.addEventListener("submit", (event) => {
    event.preventDefault();
    generate();
});
stop.addEventListener("click", () => turn.stop());
afterwards.querySelector(".continue").addEventListener("click", goOn);
afterwards.querySelector(".edit").addEventListener("click", edit);
afterwards.append(copyButton("Copy", () => text.textContent));
offerCommand(panel, () => curl("generate", { json: request(), stream: true }));

fillLegend(legend);
tellBytes(text, told);
