// elements.js - elements made, and what all panels have: a status, an error, the seed that was used.

/** An element with properties, `class` and `data-*` included, and children: texts, elements. */
export function make(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
        if (name in element && name !== "list") element[name] = value;
        else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
}

export const inBytes = (count) => `${count.toLocaleString("en")} ${count === 1 ? "byte" : "bytes"}`;

/** The daemon's messages begin with a lower-case letter and have no full stop. */
export const sentence = (message) => `${message.charAt(0).toUpperCase()}${message.slice(1)}.`;

/** Show a panel's error; null hides it, and so does an abort by the user. */
export function showError(panel, error) {
    const at = panel.querySelector(".error");
    at.hidden = !error || error.name === "AbortError";
    at.textContent = at.hidden ? "" : sentence(error.message);
}

export function showStatus(panel, text) {
    panel.querySelector(".status").textContent = text;
}

/** Where a panel's result lies below what is seen, as on a phone: go there. */
export function reveal(panel) {
    const at = panel.querySelector(".pane + .pane");
    if (at.getBoundingClientRect().top > 0.6 * innerHeight) at.scrollIntoView();
}

export const showLoading = (panel) => showStatus(panel, "The model is being loaded…");

/** A button that puts the seed that was used into its field, so that the same can be generated again. */
export function offerSeed(button, field, seed) {
    button.hidden = field.value !== "";
    button.textContent = `Reuse the seed ${seed}`;
    button.onclick = () => {
        field.value = seed;
        button.hidden = true;
        field.focus();
    };
}
