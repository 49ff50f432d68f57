// maps.js - the pixels of a picture beside a map of how surprising each was, and what there is to tell of each.
import { make } from "./elements.js";

// The ramp of the daemon's own maps: lightness rises all the way, so that the order is seen without colours too.
const RAMP = [[20, 11, 52], [101, 21, 110], [187, 55, 84], [249, 142, 9], [252, 255, 164]];
const BITS_MAX = 8; // at the ramp's end: as many as to say any of the 256 values
const COLOURS = ["red", "green", "blue"];

function colourOf(bits) {
    const at = Math.min(Math.max(bits / BITS_MAX, 0), 1) * (RAMP.length - 1);
    const below = Math.min(Math.floor(at), RAMP.length - 2);
    return RAMP[below].map((from, c) => from + (at - below) * (RAMP[below + 1][c] - from));
}

/** A canvas whose pixels, row by row, have these colours. */
function painted(colours, width, height) {
    const pixels = new ImageData(width, height);
    for (const [i, colour] of colours.entries()) pixels.data.set([...colour, 255], 4 * i);
    const canvas = make("canvas", { width, height });
    canvas.getContext("2d").putImageData(pixels, 0, 0);
    return canvas;
}

function mean(values) {
    const known = values.filter((value) => value !== null);
    return known.reduce((sum, value) => sum + value, 0) / known.length;
}

const inBits = (bits) => (bits < 1000 ? bits.toFixed(2) : bits.toExponential(1));

function figure(canvas, name, caption) {
    Object.assign(canvas, { role: "img", ariaLabel: name });
    canvas.style.aspectRatio = `${canvas.width} / ${canvas.height}`;
    const mark = make("div", { className: "mark", hidden: true });
    return make("figure", {}, make("div", { className: "frame" }, canvas, mark), make("figcaption", {}, caption));
}

export class Maps {
    #region;
    #output;
    #pixels = []; // the bits of each one's sub-pixels
    #width = 1; // pixels in a row
    #here = -1; // the pixel that is told of

    /** Builds itself into `region`; `output` tells of the pixel that is pointed at, touched or gone to with the arrow
     *  keys. */
    constructor(region, output) {
        this.#region = region;
        this.#output = output;
        for (const type of ["pointermove", "click"])
            region.addEventListener(type, (event) => {
                if (event.target.localName === "canvas") this.#tell(this.#pixelAt(event));
            });
        region.addEventListener("keydown", (event) => this.#go(event));
        this.clear();
    }

    clear() {
        this.#region.replaceChildren();
        this.#region.hidden = this.#output.hidden = true;
        this.#here = -1;
    }

    /** bits: of each sub-pixel, row by row, red before green before blue; null: there are none;  size: height, width;
     *  seen: a canvas of the picture, or null */
    show(bits, [height, width], seen) {
        this.clear();
        this.#width = width;
        this.#pixels = Array.from({ length: height * width }, (_, i) => bits.slice(3 * i, 3 * i + 3));
        const means = this.#pixels.map(mean);
        const most = means.reduce((best, value, i) => (value > means[best] ? i : best), 0);
        if (seen)
            this.#region.append(
                figure(seen, "The picture", `The picture at the model’s ${width}\u00A0×\u00A0${height} pixels.`));
        this.#region.append(figure(painted(means.map(colourOf), width, height), "Map of the bits for each pixel",
            `Mean bits of each pixel’s red, green and blue; a blind guess takes ${BITS_MAX}. The most: ${inBits(means[most])}, in ` +
                `${this.#place(most)}.`));
        this.#output.textContent = "Point at a pixel, or go to it with the arrow keys, to see how surprising it was.";
        this.#region.hidden = this.#output.hidden = false;
    }

    #place(i) {
        return `row ${Math.floor(i / this.#width) + 1}, column ${i % this.#width + 1}`;
    }

    #pixelAt({ target, offsetX, offsetY }) {
        const at = (offset, side, pixels) => Math.min(Math.max(Math.floor(offset / side * pixels), 0), pixels - 1);
        return at(offsetY, target.clientHeight, target.height) * this.#width
            + at(offsetX, target.clientWidth, target.width);
    }

    #go(event) {
        const [right, down] =
            { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key] ?? [0, 0];
        if (right === 0 && down === 0) return;
        event.preventDefault();
        const column = this.#here % this.#width + right;
        const to = this.#here + right + down * this.#width;
        if (this.#here < 0) this.#tell(0);
        else if (column >= 0 && column < this.#width && to >= 0 && to < this.#pixels.length) this.#tell(to);
    }

    #tell(i) {
        if (i === this.#here) return;
        this.#here = i;
        const each = this.#pixels[i].map((bits, c) => `${COLOURS[c]} ${bits === null ? "is the first" : inBits(bits)}`);
        this.#output.textContent =
            `Pixel in ${this.#place(i)}: ${inBits(mean(this.#pixels[i]))} bits per sub-pixel; ${each.join(", ")}`;
        const share = (pixels, side) => `${100 * pixels / side}%`;
        const rows = this.#pixels.length / this.#width;
        for (const mark of this.#region.querySelectorAll(".mark")) {
            mark.hidden = false;
            Object.assign(mark.style, {
                left: share(i % this.#width, this.#width), width: share(1, this.#width),
                top: share(Math.floor(i / this.#width), rows), height: share(1, rows),
            });
        }
    }
}

/** What the colours mean. */
export function fillScale(scale) {
    const steps = Array.from({ length: 64 }, (_, i) => colourOf(BITS_MAX * i / 63));
    const bar = painted(steps, steps.length, 1);
    bar.ariaHidden = "true";
    scale.append("Bits per sub-pixel: 0", bar, `${BITS_MAX} or more`);
}
