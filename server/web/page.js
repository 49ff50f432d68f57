// page.js - the page as a whole: tabs, the key, and which models there are.
import { onKeyWanted, setKey } from "./api.js";
import * as classify from "./classify.js";
import * as complete from "./complete.js";
import { reveal, sentence } from "./elements.js";
import * as generate from "./generate.js";
import { keepFields } from "./keep.js";
import * as label from "./label.js";
import { onReturn } from "./live.js";
import { readModels } from "./models.js";
import { routePictures } from "./picture.js";
import * as score from "./score.js";

const panels = { classify, generate, complete, score, label };

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

for (const tab of tabs) {
    tab.addEventListener("click", () => open(tab));
    tab.addEventListener("keydown", ({ key }) => {
        const shown = tabs.filter(({ hidden }) => !hidden);
        const i = shown.indexOf(tab);
        const to = { ArrowRight: i + 1, ArrowLeft: i - 1 + shown.length, Home: 0, End: shown.length - 1 }[key];
        if (to === undefined) return;
        open(shown[to % shown.length]);
        openTab().focus();
    });
}
const openByAddress = () => open(tabs.find((tab) => `#/${panelOf(tab).id}` === location.hash) ?? openTab() ?? tabs[0]);
addEventListener("hashchange", openByAddress);
openByAddress();

/** Pictures go to the panel that is open, or, where that takes none, to the one that classifies them. */
function takeFiles(files) {
    if (!panels[panelOf(openTab()).id].picture) open(tabs.find((tab) => panelOf(tab).id === "classify"));
    panels[panelOf(openTab()).id].picture.take(files);
}
routePictures(takeFiles, (isOver) => panelOf(openTab()).classList.toggle("over", isOver));

// ---- fields: they stay over a reload, Ctrl+Enter sends them, sliders show their value -------------------------------

keepFields();
addEventListener("keydown", ({ key, ctrlKey, metaKey, target }) => {
    if (key === "Enter" && (ctrlKey || metaKey)) target.form?.requestSubmit();
});
addEventListener("submit", ({ target }) => {
    if (target !== keyForm) reveal(target.closest(".part, [role=tabpanel]"));
});
// What the browser objects to must be seen.
addEventListener("invalid", ({ target }) => target.closest("details")?.setAttribute("open", ""), true);
for (const slider of document.querySelectorAll("input[type=range]")) {
    const show = () => {
        slider.parentElement.querySelector("output").textContent = slider.value;
    };
    slider.addEventListener("input", show);
    show();
}

// ---- the key -------------------------------------------------------------------------------------------------------

const keyForm = document.getElementById("key-form");
const keyField = document.getElementById("key");
function askForKey(message) {
    const why = document.getElementById("key-why");
    const text = sentence(message);
    keyForm.hidden = false;
    if (why.textContent !== text) why.textContent = text; // screen readers read it out: once is enough
}
onKeyWanted(askForKey);
keyForm.addEventListener("submit", async (event) => {
    event.preventDefault();
    setKey(keyField.value.trim());
    keyForm.hidden = true;
    await loadModels();
    if (keyForm.hidden) openTab().focus();
    else keyField.select();
});

// ---- models --------------------------------------------------------------------------------------------------------
// Asked for until they are known, with pauses that grow; and again when that may have changed.

const PAUSE_MAX_S = 30;
const problem = document.getElementById("models-why");
let timer = null;
let asked = 0;

function sayProblem(text) {
    problem.hidden = text === "";
    if (problem.textContent !== text) problem.textContent = text;
}

async function loadModels(pause_s = 1) {
    const mine = ++asked;
    clearTimeout(timer);
    try {
        await readModels();
    } catch (error) {
        if (mine !== asked) return; // has been asked again meanwhile
        const isOfKey = error.status === 401 || (error.status === 403 && !["Host", "Origin"].includes(error.param));
        if (isOfKey) askForKey(error.message);
        sayProblem(isOfKey ? "" : `The models are not known: ${error.message}. Asking again in ${pause_s} s.`);
        if (!isOfKey) timer = setTimeout(loadModels, 1000 * pause_s, Math.min(2 * pause_s, PAUSE_MAX_S));
        return;
    }
    sayProblem("");
    for (const panel of Object.values(panels)) panel.setModels();
    const tab = document.getElementById("tab-label");
    tab.hidden = !label.isWanted();
    if (tab.hidden && openTab() === tab) open(tabs[0]);
}
loadModels();
onReturn(() => loadModels());
document.addEventListener("visibilitychange", () => {
    if (!document.hidden && keyForm.hidden) loadModels();
});
