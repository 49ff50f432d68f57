// revisions.js - a text that is continued or edited again and again, and the way back.

const KEPT = 50;

/** Stands for what a panel shows of a text: `take` returns that, `put` shows it again; `undo` is the button. */
export class Revisions {
    #kept = [];
    #take;
    #put;
    #undo;

    constructor(undo, take, put) {
        this.#take = take;
        this.#put = put;
        this.#undo = undo;
        undo.addEventListener("click", () => this.#goBack());
    }

    /** Keep what is shown, before something else is. */
    keep() {
        this.#kept.push(this.#take());
        if (this.#kept.length > KEPT) this.#kept.shift();
        this.#undo.hidden = false;
    }

    #goBack() {
        this.#put(this.#kept.pop());
        this.#undo.hidden = this.#kept.length === 0;
    }
}
