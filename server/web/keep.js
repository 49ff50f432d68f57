// keep.js - what somebody entered stays over a reload, for this tab: each panel's fields, by name. Pictures do not.

const AT = "aftd-fields"; // in sessionStorage
const saved = read();

function read() {
    try {
        return JSON.parse(sessionStorage.getItem(AT)) ?? {};
    } catch {
        return {};
    }
}

const isTicked = ({ type }) => type === "checkbox" || type === "radio";

const keyOf = (field) =>
    [field.closest(".part, [role=tabpanel]").id, field.name, isTicked(field) ? field.value : ""].join(" ");

/** Put into a field of a panel what was there before the reload, if it was. */
export function recall(field) {
    const value = saved[keyOf(field)];
    if (value === undefined) return;
    if (isTicked(field)) field.checked = value;
    else if (!field.options || [...field.options].some((option) => option.value === value)) field.value = value;
}

const fields = () => document.querySelectorAll("[role=tabpanel] :is(input, textarea, select)[name]");

function save() {
    for (const field of fields()) {
        if (isTicked(field)) saved[keyOf(field)] = field.checked;
        else if (field.value !== "" || !field.options) saved[keyOf(field)] = field.value; // models may not be known yet
    }
    try {
        sessionStorage.setItem(AT, JSON.stringify(saved));
    } catch {
        // a text of megabytes: there is no room for it
    }
}

/** From now on. Models are recalled when they are known. */
export function keepFields() {
    for (const field of fields()) recall(field);
    addEventListener("pagehide", save);
    document.addEventListener("visibilitychange", save);
}
