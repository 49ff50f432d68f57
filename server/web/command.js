// command.js - what a panel does, as a command for a shell; and texts copied.
import { addressOf, hasKey } from "./api.js";
import { make } from "./elements.js";

/** As a word of a POSIX shell: between single quotes only these themselves mean something. */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The curl command for such a request. The key is not told: the command takes it from the environment.
 *    path: with its query;  json: what is sent, or file: the name of the file that is sent, or null for an empty body
 *    output: the name of the file that the answer goes to;  stream: show what comes as it comes */
export function curl(path, { json, file, output, stream = false }) {
    const words = ["curl", ...stream ? ["-N"] : []];
    if (hasKey()) words.push("-H", '"Authorization: Bearer $KEY"');
    if (json !== undefined)
        words.push("-H", quoted("Content-Type: application/json"), "-d", quoted(JSON.stringify(json)));
    else words.push("--data-binary", quoted(file ? `@${file}` : ""));
    if (output) words.push("-o", quoted(output));
    return [...words, quoted(addressOf(path))].join(" ");
}

/** Into the clipboard. Browsers give it to pages that came by TLS or from this machine; for others they copy as of
 *  old. */
async function copy(text) {
    if (navigator.clipboard) {
        await navigator.clipboard.writeText(text);
        return;
    }
    const area = make("textarea", { value: text, className: "unseen" });
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    if (!copied) throw new Error("this browser does not let the page copy");
}

/** A button that copies what `text` returns, and says so for a moment. */
export function copyButton(label, text) {
    const button = make("button", { type: "button", className: "copy" }, label);
    button.addEventListener("click", async () => {
        button.textContent = await copy(text()).then(() => "Copied", () => "Not allowed");
        button.focus();
        setTimeout(() => {
            button.textContent = label;
        }, 2000);
    });
    return button;
}

/** Adds to the panel what `command` returns, as it is at the time, behind a summary. */
export function offerCommand(panel, command) {
    const shown = make("pre", { tabIndex: 0, role: "region", ariaLabel: "Command" });
    const details = make("details", { className: "command" }, make("summary", {}, "Show as curl"), shown,
        make("p", {}, copyButton("Copy the command", () => shown.textContent)));
    const show = () => {
        if (details.open) shown.textContent = command();
    };
    details.addEventListener("toggle", show);
    for (const type of ["input", "change", "click"]) panel.addEventListener(type, () => setTimeout(show));
    panel.querySelector(".pane").append(details);
}
