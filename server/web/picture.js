// picture.js - the part of a panel that takes a picture: dropped, pasted, chosen, photographed, or the sample.
import { call } from "./api.js";
import { make } from "./elements.js";
import { prepare } from "./sending.js";

function fileButton(text, className, take, more = {}) {
    const input = make("input", { type: "file", accept: "image/*", ...more });
    input.addEventListener("change", () => {
        if (input.files.length > 0) take([...input.files]);
        input.value = ""; // the same file may be chosen again
    });
    return make("label", { className: `button ${className}` }, text, input);
}

export class Picture {
    blob = null; // what the daemon gets
    name = null; // of its file, for a command
    ready = Promise.resolve(); // once what was chosen last has been read
    #image = make("img", { alt: "Your picture", hidden: true });
    #shade = make("div", { className: "shade", hidden: true });
    #hint = make("p", { className: "hint" });
    #panel;
    #changed;
    #failed;
    #many;
    #taken = 0;

    /** Builds itself into `panel`'s .picture; `changed` is called when there is another picture or none any more,
     *  `failed` with an error, and `many`, where the panel takes several pictures at once, with their files. */
    constructor(panel, changed, failed, many = null) {
        this.#panel = panel;
        this.#changed = changed;
        this.#failed = failed;
        this.#many = many;
        this.#hint.append(many ? "Drop or paste pictures here, or" : "Drop or paste a picture here, or");
        const take = (files) => this.take(files);
        const sample = make("button", { type: "button" }, "Sample");
        sample.addEventListener("click", () => {
            this.ready = this.#takeSample();
        });
        panel.querySelector(".picture").append(
            make("div", { className: "frame" }, this.#image, this.#shade),
            this.#hint,
            make("div", { className: "row" }, fileButton("Choose…", "", take, { multiple: many !== null }),
                fileButton("Photograph", "camera", take, { capture: "environment" }), sample));
        this.#image.addEventListener("load", () => {
            // A picture of 32 x 32 shows its pixels, a photograph is made smaller smoothly.
            this.#image.classList.toggle("small", this.#image.naturalWidth <= 128);
        });
    }

    /** Take these files, or the first of them; one that cannot be read leaves no picture behind. */
    take(files) {
        if (files.length === 1 || !this.#many) {
            this.ready = this.#read(files[0]);
            return;
        }
        this.#taken++;
        this.#show(null);
        this.#many(files);
        this.#panel.dispatchEvent(new Event("input"));
    }

    async #read(file) {
        const mine = ++this.#taken;
        let blob = null, failure = null;
        try {
            blob = await prepare(file);
        } catch (error) {
            failure = error;
        }
        if (mine !== this.#taken) return; // another one was quicker
        this.#show(blob, file.name);
        this.#changed();
        this.#panel.dispatchEvent(new Event("input")); // for what is shown of all that was entered
        if (failure) this.#failed(failure);
    }

    #show(blob, name) {
        this.blob = blob;
        this.name = blob && (name || "picture.jpg");
        URL.revokeObjectURL(this.#image.src);
        if (blob) this.#image.src = URL.createObjectURL(blob);
        else this.#image.removeAttribute("src");
        this.#image.hidden = blob === null;
        this.#hint.hidden = blob !== null;
    }

    async #takeSample() {
        try {
            await this.#read(await (await call("page/sample.jpg")).blob());
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

// A text that is dragged may be dropped into a field.
const isForField = (event) => !event.dataTransfer?.types.includes("Files") && event.target.closest?.("input, textarea");

/** Files that are dropped anywhere on the page or pasted go to `take`; whatever else is dropped does not replace the
 *  page. `mark` is told whether files are being dragged over it. */
export function routePictures(take, mark) {
    addEventListener("dragover", (event) => {
        if (isForField(event)) return;
        event.preventDefault();
        mark(event.dataTransfer?.types.includes("Files"));
    });
    addEventListener("dragleave", (event) => {
        if (event.relatedTarget === null) mark(false); // has left the page
    });
    addEventListener("drop", (event) => {
        mark(false);
        if (isForField(event)) return;
        event.preventDefault();
        if (event.dataTransfer?.files.length > 0) take([...event.dataTransfer.files]);
    });
    addEventListener("paste", (event) => {
        // Office programs put a picture of a text beside it.
        if (event.clipboardData.types.includes("text/plain") && event.target.closest?.("input, textarea")) return;
        const files = [...event.clipboardData.files].filter(({ type }) => type.startsWith("image/"));
        if (files.length > 0) take(files);
    });
}
