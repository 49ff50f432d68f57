// seen.js - a picture as a model sees it, drawn by the browser: a few levels off, as its filter is not the daemon's.
import { make } from "./elements.js";

/** Where a side of so many pixels begins on one of `wanted`, both in the middle; halves as the daemon rounds them. */
function placed(pixels, wanted) {
    const before = Math.floor((pixels - wanted) / 2);
    return (pixels - wanted) % 2 !== 0 && before % 2 !== 0 ? -before - 1 : -before;
}

/** A canvas of a model's height and width: the picture's shorter side resized to theirs, then its centre, on black
 *  where it does not reach. */
export async function drawSeen(picture, [height, width]) {
    const bitmap = await createImageBitmap(picture, { imageOrientation: "from-image", colorSpaceConversion: "none" });
    const canvas = make("canvas", { width, height });
    const context = canvas.getContext("2d");
    context.fillRect(0, 0, width, height);
    const shorter = Math.min(bitmap.width, bitmap.height);
    const sides = [bitmap.width, bitmap.height].map((pixels) => Math.floor(Math.min(height, width) * pixels / shorter));
    const at = [placed(sides[0], width), placed(sides[1], height), ...sides];
    context.fillStyle = "#fff"; // what is transparent lies on white
    context.fillRect(...at);
    context.imageSmoothingQuality = "high";
    context.drawImage(bitmap, ...at);
    bitmap.close();
    return canvas;
}
