// generate.js - the panel that continues a prompt: text as it is drawn, each byte coloured by its probability if asked.
import { Turn, call, events, make, offerModels, showError, showStatus } from "./api.js";

// Probabilities from which on a byte is of a step, the likeliest first; page.css has .p0 to .p5.
const STEPS = [0.9, 0.6, 0.3, 0.1, 0.02, 0];

const panel = document.getElementById("generate");
const form = panel.querySelector("form");
const fields = form.elements;
const stop = panel.querySelector(".stop");
const text = panel.querySelector(".text");
const legend = panel.querySelector(".legend");
const turn = new Turn();

/** What the form says; a field left empty is left to the daemon. */
function request() {
    const body = { prompt: fields.prompt.value, temperature: Number(fields.temperature.value), stream: true };
    if (fields.model.value) body.model = fields.model.value;
    for (const name of ["max_tokens", "seed", "top_k", "top_p"])
        if (fields[name].value !== "") body[name] = Number(fields[name].value);
    return body;
}

function append(event) {
    // Follow the end unless the reader has scrolled up.
    const follows = text.scrollTop + text.clientHeight >= text.scrollHeight - 4;
    text.append(event.text);
    if (follows) text.scrollTop = text.scrollHeight;
}

function summary({ finish_reason: reason, usage, timings, seed }) {
    const bytes = usage.completion_tokens;
    const rate = timings.decode_ms > 0 ? Math.round(bytes / timings.decode_ms * 1000) : 0;
    const ends = { stop: "ended", length: "full length", timeout: "out of time", cancelled: "cancelled" };
    return `${bytes.toLocaleString("en")} bytes, ${ends[reason] ?? reason}: first after ` +
        `${timings.first_byte_ms.toFixed(1)} ms, then ${rate.toLocaleString("en")} bytes/s. Seed ${seed}.`;
}

async function generate() {
    const signal = turn.begin();
    const asked = request();
    let bytes = 0;
    showError(panel, null);
    showStatus(panel, "Writing…");
    text.replaceChildren(make("span", { className: "given" }, asked.prompt));
    panel.ariaBusy = "true";
    stop.disabled = false;
    try {
        const response = await call("/generate", {
            method: "POST", signal, body: JSON.stringify(asked), headers: { "Content-Type": "application/json" },
        });
        for await (const event of events(response)) {
            if ("text" in event) append(event);
            bytes += event.tokens ?? 0;
            if ("finish_reason" in event) showStatus(panel, summary(event));
        }
    } catch (error) {
        if (signal.aborted && !signal.stopped) return; // a new text has begun
        showStatus(panel, signal.aborted ? `Stopped after ${bytes.toLocaleString("en")} bytes.` : "");
        if (!signal.aborted) showError(panel, error);
    }
    panel.ariaBusy = "false";
    stop.disabled = true;
}

export function setModels(all) {
    const models = all.filter(({ task }) => task === "text-generation");
    offerModels(fields.model, models);
    panel.querySelector(".go").disabled = models.length === 0;
    if (models.length === 0) showStatus(panel, "This daemon has no model that generates text.");
}

form.addEventListener("submit", (event) => {
    event.preventDefault();
    generate();
});
form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
});
stop.addEventListener("click", () => turn.stop());
