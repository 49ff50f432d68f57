// sending.js - what is sent of a picture: the file where the daemon takes it, otherwise what the browser draws of it.
import { callModel } from "./api.js";
import { make } from "./elements.js";

const READ_BY_DAEMON = ["image/jpeg", "image/png", "image/webp"];
const SIDE_MAX = 2048; // pixels: models see far fewer, and more of them only take longer to be sent and decoded
const SIDE_SMALL = 1024; // of what was too large for the daemon, or for a proxy before it, all the same

const read = (file) => createImageBitmap(file, { imageOrientation: "from-image" });

/** The picture as a JPEG of at most `side` pixels a side. Closes the bitmap. */
function drawn(bitmap, side) {
    const scale = Math.min(1, side / Math.max(bitmap.width, bitmap.height));
    const [width, height] = [bitmap.width, bitmap.height].map((pixels) => Math.max(1, Math.round(scale * pixels)));
    const canvas = make("canvas", { width, height });
    const context = canvas.getContext("2d");
    context.fillStyle = "#fff"; // JPEG has no transparency
    context.fillRect(0, 0, width, height);
    context.imageSmoothingQuality = "high";
    context.drawImage(bitmap, 0, 0, width, height);
    bitmap.close();
    return new Promise((resolve, reject) => canvas.toBlob(
        (blob) => (blob ? resolve(blob) : reject(new Error("no room for the picture"))), "image/jpeg", 0.95));
}

/** What to send of a file. One that the daemon may read goes as it is, unless it is large: what is wrong with it, the
 *  daemon says. */
export async function prepare(file) {
    const mayBeRead = READ_BY_DAEMON.includes(file.type);
    try {
        const bitmap = await read(file);
        if (!mayBeRead || Math.max(bitmap.width, bitmap.height) > SIDE_MAX) return await drawn(bitmap, SIDE_MAX);
        bitmap.close();
        return file;
    } catch {
        if (mayBeRead) return file;
        throw new Error(`this browser cannot read ${file.name ? `“${file.name}”` : "that"} as a picture`);
    }
}

/** How large to draw what was refused; 0: drawing it is no use. The browser would draw what there is of a broken JPEG
 *  or PNG, which is not what was meant. */
function sideAfter({ status }, picture) {
    if (picture === null) return 0;
    if (status === 413) return SIDE_SMALL;
    const isOfKind = status === 415 || (status === 422 && !["image/jpeg", "image/png"].includes(picture.type));
    return isOfKind ? SIDE_MAX : 0;
}

const redrawn = new WeakMap(); // of pictures that were refused: a promise of what is sent in their place, or of null
const redraw = (picture, side) => read(picture).then((bitmap) => drawn(bitmap, side)).catch(() => null);

/** callModel() with a picture, which is drawn anew if the daemon does not take it as it is (an animated WebP). */
export async function sendPicture(path, picture, signal, waits) {
    const send = (body) => callModel(path, { method: "POST", body, signal }, waits);
    try {
        return await send((await redrawn.get(picture)) ?? picture);
    } catch (error) {
        const side = sideAfter(error, picture);
        if (side === 0) throw error;
        if (!redrawn.has(picture)) redrawn.set(picture, redraw(picture, side));
        const other = await redrawn.get(picture);
        if (other === null) throw error;
        return send(other);
    }
}
