// models.js - which models there are for each task, and where there are none that can be used, why.
import { call, hasKey } from "./api.js";
import { make, showStatus } from "./elements.js";
import { recall } from "./keep.js";
import { parse } from "./live.js";

const PATIENCE_MS = 20_000; // for one answer

// What the models of a task do, for sentences.
const DOES = {
    "image-classification": "classifies pictures",
    "image-generation": "draws pictures",
    "text-classification": "classifies texts",
    "text-generation": "writes texts",
};

let known = []; // as listed; of a model without a state nothing is known but that it is loaded
let others = []; // that there are beside these, as the metrics say; null: nobody knows

/** All loaded models, from the metrics. */
async function readMetrics(signal) {
    const series = parse(await (await call("metrics", { signal })).text());
    return series.filter(({ name }) => name === "aftd_model_info")
        .map(({ labels }) => ({ id: labels.model, task: labels.task }));
}

/** The list has what the key may use. It may be one for the native API but not for OpenAI's, whose list that is; then
 *  the metrics name the models. */
export async function readModels() {
    const signal = AbortSignal.timeout(PATIENCE_MS);
    let list;
    try {
        list = (await (await call("v1/models", { signal })).json()).data;
        if (!Array.isArray(list)) throw new Error("what came is no list of models");
    } catch (error) {
        if (error.status !== 403 || error.param === "Host" || error.param === "Origin") throw error;
        list = await readMetrics(signal);
    }
    const all = hasKey() ? await readMetrics(signal).catch(() => null) : [];
    known = list;
    others = all?.filter(({ id }) => !list.some((model) => model.id === id)) ?? null;
}

const canBeUsed = ({ state = "loaded" }) => state === "loaded" || state === "idle";

const modelsFor = (task) => known.filter((model) => model.task === task && canBeUsed(model));

/** As listed; undefined if it is not. Without `object`, only the metrics named it. */
export const modelOf = (id) => known.find((model) => model.id === id);

const names = (models) => models.map(({ id }) => id).join(", ");

/** Why there is no model for the task, as a sentence. */
function lackOf(task) {
    const none = `No model that ${DOES[task]} can be used`;
    const away = known.filter((model) => !canBeUsed(model) && (model.task ?? task) === task);
    const failed = away.filter(({ state }) => state === "failed");
    const kept = others?.filter((model) => model.task === task) ?? [];
    if (failed.length > 0) // what is wrong with its files may hide what it is for
        return `No model that could be loaded ${DOES[task]}; ${names(failed)} could not be.`;
    if (away.length > 0) return `${none}: an administrator has unloaded ${names(away)}.`;
    if (kept.length > 0) return `${none}: your key may not use ${names(kept)}.`;
    return others === null ? `${none} by your key.` : `This daemon has no model that ${DOES[task]}.`;
}

/** Does the daemon have a model for the task, if it can be used or not? */
export const isKnown = (task) => [...known, ...others ?? []].some((model) => model.task === task);

/** What the panel may choose from. Where that is nothing it says why; after that, `hint`. */
export function offer(panel, task, hint) {
    const models = modelsFor(task);
    if (models.length === 0) showStatus(panel, lackOf(task));
    else if (panel.dataset.lacks !== "") showStatus(panel, hint);
    panel.dataset.lacks = models.length === 0 ? "why" : "";
    for (const button of panel.querySelectorAll(".go")) button.disabled = models.length === 0;
    return models;
}

/** Of models for one task the name of the daemon's default. */
export const defaultOf = (models) => (models.find((model) => model.default) ?? models[0])?.id;

/** A model's name, and what is to be known before it is asked. */
export const title = ({ id, state }) => (state === "idle" ? `${id} (loaded when asked)` : id);

/** Fill a <select> with these models, keeping the one chosen before; hide it if there is no choice. */
export function offerModels(select, models) {
    const before = select.value;
    select.replaceChildren(...models.map((model) => make("option", { value: model.id }, title(model))));
    if (models.length > 0) select.value = models.some(({ id }) => id === before) ? before : defaultOf(models);
    if (before === "") recall(select);
    select.closest(".model").hidden = models.length < 2 && models[0]?.state !== "idle";
}
