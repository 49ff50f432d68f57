// page.js - the page as a whole: tabs, the key, and which models there are.
import { call, onKeyWanted, setKey } from "./api.js";
import * as classify from "./classify.js";
import * as complete from "./complete.js";
import * as generate from "./generate.js";
import "./live.js";
import { routePictures } from "./picture.js";

// ---- tabs: one is open; arrows go through them, as ARIA's pattern has it; the address keeps which, as no element's id --

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

// ---- sliders say their value -----------------------------------------------------------------------------------------

for (const slider of document.querySelectorAll("input[type=range]"))
    slider.addEventListener("input", () => {
        slider.parentElement.querySelector("output").textContent = slider.value;
    });

// ---- the key ---------------------------------------------------------------------------------------------------------

const keyForm = document.getElementById("key-form");
onKeyWanted((message) => {
    keyForm.hidden = false;
    document.getElementById("key-why").textContent = `This daemon wants a key: ${message}.`;
});
keyForm.addEventListener("submit", (event) => {
    event.preventDefault();
    setKey(document.getElementById("key").value);
    keyForm.hidden = true;
    loadModels();
});

// ---- models ----------------------------------------------------------------------------------------------------------

async function loadModels() {
    try {
        const { data } = await (await call("/v1/models")).json();
        for (const panel of [classify, generate, complete]) panel.setModels(data);
    } catch (error) {
        console.warn(`models: ${error.message}`); // the panels' own requests will say it where it can be seen
    }
}
loadModels();
