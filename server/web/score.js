// score.js - the panel that tells how probable a text is under a model, each byte coloured by its probability; its part
// for pictures is surprise.js.
import { Turn, askModel } from "./api.js";
import { colouring, fillLegend, tellBytes } from "./coloured.js";
import { curl, offerCommand } from "./command.js";
import { inBytes, make, showError, showLoading, showStatus } from "./elements.js";
import { offer, offerModels } from "./models.js";
import * as surprise from "./surprise.js";

export { picture } from "./surprise.js"; // those that are dropped are scored

const COLOURED_MAX = 20_000; // bytes: more elements would take long to lay out
const POINT = "Point at a character, or go to it with the arrow keys, to see how likely it was.";

const panel = document.getElementById("score-text");
const form = panel.querySelector("form");
const fields = form.elements;
const text = panel.querySelector(".text");
const legend = panel.querySelector(".legend");
const told = panel.querySelector(".told");
const turn = new Turn();

const request = () => ({ text: fields.text.value, ...fields.model.value && { model: fields.model.value } });

function clear() {
    text.replaceChildren();
    legend.hidden = told.hidden = true;
    showError(panel, null);
}

/** A model without a start embedding has no probability for the first byte, for which nothing stands before it. */
function colour(bytes, log2Probs) {
    const first = bytes.length - log2Probs.length;
    const coloured = colouring();
    const each = (byte, i) => ({ byte, logprob: i < first ? null : log2Probs[i - first] * Math.LN2 });
    text.replaceChildren(...coloured([...bytes.subarray(0, COLOURED_MAX)].map(each)));
    if (bytes.length > COLOURED_MAX)
        text.append(make("p", { className: "note" }, `The first ${inBytes(COLOURED_MAX)} are shown.`));
    legend.hidden = told.hidden = false;
    told.textContent = POINT;
}

function inWords(bits, bytes, log2Probs) {
    const which = `${log2Probs.length < bytes ? "the last" : "these"} ${inBytes(log2Probs.length)}`;
    const stored = inBytes(Math.ceil(-log2Probs.reduce((sum, each) => sum + each, 0) / 8));
    return `${bits.toFixed(3)} bits per byte: the model would compress ${which} to ${stored}.`;
}

async function score() {
    const signal = turn.begin();
    const asked = request();
    clear();
    showStatus(panel, "Scoring…");
    try {
        const response = await askModel("score", asked, signal, () => showLoading(panel));
        const { bits_per_byte: bits, bytes, log2_probs: log2Probs } = await response.json();
        colour(new TextEncoder().encode(asked.text), log2Probs);
        showStatus(panel, inWords(bits, bytes, log2Probs));
    } catch (error) {
        if (signal.aborted) return; // a newer request has begun
        showStatus(panel, "");
        showError(panel, error);
    }
}

export function setModels() {
    offerModels(fields.model, offer(panel, "text-generation", "How likely each byte is appears here."));
    surprise.setModels();
}

form.addEventListener("submit", (event) => {
    event.preventDefault();
    score();
});
fillLegend(legend);
tellBytes(text, told);
offerCommand(panel, () => curl("score", { json: request() }));
