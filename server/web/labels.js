// labels.js - what classifiers answer, as bars, and what they can answer at all.
import { call } from "./api.js";
import { make } from "./elements.js";
import { modelOf } from "./models.js";

const NAMED = 20; // labels named of a model that has many more

function bar({ label, probability }) {
    const fill = make("span", { className: "fill" });
    fill.style.width = `${100 * probability}%`;
    return make("li", {},
        make("span", { className: "name" }, label),
        make("span", { className: "value" }, `${(100 * probability).toFixed(1)} %`),
        make("span", { className: "track", ariaHidden: "true" }, fill));
}

export const bars = (predictions) => make("ol", { className: "bars" }, ...predictions.map(bar));

/** "ship, 91 %" */
export const inShort = ({ label, probability }) => `${label}, ${(100 * probability).toFixed(0)} %`;

const asked = new Map(); // by a model's name and the time it was loaded: a promise of what is said of it

async function ask(id) {
    const { labels } = await (await call(`v1/models/${encodeURIComponent(id)}`)).json();
    if (!labels) return "";
    const more = labels.length > NAMED ? ` and ${(labels.length - NAMED).toLocaleString("en")} more` : "";
    const [what, first] = [labels.length === 1 ? "thing" : "things", labels.slice(0, NAMED).join(", ")];
    return `Knows ${labels.length.toLocaleString("en")} ${what}: ${first}${more}.`;
}

/** A note of what the model can answer at all, which is empty where the daemon or the key does not tell. */
export function knowledge(id) {
    const note = make("p", { className: "note" });
    const { object, created } = modelOf(id) ?? {};
    const which = `${id} ${created}`;
    if (object && !asked.has(which)) asked.set(which, ask(id).catch(() => ""));
    asked.get(which)?.then((text) => note.append(text));
    return note;
}
