// picture.js - the part of a panel that takes a picture: dropped, pasted, chosen, photographed, or the sample.
import { call } from "./api.js";
import { make } from "./elements.js";

// What the daemon decodes. Anything else that the browser can show (GIF, AVIF, a phone's HEIC) is sent as a JPEG.
const READ_BY_DAEMON = ["image/jpeg", "image/png", "image/webp"];

async function forDaemon(file) {
    if (READ_BY_DAEMON.includes(file.type)) return file;
    let bitmap;
    try {
        bitmap = await createImageBitmap(file);
    } catch {
        throw new Error(`this browser cannot read ${file.name ? `“${file.name}”` : "that"} as a picture`);
    }
    const canvas = make("canvas", { width: bitmap.width, height: bitmap.height });
    const context = canvas.getContext("2d");
    context.fillStyle = "#fff"; // JPEG has no transparency
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(bitmap, 0, 0);
    return new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.95));
}

function fileButton(text, className, take, more = {}) {
    const input = make("input", { type: "file", accept: "image/*", ...more });
    input.addEventListener("change", () => {
        if (input.files.length > 0) take(input.files[0]);
        input.value = ""; // the same file may be chosen again
    });
    return make("label", { className: `button ${className}` }, text, input);
}

export class Picture {
    blob = null; // what the daemon gets
    #image = make("img", { alt: "Your picture", hidden: true });
    #shade = make("div", { className: "shade", hidden: true });
    #hint = make("p", { className: "hint" }, "Drop or paste a picture here, or");
    #changed;
    #failed;

    /** Builds itself into `panel`'s .picture; `changed` is called with each new picture, `failed` with an error. */
    constructor(panel, changed, failed) {
        this.#changed = changed;
        this.#failed = failed;
        const take = (file) => this.take(file);
        const sample = make("button", { type: "button" }, "Sample");
        sample.addEventListener("click", () => this.#takeSample());
        panel.querySelector(".picture").append(
            make("div", { className: "frame" }, this.#image, this.#shade),
            this.#hint,
            make("div", { className: "row" }, fileButton("Choose…", "", take),
                fileButton("Photograph", "camera", take, { capture: "environment" }), sample));
        this.#listen(panel);
        this.#image.addEventListener("load", () => {
            // A picture of 32 x 32 shows its pixels, a photograph is made smaller smoothly.
            this.#image.classList.toggle("small", this.#image.naturalWidth <= 128);
        });
    }

    #listen(panel) {
        for (const type of ["dragenter", "dragover"])
            panel.addEventListener(type, () => panel.classList.add("over"));
        for (const type of ["dragleave", "drop"])
            panel.addEventListener(type, () => panel.classList.remove("over"));
        panel.addEventListener("drop", (event) => {
            if (event.dataTransfer.files.length > 0) this.take(event.dataTransfer.files[0]);
        });
    }

    async take(file) {
        try {
            this.blob = await forDaemon(file);
        } catch (error) {
            this.#failed(error);
            return;
        }
        URL.revokeObjectURL(this.#image.src);
        this.#image.src = URL.createObjectURL(this.blob);
        this.#image.hidden = false;
        this.#hint.hidden = true;
        this.#changed();
    }

    async #takeSample() {
        try {
            await this.take(await (await call("page/sample.jpg")).blob());
        } catch (error) {
            this.#failed(error);
        }
    }

    /** Show the picture as a square cut from its middle, and cover all below this share of it; null shows all of it. */
    shade(share) {
        this.#image.classList.toggle("square", share !== null);
        this.#shade.hidden = share === null || this.blob === null;
        this.#shade.style.top = `${100 * (share ?? 0)}%`;
    }
}

/** Files that are dropped beside a panel do not replace the page; pasted ones go to the panel that is open. */
export function routePictures(pictureOf) {
    for (const type of ["dragover", "drop"]) addEventListener(type, (event) => event.preventDefault());
    addEventListener("paste", (event) => {
        const file = [...event.clipboardData.files].find(({ type }) => type.startsWith("image/"));
        if (file) pictureOf()?.take(file);
    });
}
