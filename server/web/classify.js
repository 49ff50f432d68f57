// classify.js - the panel that classifies pictures with one or more models, and shows what they look at.
import { Turn, withQuery } from "./api.js";
import { curl, offerCommand } from "./command.js";
import { make, reveal, showError, showLoading, showStatus } from "./elements.js";
import { recall } from "./keep.js";
import { bars, inShort, knowledge } from "./labels.js";
import { MANY_MAX, classifyMany } from "./many.js";
import { defaultOf, offer, title } from "./models.js";
import { Picture } from "./picture.js";
import { sendPicture } from "./sending.js";

const LABELS = 5;

// The views that X-Explain-View names, in words; brightness is relative to the largest value in the picture.
const VIEWS = {
    keys: "Weight of each patch’s key",
    tokens: "Size of each patch’s key",
};

const HINT = "Labels appear here.";
const panel = document.getElementById("classify");
const choices = panel.querySelector(".models");
const explain = panel.querySelector(".explain");
const layers = panel.querySelector(".layers");
const results = panel.querySelector(".results");
const turn = new Turn();
let shown = null; // the picture that the results are about

let files = []; // several pictures, in the place of one

export const picture = new Picture(panel, () => takeMany([]), (error) => showError(panel, error), takeMany);

function takeMany(given) {
    files = given.slice(0, MANY_MAX);
    classify();
    if (picture.blob || files.length > 0) reveal(panel);
    if (given.length > MANY_MAX)
        showError(panel, new Error(`of these ${given.length} files the first ${MANY_MAX} are taken`));
}

/** From the Server-Timing header: the milliseconds that the engine took. */
function computeTime(response) {
    const found = /compute;dur=([\d.]+)/.exec(response.headers.get("Server-Timing") ?? "");
    return found ? `${Number(found[1]).toFixed(1)} ms` : "";
}

const sayLoading = () => showLoading(panel);

async function showLabels(card, model, signal) {
    const response = await sendPicture(labelsPath(model), picture.blob, signal, sayLoading);
    const { predictions } = await response.json();
    card.querySelector("h3").append(make("small", {}, computeTime(response)));
    card.append(bars(predictions), knowledge(model));
    return predictions[0];
}

async function showMap(card, model, signal) {
    const response = await sendPicture(mapPath(model), picture.blob, signal, sayLoading);
    const where = response.headers.get("X-Explain-Layer") === "each" ? "each layer, the first at the left" : "the last layer";
    const view = `${VIEWS[response.headers.get("X-Explain-View")]} in ${where}: violet is zero, yellow the largest.`;
    const image = make("img", { alt: `The picture as ${model} sees it. ${view}` });
    image.src = URL.createObjectURL(await response.blob());
    image.addEventListener("load", () => URL.revokeObjectURL(image.src));
    card.append(make("figure", {}, image, make("figcaption", {}, view)));
}

/** Only what is about this picture and these models stays. */
function clearStale(models) {
    for (const card of [...results.children])
        if (shown !== picture.blob || !models.includes(card.dataset.model)) card.remove();
    shown = picture.blob;
}

const chosen = () => [...choices.querySelectorAll("input:checked")].map(({ value }) => value);
const labelsPath = (model) => withQuery("classify", { model, top_k: LABELS });
const mapPath = (model) => withQuery("explain", layers.checked ? { model, layer: "each" } : { model });

function classifyFiles(models) {
    showError(panel, null);
    return classifyMany({
        files, models, pathOf: labelsPath, signal: turn.begin(), into: results, stop: () => turn.stop(),
        say: (text) => showStatus(panel, text),
    });
}

async function classify() {
    const models = chosen();
    if (files.length > 0 && models.length > 0) {
        await classifyFiles(models);
        return;
    }
    clearStale(models);
    if (!picture.blob || models.length === 0) {
        turn.cancel();
        showError(panel, null);
        const has = picture.blob || files.length > 0;
        if (choices.querySelector("input")) showStatus(panel, has ? "No model is ticked." : HINT);
        return;
    }
    const signal = turn.begin();
    showError(panel, null);
    showStatus(panel, "Classifying…");
    const cards = models.map((model) => make("article", { "data-model": model }, make("h3", {}, model)));
    try {
        const best = await Promise.all(models.map(async (model, i) => {
            const prediction = await showLabels(cards[i], model, signal);
            if (explain.checked) await showMap(cards[i], model, signal);
            return prediction;
        }));
        results.replaceChildren(...cards);
        showStatus(panel, models.map((model, i) => `${model}: ${inShort(best[i])}`).join("; "));
    } catch (error) {
        if (signal.aborted) return; // a newer request has begun
        results.replaceChildren();
        showStatus(panel, "");
        showError(panel, error);
    }
}

export function setModels() {
    const models = offer(panel, "image-classification", HINT);
    const before = new Map([...choices.querySelectorAll("input")].map(({ value, checked }) => [value, checked]));
    choices.replaceChildren(choices.firstElementChild, ...models.map((model) =>
        make("label", { className: "check" }, make("input", {
            type: "checkbox", name: "model", value: model.id,
            checked: before.get(model.id) ?? model.id === defaultOf(models),
        }), title(model))));
    for (const choice of choices.querySelectorAll("input")) if (!before.has(choice.value)) recall(choice);
    if (before.size === 0) classify(); // a picture that was there first
}

choices.addEventListener("change", classify);
explain.addEventListener("change", classify);
layers.addEventListener("change", () => explain.checked && classify());
offerCommand(panel, () => {
    const names = files.length > 0 ? files.map(({ name }) => name) : [picture.name ?? "picture.jpg"];
    const isExplained = explain.checked && files.length === 0;
    return chosen().flatMap((model) => [
        ...names.map((file) => curl(labelsPath(model), { file })),
        ...isExplained ? [curl(mapPath(model), { file: names[0], output: `${model}.png` })] : [],
    ]).join("\n");
});
