// complete.js - the panel that keeps a picture's first rows and has the rest drawn, several times, row by row.
import { Turn, events, withQuery } from "./api.js";
import { curl, offerCommand } from "./command.js";
import { make, offerSeed, showError, showLoading, showStatus } from "./elements.js";
import { offer, offerModels } from "./models.js";
import { Picture } from "./picture.js";
import { sendPicture } from "./sending.js";

const HINT = "The pictures appear here, row by row.";
const ROWS = 16; // of a picture, if the daemon does not say

const panel = document.getElementById("complete");
const form = panel.querySelector("form");
const fields = form.elements;
const stop = panel.querySelector(".stop");
const keep = panel.querySelector(".keep");
const results = panel.querySelector(".results");
const turn = new Turn();
let heights = new Map(); // rows of each model's pictures

export const picture = new Picture(panel, changePicture, (error) => showError(panel, error));

/** What was drawn of the picture before goes. */
function changePicture() {
    turn.cancel();
    results.replaceChildren();
    keep.hidden = true;
    stop.disabled = true;
    showError(panel, null);
    if (heights.size > 0) showStatus(panel, HINT);
    showKept();
}

function showKept() {
    fields.rows.parentElement.hidden = picture.blob === null;
    picture.shade(Number(fields.rows.value) / (heights.get(fields.model.value) ?? ROWS));
}

function newCanvases(count) {
    const canvases = Array.from({ length: count }, (_, i) =>
        make("canvas", { width: 0, height: 0, role: "img", ariaLabel: `Picture ${i + 1} of ${count}, being drawn` }));
    results.replaceChildren(...canvases);
    results.style.setProperty("--columns", Math.ceil(Math.sqrt(count)));
    return canvases;
}

/** Rows of R G B bytes onto the canvas of their picture. */
function drawRows(canvas, { row, rows, width, height, rgb_base64: base64 }) {
    if (canvas.width !== width) Object.assign(canvas, { width, height });
    const rgb = atob(base64);
    const pixels = new ImageData(width, rows);
    for (let i = 0; i < width * rows; i++) {
        for (let c = 0; c < 3; c++) pixels.data[4 * i + c] = rgb.charCodeAt(3 * i + c);
        pixels.data[4 * i + 3] = 255;
    }
    canvas.getContext("2d").putImageData(pixels, 0, row);
    if (row + rows === height) canvas.ariaLabel = canvas.ariaLabel.replace("being drawn", "complete");
}

/** The request that the form describes; without a picture, all rows are drawn. */
function requestPath(more) {
    const rows = picture.blob ? fields.rows.value : 0;
    const [model, n, temperature, seed] = ["model", "n", "temperature", "seed"].map((name) => fields[name].value);
    return withQuery("complete", { model, rows, n, temperature, seed, ...more });
}

async function complete() {
    await picture.ready; // it may just have been chosen
    const signal = turn.begin();
    const canvases = newCanvases(Number(fields.n.value));
    showError(panel, null);
    showStatus(panel, "Drawing…");
    keep.hidden = true;
    stop.disabled = false;
    try {
        const path = requestPath({ stream: true });
        const response = await sendPicture(path, picture.blob, signal, () => showLoading(panel));
        for await (const event of events(response)) {
            if ("rgb_base64" in event) drawRows(canvases[event.index], event);
            if ("finish_reason" in event) {
                showStatus(panel, `${canvases.length} drawn in ${(event.timings.total_ms / 1000).toFixed(1)} s.`);
                offerSeed(keep, fields.seed, event.seed);
            }
        }
    } catch (error) {
        if (signal.aborted && !signal.stopped) return; // new ones have begun
        showStatus(panel, signal.aborted ? "Stopped." : "");
        if (!signal.aborted) {
            results.replaceChildren();
            showError(panel, error);
        }
    }
    stop.disabled = true;
}

export function setModels() {
    const models = offer(panel, "image-generation", HINT);
    heights = new Map(models.map(({ id, input_size: size }) => [id, size?.[0] ?? ROWS]));
    offerModels(fields.model, models);
    if (models.length > 0) fitSlider();
}

/** The slider ends one row before the chosen model's pictures do. */
function fitSlider() {
    fields.rows.max = heights.get(fields.model.value) - 1;
    fields.rows.dispatchEvent(new Event("input", { bubbles: true }));
}

form.addEventListener("submit", (event) => {
    event.preventDefault();
    complete();
});
fields.model.addEventListener("change", fitSlider);
fields.rows.addEventListener("input", showKept);
stop.addEventListener("click", () => turn.stop());
offerCommand(panel, () => curl(requestPath({ scale: 8 }), { file: picture.name, output: "drawn.png" }));
