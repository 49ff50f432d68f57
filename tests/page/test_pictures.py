"""How a picture gets from somebody to the daemon: from where it comes, what is sent of it, and what stays of the one
before."""
import base64
import struct

import pytest
from conftest import ROOT
from playwright.sync_api import expect
from test_page import SAMPLE, panel, status

LOSSY = ROOT / "tests" / "data" / "images" / "formats" / "lossy.webp"

# A picture of which one half is red, the other blue, or one of noise, as base64.
DRAW = """async ([width, height, noise, type]) => {
    const canvas = Object.assign(document.createElement("canvas"), { width, height });
    const context = canvas.getContext("2d");
    context.fillStyle = "#f00";
    context.fillRect(0, 0, width, height);
    context.fillStyle = "#00f";
    context.fillRect(width / 2, 0, width / 2, height);
    if (noise) {
        const pixels = context.getImageData(0, 0, width, height);
        for (let i = 0; i < pixels.data.length; i++) if (i % 4 < 3) pixels.data[i] = 256 * Math.random();
        context.putImageData(pixels, 0, 0);
    }
    return canvas.toDataURL(type).split(",")[1];
}"""

# The colour in the middle of the upper and of the lower half of what is shown, which is what is sent.
HALVES = """(image) => {
    const [width, height] = [image.naturalWidth, image.naturalHeight];
    const canvas = Object.assign(document.createElement("canvas"), { width, height });
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    return [0.25, 0.75].map((y) => [...context.getImageData(width / 2, y * height, 1, 1).data.slice(0, 3)]);
}"""


def draw(page, width, height, noise=False, type="image/jpeg"):
    return base64.b64decode(page.evaluate(DRAW, [width, height, noise, type]))


def turned(jpeg, orientation):
    """With that orientation in EXIF."""
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01" + struct.pack(">HHIHHI", 0x112, 3, 1, orientation, 0, 0)
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + jpeg[2:]


def animated(webp):
    """Two frames of that WebP."""
    frame = webp[12:]
    width, height = (side & 0x3FFF for side in struct.unpack("<HH", frame[8 + 6:8 + 10]))
    three = lambda number: struct.pack("<I", number)[:3]
    chunk = lambda name, data: name + struct.pack("<I", len(data)) + data
    size = three(width - 1) + three(height - 1)
    anmf = chunk(b"ANMF", three(0) * 2 + size + three(100) + b"\0" + frame)
    chunks = b"WEBP" + chunk(b"VP8X", b"\x02\0\0\0" + size) + chunk(b"ANIM", bytes(6)) + anmf * 2
    return b"RIFF" + struct.pack("<I", len(chunks)) + chunks


def choose(part, name, kind, data):
    part.locator("input[type=file]:not([capture])").set_input_files({"name": name, "mimeType": kind, "buffer": data})


def answered_size(answer):
    size = answer.value.json()["image"]
    return size["width"], size["height"]


# ---- from where ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tab", ["Classify", "Write", "Draw", "Likelihood"])
def test_a_file_may_be_dropped_anywhere(visit, tab):
    """As the browser itself does it, which would otherwise show the file in the place of the page."""
    page = visit()
    panel(page, tab)
    devices = page.context.new_cdp_session(page)
    at = page.locator("#about").bounding_box()
    data = {"items": [], "files": [str(SAMPLE)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver"):
        devices.send("Input.dispatchDragEvent", {"type": kind, "x": at["x"] + 5, "y": at["y"] + 5, "data": data})
    expect(page.get_by_role("tabpanel")).to_have_class("card over")
    devices.send("Input.dispatchDragEvent", {"type": "drop", "x": at["x"] + 5, "y": at["y"] + 5, "data": data})
    part = page.locator({"Draw": "#complete", "Likelihood": "#score"}.get(tab, "#classify"))
    expect(part.get_by_alt_text("Your picture")).to_be_visible()
    expect(part).to_have_class("card")
    if tab == "Likelihood":
        expect(part.get_by_role("radio", name="A picture")).to_be_checked()
    elif tab != "Draw":
        expect(status(part)).to_contain_text("ship")
    assert page.evaluate("location.pathname") == "/"


def test_a_text_that_is_pasted_stays_where_it_is(visit):
    """Office programs put a picture of it beside it."""
    page = visit()
    part = panel(page, "Write")
    page.evaluate("""() => {
        const clipboardData = new DataTransfer();
        clipboardData.setData("text/plain", "text");
        clipboardData.items.add(new File(["x"], "it.png", { type: "image/png" }));
        const paste = () => new ClipboardEvent("paste", { clipboardData, bubbles: true });
        document.querySelector("textarea").dispatchEvent(paste());
    }""")
    page.wait_for_timeout(200)
    expect(part).to_have_attribute("id", "generate")
    expect(page.locator("#classify .error")).to_be_hidden()


def test_a_text_may_be_dragged_into_a_field_and_nowhere_else(visit):
    page = visit()
    panel(page, "Write")
    stopped = """(selector) => {
        const dataTransfer = new DataTransfer();
        dataTransfer.setData("text/uri-list", location.href);
        const event = (type) => new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true });
        const at = document.querySelector(selector);
        return [!at.dispatchEvent(event("dragover")), !at.dispatchEvent(event("drop"))];
    }"""
    assert page.evaluate(stopped, "textarea") == [False, False]
    assert page.evaluate(stopped, "#about") == [True, True]


# ---- what is sent ----------------------------------------------------------------------------------------------------


def test_a_small_picture_is_sent_as_it_is(visit):
    page = visit()
    part = panel(page, "Classify")
    with page.expect_request("**/classify?**") as sent:
        choose(part, "it.webp", "image/webp", LOSSY.read_bytes())
    assert sent.value.headers["content-type"] == "image/webp"
    expect(status(part)).to_contain_text("%")


def test_a_large_picture_is_sent_smaller_and_upright(visit):
    page = visit()
    part = panel(page, "Classify")
    with page.expect_response("**/classify?**") as answer:
        choose(part, "large.jpg", "image/jpeg", turned(draw(page, 3000, 1500), 6))
    assert answered_size(answer) == (1024, 2048)
    upper, lower = part.get_by_alt_text("Your picture").evaluate(HALVES)
    assert upper[0] > 200 > 50 > upper[2] and lower[2] > 200 > 50 > lower[0]  # what was left is above
    with page.expect_response("**/classify?**") as answer:
        choose(part, "just.jpg", "image/jpeg", turned(draw(page, 2048, 1000), 8))
    assert answered_size(answer) == (1000, 2048)
    with page.expect_response("**/classify?**") as answer:
        choose(part, "thin.png", "image/png", draw(page, 9000, 2, type="image/png"))
    assert answered_size(answer) == (2048, 1)


def test_what_the_daemon_does_not_take_is_drawn(visit):
    page = visit(expect=["status of 4"])
    part = panel(page, "Classify")
    part.get_by_role("checkbox", name="cifar10-sima").check()
    film = animated(LOSSY.read_bytes())
    refused = page.request.post(page.url.split("#")[0] + "classify", data=film)
    assert refused.status == 422 and "animation" in refused.text()
    choose(part, "film.webp", "image/webp", film)
    expect(part.locator("article")).to_have_count(2)
    expect(part.get_by_role("alert")).to_be_hidden()
    choose(part, "named-wrongly.png", "image/png", LOSSY.read_bytes())  # declared as what it is not: 415
    expect(part.locator("article")).to_have_count(2)
    expect(part.get_by_role("alert")).to_be_hidden()
    part = panel(page, "Draw")
    choose(part, "film.webp", "image/webp", film)
    part.get_by_role("button", name="Draw").click()
    expect(status(part)).to_contain_text("4 drawn")


def test_what_is_too_large_for_the_daemon_is_sent_smaller(visit, start_daemon):
    page = visit(start_daemon("--body-bytes-max=524288").url, expect=["status of 413"])
    part = panel(page, "Classify")
    picture = draw(page, 600, 600, noise=True, type="image/png")
    assert len(picture) > 524288
    choose(part, "noise.png", "image/png", picture)
    expect(status(part)).to_contain_text("%")
    choose(part, "noise.jpg", "image/png", draw(page, 2000, 2000, noise=True, type="image/png"))
    expect(part.get_by_role("alert")).to_contain_text("524288")  # noise does not get small: the daemon says its limit


# ---- what stays ------------------------------------------------------------------------------------------------------


def test_results_are_those_of_what_is_chosen(visit):
    page = visit(expect=["status of 422"])
    part = panel(page, "Classify")
    part.get_by_role("checkbox", name="cifar10-sima").check()
    part.get_by_role("button", name="Sample").click()
    expect(part.locator("article")).to_have_count(2)
    page.route("**/classify?**", lambda route: None)  # no answer comes
    part.get_by_role("checkbox", name="cifar10-sima").uncheck()
    expect(part.locator("article")).to_have_count(1)
    part.get_by_role("checkbox", name="cifar10-aft-conv").uncheck()
    expect(part.locator("article")).to_have_count(0)
    expect(status(part)).to_have_text("No model is ticked.")
    page.unroute("**/classify?**")
    part.get_by_role("checkbox", name="cifar10-aft-conv").check()
    expect(part.locator("article")).to_have_count(1)
    choose(part, "cut.jpg", "image/jpeg", SAMPLE.read_bytes()[:500])
    expect(part.get_by_role("alert")).to_contain_text("JPEG")
    expect(part.locator("article")).to_have_count(0)


def test_a_file_that_cannot_be_read_leaves_nothing_of_the_one_before(visit):
    page = visit()
    for name, button in (("Classify", None), ("Draw", "Draw")):
        part = panel(page, name)
        part.get_by_role("button", name="Sample").click()
        expect(part.get_by_alt_text("Your picture")).to_be_visible()
        if button:
            part.get_by_role("button", name=button).click()
            expect(status(part)).to_contain_text("4 drawn")
        else:
            expect(status(part)).to_contain_text("ship")
        choose(part, "notes.txt", "text/plain", b"no picture")
        expect(part.get_by_role("alert")).to_have_text("This browser cannot read “notes.txt” as a picture.")
        expect(part.get_by_alt_text("Your picture")).to_be_hidden()
        expect(part.locator("article, canvas")).to_have_count(0)
        expect(status(part)).to_contain_text("appear here")
        expect(part.get_by_role("button", name="Reuse the seed")).to_be_hidden()


def test_the_picture_that_was_chosen_last_counts(visit):
    """Also where the one before takes longer to be read."""
    page = visit()
    part = panel(page, "Classify")
    page.evaluate("""() => {
        const read = window.createImageBitmap;
        window.createImageBitmap = async (file, ...more) => {
            if (file.name === "slow.jpg") await new Promise((go) => { window.go = go; });
            return read(file, ...more);
        };
    }""")
    choose(part, "slow.jpg", "image/jpeg", draw(page, 64, 64))
    part.get_by_role("button", name="Sample").click()
    expect(status(part)).to_contain_text("ship")
    page.evaluate("window.go()")
    page.wait_for_timeout(300)
    expect(part.get_by_alt_text("Your picture")).to_have_js_property("naturalWidth", 32)
    expect(status(part)).to_contain_text("ship")


def test_a_picture_that_is_still_being_read_is_waited_for(visit):
    page = visit()
    part = panel(page, "Draw")
    page.route("**/sample.jpg", lambda route: (page.wait_for_timeout(300), route.continue_()))
    with page.expect_request("**/complete?**") as sent:
        part.get_by_role("button", name="Sample").click()
        part.get_by_role("button", name="Draw").click()
    assert "rows=8" in sent.value.url
    expect(status(part)).to_contain_text("4 drawn")
