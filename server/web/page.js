// page.js - the page as a whole: tabs, the key, and which models there are.
import { call, onKeyWanted, sentence, setKey } from "./api.js";
import * as classify from "./classify.js";
import * as complete from "./complete.js";
import * as generate from "./generate.js";
import { parse } from "./live.js";
import { routePictures } from "./picture.js";

// ---- tabs ----------------------------------------------------------------------------------------------------------
// One is open; arrow keys move through them, as in ARIA's pattern. The address keeps which, in a form that is no
// element's id: the browser would scroll to that.

const tabs = [...document.querySelectorAll("[role=tab]")];
const panelOf = (tab) => document.getElementById(tab.getAttribute("aria-controls"));
const openTab = () => tabs.find((tab) => tab.ariaSelected === "true");

function open(tab) {
    for (const each of tabs) {
        each.ariaSelected = String(each === tab);
        each.tabIndex = each === tab ? 0 : -1;
        panelOf(each).hidden = each !== tab;
    }
    history.replaceState(null, "", `#/${panelOf(tab).id}`);
}

for (const [i, tab] of tabs.entries()) {
    tab.addEventListener("click", () => open(tab));
    tab.addEventListener("keydown", ({ key }) => {
        const to = { ArrowRight: i + 1, ArrowLeft: i - 1 + tabs.length, Home: 0, End: tabs.length - 1 }[key];
        if (to === undefined) return;
        open(tabs[to % tabs.length]);
        openTab().focus();
    });
}
const openByAddress = () => open(tabs.find((tab) => `#/${panelOf(tab).id}` === location.hash) ?? openTab() ?? tabs[0]);
addEventListener("hashchange", openByAddress);
openByAddress();

routePictures(() => ({ classify, complete })[panelOf(openTab()).id]?.picture);

// ---- sliders show their value --------------------------------------------------------------------------------------

for (const slider of document.querySelectorAll("input[type=range]"))
    slider.addEventListener("input", () => {
        slider.parentElement.querySelector("output").textContent = slider.value;
    });

// ---- the key -------------------------------------------------------------------------------------------------------

const keyForm = document.getElementById("key-form");
const keyField = document.getElementById("key");
onKeyWanted((message) => {
    const why = document.getElementById("key-why");
    const text = sentence(message);
    keyForm.hidden = false;
    if (why.textContent !== text) why.textContent = text; // screen readers read it out: once is enough
});
keyForm.addEventListener("submit", async (event) => {
    event.preventDefault();
    setKey(keyField.value.trim());
    keyForm.hidden = true;
    await loadModels();
    if (keyForm.hidden) openTab().focus();
    else keyField.select();
});

// ---- models --------------------------------------------------------------------------------------------------------

/** A key may be valid for the native API but not for OpenAI's, whose list this is; the metrics name models too. */
async function listModels() {
    try {
        return (await (await call("v1/models")).json()).data;
    } catch (error) {
        if (error.status !== 403) throw error;
        const series = parse(await (await call("metrics")).text());
        return series.filter(({ name }) => name === "aftd_model_info")
            .map(({ labels }) => ({ id: labels.model, task: labels.task }));
    }
}

async function loadModels() {
    try {
        const models = await listModels();
        for (const panel of [classify, generate, complete]) panel.setModels(models);
    } catch {
        // The form for the key shows it, or the daemon's state at the top.
    }
}
loadModels();
