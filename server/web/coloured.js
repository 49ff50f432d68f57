// coloured.js - text whose characters are coloured by their probability, and what else might have stood in their place.
import { make } from "./elements.js";

// Lower bounds of the probability steps, likeliest first; page.css has a colour for each, .p0 to .p4.
const STEPS = [0.7, 0.3, 0.1, 0.02, 0];

const percent = (probability) => `${Number((100 * probability).toPrecision(2))} %`;

// What the daemon told of the bytes of a character's element.
const bytesOf = new WeakMap();

/** Returns a function that turns bytes, each with its logprob and perhaps the likeliest ones as `top`, into a coloured
 *  element for each character that is complete; for several bytes, their product counts. */
export function colouring() {
    const decoder = new TextDecoder();
    let waiting = []; // bytes of a character whose last one is yet to come
    return (bytes) => bytes.flatMap((each) => {
        waiting.push(each);
        const character = decoder.decode(new Uint8Array([each.byte]), { stream: true });
        if (character === "") return [];
        const probability = Math.exp(waiting.reduce((sum, { logprob }) => sum + logprob, 0));
        const element = make("span", { className: `p${STEPS.findIndex((from) => probability >= from)}` }, character);
        bytesOf.set(element, waiting);
        waiting = [];
        return [element];
    });
}

const NAMES = { 9: "tab", 10: "line end", 13: "carriage return", 32: "space" };

function nameOf(byte) {
    if (byte > 32 && byte < 127) return `“${String.fromCharCode(byte)}”`;
    return NAMES[byte] ?? `0x${byte.toString(16).toUpperCase().padStart(2, "0")}`;
}

function describe({ byte, logprob, top = [] }) {
    const likely = (each) => `${nameOf(each.byte)} ${percent(Math.exp(each.logprob))}`;
    const others = top.filter((each) => each.byte !== byte).map(likely);
    const own = logprob === null ? `${nameOf(byte)} is the first` : likely({ byte, logprob });
    return others.length > 0 ? `${own}; in its place ${others.join(", ")}` : own;
}

/** Has `output` tell of the character of `region` that is pointed at, touched or gone to with the arrow keys. */
export function tellBytes(region, output) {
    let here = null;

    function tell(element) {
        here?.classList.remove("here");
        here = element;
        here.classList.add("here");
        output.replaceChildren(...bytesOf.get(here).map((each) => make("span", {}, describe(each))));
    }

    for (const type of ["pointerover", "click"])
        region.addEventListener(type, ({ target }) => {
            if (bytesOf.has(target)) tell(target);
        });
    region.addEventListener("keydown", (event) => {
        const to = { ArrowRight: "nextElementSibling", ArrowLeft: "previousElementSibling" }[event.key];
        if (!to) return;
        const first = [...region.children].find((element) => bytesOf.has(element));
        const next = here?.parentElement === region ? here[to] : first;
        if (!first) return;
        event.preventDefault();
        if (bytesOf.has(next)) tell(next);
        here?.scrollIntoView({ block: "nearest" });
    });
}

/** What the colours mean. */
export function fillLegend(legend) {
    const inWords = (i) => (STEPS[i] > 0 ? `from ${percent(STEPS[i])}` : `below ${percent(STEPS[i - 1])}`);
    legend.append("Probability:", ...STEPS.map((_, i) => make("span", { className: `p${i}` }, inWords(i))));
}
