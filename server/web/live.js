// live.js - the daemon's state: whether it is ready, and numbers and small plots from /metrics, every two seconds while
// somebody can see them.
import { addressOf, call } from "./api.js";
import { make } from "./elements.js";

const PERIOD_MS = 2000;
const POINTS = 60; // of a plot: two minutes
const WINDOW = 15; // samples over which latencies are computed: half a minute

const section = document.getElementById("live");
const list = section.querySelector("dl");
const pause = section.querySelector(".pause");
const health = document.getElementById("health");

/** Prometheus text: each series as {name, labels, value}. */
export function parse(text) {
    const series = [];
    for (const line of text.split("\n")) {
        const found = /^([a-z_]+)(?:\{(.*)\})? (\S+)$/.exec(line);
        if (!found) continue;
        const labels = Object.fromEntries([...(found[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)]
            .map(([, name, value]) => [name, value]));
        series.push({ name: found[1], labels, value: Number(found[3].replace("+Inf", "Infinity")) });
    }
    return series;
}

const sum = (series, name) => series.filter((s) => s.name === name).reduce((total, { value }) => total + value, 0);

/** A histogram's counts up to each bound, over all its labels: [bound, count], bounds rising. */
function buckets(series, name) {
    const counts = new Map();
    for (const { labels, value } of series.filter((s) => s.name === `${name}_bucket`)) {
        const bound = Number(labels.le.replace("+Inf", "Infinity"));
        counts.set(bound, (counts.get(bound) ?? 0) + value);
    }
    return [...counts].sort(([a], [b]) => a - b);
}

/** The quantile of what was observed between two samples, interpolated as Prometheus does; null: nothing was. */
function quantile(q, now, then) {
    const before = new Map(then);
    const counts = now.map(([bound, count]) => [bound, count - (before.get(bound) ?? 0)]);
    const wanted = q * (counts.at(-1)?.[1] ?? 0);
    let [low, below] = [0, 0];
    if (wanted <= 0) return null;
    for (const [bound, count] of counts) {
        if (count >= wanted) return bound === Infinity ? low : low + (bound - low) * (wanted - below) / (count - below);
        [low, below] = [bound, count];
    }
    return null;
}

const number = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
function time(s) {
    if (s >= 1) return `${s.toPrecision(2)} s`;
    return s >= 1e-3 ? `${Number((1e3 * s).toPrecision(2))} ms` : `${Math.round(1e6 * s)} µs`;
}

// The part of /metrics that is kept.
function sample(text) {
    const series = parse(text);
    return {
        at: performance.now(),
        streams: sum(series, "aftd_streams_running"),
        slots: sum(series, "aftd_stream_slots"),
        bytes: sum(series, "aftd_generated_bytes_total"),
        pictures: sum(series, "aftd_pictures_classified_total"),
        queue: sum(series, "aftd_queue_depth"),
        first: buckets(series, "aftd_time_to_first_byte_seconds"),
        between: buckets(series, "aftd_time_between_bytes_seconds"),
        version: series.find(({ name }) => name === "aftd_build_info")?.labels.version,
    };
}

// None between answers that came at once, as after a stall.
const rate = (key) => (now, before) =>
    (now.at > before?.at ? 1000 * (now[key] - before[key]) / (now.at - before.at) : null);
const latency = (key) => (now, before, window) => quantile(0.5, now[key], window[key]);

// Each number: `of` gets the newest sample, the one before and the one at the window's start; null has no point in the
// plot.
const NUMBERS = [
    { title: "Running streams", of: (now) => now.streams, say: (v, now) => `${v} of ${now.slots}` },
    { title: "Generated", of: rate("bytes"), say: (v) => `${number(v)} bytes/s` },
    { title: "Classified", of: rate("pictures"), say: (v) => `${number(v)} pictures/s` },
    { title: "Waiting", of: (now) => now.queue, say: (v) => `${v} in the queue` },
    { title: "First byte", of: latency("first"), say: time },
    { title: "Between bytes", of: latency("between"), say: time },
];

/** A plot of values from zero, newest at the right; gaps for missing ones. */
function plot(svg, values) {
    const [width, height] = [120, 32];
    const top = Math.max(...values.map((v) => v ?? 0)) || 1;
    const step = width / (POINTS - 1);
    const x = (i) => (width - (values.length - 1 - i) * step).toFixed(1);
    const y = (v) => (height - 1 - (height - 3) * v / top).toFixed(1);
    let path = "";
    values.forEach((v, i) => {
        if (v !== null) path += `${i > 0 && values[i - 1] !== null ? "L" : "M"}${x(i)} ${y(v)}`;
    });
    svg.firstElementChild.setAttribute("d", path);
}

for (const row of NUMBERS) {
    row.values = [];
    row.text = make("dd", {}, "–");
    row.plot = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    row.plot.setAttribute("viewBox", "0 0 120 32");
    row.plot.setAttribute("preserveAspectRatio", "none");
    row.plot.append(document.createElementNS("http://www.w3.org/2000/svg", "path"));
    list.append(make("div", {}, make("dt", {}, row.title), row.text,
        make("dd", { className: "plot", ariaHidden: "true" }, row.plot)));
}

const samples = [];

function show() {
    const now = samples.at(-1);
    const before = samples.at(-2) ?? null;
    for (const row of NUMBERS) {
        const value = row.of(now, before, samples[0]);
        row.values.push(value);
        if (row.values.length > POINTS) row.values.shift();
        row.text.textContent = value === null ? "–" : row.say(value, now);
        plot(row.plot, row.values);
    }
}

/** Written only when it changes: it is a live region, which screen readers read out. */
function say(state, text) {
    health.dataset.state = state;
    if (health.textContent !== text) health.textContent = text;
}

let returned = () => {};

/** Set what is called when the daemon can be reached again, which may be another one with other models. */
export function onReturn(call) {
    returned = call;
}

// /metrics are 87 KB, which nobody has to fetch who looks at something else.
let isSeen = false;
new IntersectionObserver((entries) => {
    isSeen = entries.at(-1).isIntersecting;
}).observe(section);

async function look() {
    try {
        const wanted = isSeen || samples.length === 0; // once for the version
        const [ready, metrics] = await Promise.all([fetch(addressOf("readyz")), wanted ? call("metrics") : null]);
        if (metrics) samples.push(sample(await metrics.text()));
        if (samples.length > WINDOW + 1) samples.shift();
        if (health.dataset.state === "away") returned();
        say(ready.ok ? "ready" : "draining", `${ready.ok ? "ready" : "draining"}, version ${samples.at(-1).version}`);
        if (metrics) show();
    } catch (error) {
        samples.length = 0; // the counters of another daemon may start again from 0
        say("away", error.status ? error.message : "not reachable");
    }
}

let timer = null;
function run() {
    const runs = !document.hidden && pause.ariaPressed !== "true";
    if (runs && timer === null) {
        look();
        timer = setInterval(look, PERIOD_MS);
    } else if (!runs) {
        clearInterval(timer);
        timer = null;
    }
}

pause.addEventListener("click", () => {
    pause.ariaPressed = String(pause.ariaPressed !== "true");
    pause.textContent = pause.ariaPressed === "true" ? "Paused" : "Pause";
    run();
});
document.addEventListener("visibilitychange", run);
run();
