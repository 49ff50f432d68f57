// many.js - several pictures classified at once: a table with a row for each, and the same as CSV.
import { make } from "./elements.js";
import { inShort } from "./labels.js";
import { prepare, sendPicture } from "./sending.js";

export const MANY_MAX = 1000;
const AT_ONCE = 4; // so that those of others come in between

/** Beside its name, if the browser can show it. */
function showFile(cell, blob) {
    const image = make("img", { alt: "", src: URL.createObjectURL(blob) });
    image.addEventListener("load", () => cell.firstElementChild.prepend(image));
    for (const type of ["load", "error"]) image.addEventListener(type, () => URL.revokeObjectURL(image.src));
}

/** Ask each model about one picture; what fails is said in its cell. */
async function classifyRow(row, models, pathOf, signal, waits) {
    let blob, failure = null;
    try {
        blob = await prepare(row.file);
        showFile(row.head, blob);
    } catch (error) {
        failure = error;
    }
    for (const [i, model] of models.entries()) {
        try {
            if (failure) throw failure;
            const response = await sendPicture(pathOf(model), blob, signal, waits);
            row.answers[i] = { best: (await response.json()).predictions[0] };
            row.cells[i].textContent = inShort(row.answers[i].best);
        } catch (error) {
            if (signal.aborted) return;
            row.answers[i] = { error: error.message };
            row.cells[i].textContent = error.message;
            row.cells[i].className = "bad";
        }
    }
}

/** A field of CSV (RFC 4180); a spreadsheet would compute what begins like a formula. */
function csvField(value) {
    const text = String(value ?? "");
    const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll("\"", "\"\"")}"` : safe;
}

function csvOf(rows, models) {
    const lines = [["picture", "model", "label", "probability", "error"]];
    for (const { file, answers } of rows)
        for (const [i, model] of models.entries())
            lines.push([file.name, model, answers[i]?.best?.label, answers[i]?.best?.probability, answers[i]?.error]);
    return lines.map((line) => line.map(csvField).join(",") + "\r\n").join("");
}

function download(text) {
    const href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    const link = make("a", { href, download: "labels.csv" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(href), 10_000);
}

function tableOf(rows, models) {
    const head = make("tr", {}, ...["Picture", ...models].map((text) => make("th", { scope: "col" }, text)));
    const body = rows.map(({ head: name, cells }) => make("tr", {}, name, ...cells));
    return make("div", { className: "table", tabIndex: 0, role: "region", ariaLabel: "Labels of the pictures" },
        make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
}

/** Fills `into`; `pathOf` gives the path of a model's request, `say` is told how far it is, `stop` ends it by
 *  `signal`. */
export async function classifyMany({ files, models, pathOf, signal, into, say, stop }) {
    const rows = files.map((file) => ({
        file,
        head: make("th", { scope: "row" }, make("div", {}, file.name)),
        cells: models.map(() => make("td", {}, "…")),
        answers: [],
    }));
    const stopButton = make("button", { type: "button" }, "Stop");
    const csvButton = make("button", { type: "button" }, "Download as CSV");
    stopButton.addEventListener("click", stop);
    csvButton.addEventListener("click", () => download(csvOf(rows, models)));
    into.replaceChildren(make("div", { className: "row" }, stopButton, csvButton), tableOf(rows, models));
    const waiting = [...rows];
    let done = 0;
    const work = async () => {
        while (waiting.length > 0 && !signal.aborted) {
            await classifyRow(waiting.shift(), models, pathOf, signal, () => say("The model is being loaded…"));
            if (!signal.aborted) say(`${++done} of ${rows.length} pictures classified.`);
        }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    if (signal.aborted && !signal.stopped) return; // something else has begun
    stopButton.disabled = true;
    const failed = rows.filter(({ answers }) => answers.some(({ error }) => error)).length;
    if (signal.stopped) say(`Stopped: ${done} of ${rows.length} pictures classified.`);
    else if (failed > 0) say(`${rows.length - failed} of ${rows.length} pictures classified, ${failed} not.`);
}
