// surprise.js - the part of the panel for scores that tells how probable a picture is under a model that draws such.
import { Turn, withQuery } from "./api.js";
import { curl, offerCommand } from "./command.js";
import { inBytes, showError, showLoading, showStatus } from "./elements.js";
import { Maps, fillScale } from "./maps.js";
import { modelOf, offer, offerModels } from "./models.js";
import { Picture } from "./picture.js";
import { drawSeen } from "./seen.js";
import { sendPicture } from "./sending.js";

const HINT = "How surprising each pixel is appears here.";

const part = document.getElementById("score-picture");
const form = part.querySelector("form");
const fields = form.elements;
const scale = part.querySelector(".scale");
const maps = new Maps(part.querySelector(".maps"), part.querySelector(".told"));
const turn = new Turn();
const ofPicture = document.querySelector("#score [name=what][value=picture]");

export const picture = new Picture(part, changePicture, (error) => showError(part, error));

/** What is shown is about another picture or model. */
function clear() {
    turn.cancel();
    maps.clear();
    scale.hidden = true;
    showError(part, null);
    if (fields.model.options.length > 0) showStatus(part, HINT);
}

/** A picture may have been dropped while texts were to be scored. */
function changePicture() {
    ofPicture.checked = true;
    clear();
}

const requestPath = () => withQuery("score", { model: fields.model.value });

/** Height and width of the model's pictures; null: they are not square, and the daemon's list, which a key may not be
 *  allowed to see, would have to tell. */
function sizeOf({ model, dims }) {
    const size = modelOf(model)?.input_size;
    if (size && 3 * size[0] * size[1] === dims) return size;
    const side = Math.sqrt(dims / 3);
    return Number.isInteger(side) ? [side, side] : null;
}

/** The bits of each sub-pixel; null for the first one of a model without a start embedding: it has no probability. */
function bitsOf({ dims, log2_probs: log2Probs }) {
    const first = dims - log2Probs.length;
    return Array.from({ length: dims }, (_, i) => (i < first ? null : -log2Probs[i - first]));
}

function inWords({ bits_per_dim: bits, dims, log2_probs: log2Probs }) {
    const count = `${log2Probs.length.toLocaleString("en")} sub-pixels`;
    const which = `${log2Probs.length < dims ? "the last" : "these"} ${count}`;
    const stored = inBytes(Math.ceil(-log2Probs.reduce((sum, each) => sum + each, 0) / 8));
    return `${bits.toFixed(3)} bits per sub-pixel: the model would compress ${which} to ${stored}.`;
}

async function show(scored, blob, signal) {
    const size = sizeOf(scored);
    const seen = size && await drawSeen(blob, size).catch(() => null); // the daemon may read what this browser cannot
    if (signal.aborted) return;
    if (size) maps.show(bitsOf(scored), size, seen);
    scale.hidden = size === null;
    showStatus(part, inWords(scored));
}

async function score() {
    await picture.ready; // it may just have been chosen
    clear();
    if (!picture.blob) {
        showError(part, new Error("there is no picture yet: choose one first"));
        return;
    }
    const signal = turn.begin();
    const { blob } = picture;
    showStatus(part, "Scoring…");
    try {
        const response = await sendPicture(requestPath(), blob, signal, () => showLoading(part));
        await show(await response.json(), blob, signal);
    } catch (error) {
        if (signal.aborted) return; // another picture, or a newer request
        showStatus(part, "");
        showError(part, error);
    }
}

export function setModels() {
    offerModels(fields.model, offer(part, "image-generation", HINT));
}

form.addEventListener("submit", (event) => {
    event.preventDefault();
    score();
});
fields.model.addEventListener("change", clear);
fillScale(scale);
offerCommand(part, () => curl(requestPath(), { file: picture.name ?? "picture.jpg" }));
