// label.js - the panel that classifies a text with a model that does so.
import { Turn, askModel } from "./api.js";
import { curl, offerCommand } from "./command.js";
import { showError, showLoading, showStatus } from "./elements.js";
import { bars, inShort, knowledge } from "./labels.js";
import { isKnown, offer, offerModels } from "./models.js";

const TASK = "text-classification";
const LABELS = 5;

const panel = document.getElementById("label");
const form = panel.querySelector("form");
const fields = form.elements;
const results = panel.querySelector(".results");
const turn = new Turn();

const request = () =>
    ({ text: fields.text.value, top_k: LABELS, ...fields.model.value && { model: fields.model.value } });

async function label() {
    const signal = turn.begin();
    results.replaceChildren();
    showError(panel, null);
    showStatus(panel, "Classifying…");
    try {
        const response = await askModel("classify", request(), signal, () => showLoading(panel));
        const { model, predictions } = await response.json();
        results.replaceChildren(bars(predictions), knowledge(model));
        showStatus(panel, `${model}: ${inShort(predictions[0])}`);
    } catch (error) {
        if (signal.aborted) return; // a newer request has begun
        showStatus(panel, "");
        showError(panel, error);
    }
}

/** Few daemons have such a model: the others' page does without the panel. */
export const isWanted = () => isKnown(TASK);

export function setModels() {
    offerModels(fields.model, offer(panel, TASK, "Labels appear here."));
}

form.addEventListener("submit", (event) => {
    event.preventDefault();
    label();
});
offerCommand(panel, () => curl("classify", { json: request() }));
