"""Pictures that are scored, and the map of how surprising each of their pixels is."""
import base64
import json
import math
import shutil
import struct

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import LOOKS, ROOT
from playwright.sync_api import expect
from test_command import command_of, run
from test_models import with_states
from test_page import SAMPLE, scoring, status
from test_pictures import choose, draw, turned

PIXELS = ROOT / "tests" / "data" / "golden" / "pixels-local"  # 4 x 4 of them
RAMP = [(20, 11, 52), (101, 21, 110), (187, 55, 84), (249, 142, 9), (252, 255, 164)]  # for 0, 2, 4, 6 and 8 bits

# The size of a canvas and its pixels, each as R, G, B.
CONTENTS = """(canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const pixels = Array.from({ length: data.length / 4 }, (_, i) => [...data.slice(4 * i, 4 * i + 3)]);
    return [canvas.width, canvas.height, pixels];
}"""


def seen(part):
    return part.get_by_role("img", name="The picture", exact=True)


def map_of(part):
    return part.get_by_role("img", name="Map of the bits for each pixel")


def scored(part):
    """What the daemon answers to the button."""
    with part.page.expect_response("**/score**") as answer:
        part.get_by_role("button", name="Score").click()
    return answer.value.json()


def score_sample(part):
    part.get_by_role("button", name="Sample").click()
    expect(part.get_by_alt_text("Your picture")).to_be_visible()
    return scored(part)


def bits_of(answer):
    """Of each pixel those of its sub-pixels; of the first one, which may have none, the others."""
    none = answer["dims"] - len(answer["log2_probs"])
    bits = [None] * none + [-each for each in answer["log2_probs"]]
    return [[b for b in bits[i:i + 3] if b is not None] for i in range(0, len(bits), 3)]


def mean(values):
    return sum(values) / len(values)


def colour(bits):
    at = min(bits / 2, 4)
    below = min(int(at), 3)
    return [a + (at - below) * (b - a) for a, b in zip(RAMP[below], RAMP[below + 1])]


def off(pixels, others):
    """How far they are from each other on average, in levels."""
    return mean([abs(a - b) for one, other in zip(pixels, others, strict=True) for a, b in zip(one, other)])


def in_words(answer):
    scored = len(answer["log2_probs"])
    which = f"{'these' if scored == answer['dims'] else 'the last'} {scored} sub-pixels"
    stored = math.ceil(-sum(answer["log2_probs"]) / 8)
    return (f"{answer['bits_per_dim']:.3f} bits per sub-pixel: the model would compress "
            f"{which} to {stored} bytes.")


def oblong(folder):
    """The small model for 2 x 7 pixels and without start embedding: the first sub-pixel has no probability."""
    shutil.copytree(PIXELS, folder)
    config = json.loads((folder / "config.json").read_text())
    config["input"]["size"] = [2, 7]
    (folder / "config.json").write_text(json.dumps(config))
    whole = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", whole[:8])[0]
    header, data, kept = json.loads(whole[8:8 + size]), whole[8 + size:], b""
    del header["start_embed"]
    for tensor in (value for name, value in header.items() if name != "__metadata__"):
        begin, end = tensor["data_offsets"]
        tensor["data_offsets"] = [len(kept), len(kept) + end - begin]
        kept += data[begin:end]
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + kept)
    return str(folder)


# ---- what is shown ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width, theme", LOOKS)
def test_a_picture_is_scored_pixel_by_pixel(visit, shoot, theme, width):
    page = visit(width=width, height=1000 if width > 500 else 2000, color_scheme=theme)
    part = scoring(page, "A picture")
    answer = score_sample(part)
    expect(status(part)).to_have_text(in_words(answer))
    bits = bits_of(answer)
    across, down, pixels = map_of(part).evaluate(CONTENTS)
    assert (across, down) == (16, 16) and off(pixels, [colour(mean(each)) for each in bits]) < 1
    means = [mean(each) for each in bits]
    most = means.index(max(means))
    expect(part.locator("figcaption").last).to_contain_text(
        f"The most: {max(means):.2f}, in row {most // 16 + 1}, column {most % 16 + 1}.")
    side = map_of(part).bounding_box()["width"]
    at = lambda row, column: {"x": (column + 0.5) / 16 * side, "y": (row + 0.5) / 16 * side}
    for canvas, row, column in ((map_of(part), 9, 0), (seen(part), 3, 14)):
        (canvas.tap if width < 500 else canvas.hover)(position=at(row, column))
        each = bits[16 * row + column]
        expect(part.locator(".told")).to_have_text(
            f"Pixel in row {row + 1}, column {column + 1}: {mean(each):.2f} bits per sub-pixel; "
            f"red {each[0]:.2f}, green {each[1]:.2f}, blue {each[2]:.2f}")
        for mark, of in zip(part.locator(".mark").all(), (seen(part), map_of(part))):  # in both pictures
            inner, outer = mark.bounding_box(), of.bounding_box()
            assert inner["x"] - outer["x"] == pytest.approx(column / 16 * side, abs=1)
            assert inner["y"] - outer["y"] == pytest.approx(row / 16 * side, abs=1)
    assert seen(part).bounding_box()["y"] == map_of(part).bounding_box()["y"]  # beside each other, on a phone too
    shoot(page, f"surprise-{theme}-{width}")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_pixels_are_gone_to_with_the_arrow_keys(visit):
    page = visit()
    part = scoring(page, "A picture")
    score_sample(part)
    pixels, told = part.get_by_role("application", name="Pixels"), part.locator(".told")
    expect(told).to_contain_text("arrow keys")
    expect(told).to_have_role("status")
    steps = [("ArrowLeft", 1, 1), ("ArrowLeft", 1, 1), ("ArrowUp", 1, 1), ("ArrowRight", 1, 2), ("ArrowDown", 2, 2),
             ("ArrowLeft", 2, 1), ("ArrowLeft", 2, 1), ("ArrowUp", 1, 1)]
    steps += [("ArrowRight", 1, min(i, 16)) for i in range(2, 18)]
    steps += [("ArrowDown", min(i, 16), 16) for i in range(2, 18)]
    for key, row, column in steps:
        pixels.press(key)
        expect(told).to_contain_text(f"Pixel in row {row}, column {column}: ")


def seen_by_daemon(page, picture, model="cifar10-pixels-16", height=16, width=16):
    """All rows but the last of what the model gets of it: they can be kept."""
    path = f"complete?model={model}&rows={height - 1}&stream=true"
    events = page.request.post(page.url.split("#")[0] + path, data=picture).text().split("\n")
    rows = [json.loads(event[6:]) for event in events if event.startswith("data: ") and "rgb_base64" in event]
    data = b"".join(base64.b64decode(each["rgb_base64"]) for each in rows)[:(height - 1) * width * 3]
    return [data[i:i + 3] for i in range(0, len(data), 3)]


def test_beside_the_map_is_what_the_model_sees(visit):
    """Upright, cut from the middle, as small: but for how browsers make pictures smaller."""
    page = visit()
    part = scoring(page, "A picture")
    pictures = [("sample.jpg", "image/jpeg", SAMPLE.read_bytes()),
                ("turned.jpg", "image/jpeg", turned(draw(page, 300, 200), 6)),
                ("wide.png", "image/png", draw(page, 301, 90, type="image/png")),
                ("high.png", "image/png", draw(page, 7, 33, type="image/png"))]
    for name, kind, data in pictures:
        choose(part, name, kind, data)
        expect(map_of(part)).to_have_count(0)
        scored(part)
        across, down, pixels = seen(part).evaluate(CONTENTS)
        assert (across, down) == (16, 16)
        assert off(pixels[:15 * 16], seen_by_daemon(page, data)) < 4, name


def test_pictures_that_are_not_square_and_a_first_sub_pixel_without_probability(visit, start_daemon, tmp_path):
    page = visit(start_daemon("--model", oblong(tmp_path / "oblong"), "--model", str(PIXELS)).url)
    part = scoring(page, "A picture")
    part.get_by_label("Model").select_option("oblong")
    answer = score_sample(part)
    assert answer["model"] == "oblong" and (answer["dims"], len(answer["log2_probs"])) == (42, 41)
    expect(status(part)).to_have_text(in_words(answer))
    bits = bits_of(answer)
    across, down, pixels = map_of(part).evaluate(CONTENTS)
    assert (across, down) == (7, 2) and off(pixels, [colour(mean(each)) for each in bits]) < 1
    box = map_of(part).bounding_box()
    assert box["width"] == pytest.approx(3.5 * box["height"], rel=0.02)
    _, _, pixels = seen(part).evaluate(CONTENTS)
    assert [pixel == [0, 0, 0] for pixel in pixels] == 2 * [True, True, False, False, True, True, True]
    assert off(pixels[:7], seen_by_daemon(page, SAMPLE.read_bytes(), "oblong", 2, 7)) < 4
    part.get_by_role("application").press("ArrowRight")
    expect(part.locator(".told")).to_have_text(
        f"Pixel in row 1, column 1: {mean(bits[0]):.2f} bits per sub-pixel; "
        f"red is the first, green {bits[0][0]:.2f}, blue {bits[0][1]:.2f}")
    part.get_by_label("Model").select_option("pixels-local")
    expect(map_of(part)).to_have_count(0)  # was the other model's
    expect(part.locator(".told, .scale")).to_have_count(2)
    expect(part.locator(".told:visible, .scale:visible")).to_have_count(0)
    answer = scored(part)
    assert answer["model"] == "pixels-local" and len(answer["log2_probs"]) == 48
    expect(status(part)).to_have_text(in_words(answer))


def test_without_the_size_of_the_models_pictures_there_is_a_map_of_square_ones(visit, start_daemon, tmp_path):
    """As where a key may not see the list of models."""
    def prepare(page):
        def answer(route):
            models = route.fetch().json()
            for model in models["data"]:
                model.pop("input_size", None)
            route.fulfill(json=models)
        page.route("**/v1/models", answer)

    page = visit(start_daemon("--model", oblong(tmp_path / "oblong")).url, prepare=prepare)
    part = scoring(page, "A picture")
    score_sample(part)
    assert map_of(part).evaluate(CONTENTS)[:2] == [16, 16]
    part.get_by_label("Model").select_option("oblong")
    expect(status(part)).to_have_text(in_words(scored(part)))
    expect(map_of(part)).to_have_count(0)


def test_a_picture_that_only_the_daemon_reads_has_a_map_alone(visit):
    page = visit()
    part = scoring(page, "A picture")
    page.evaluate("() => { window.createImageBitmap = () => Promise.reject(new Error('cannot')); }")
    choose(part, "it.jpg", "image/jpeg", SAMPLE.read_bytes())
    scored(part)
    expect(map_of(part)).to_be_visible()
    expect(seen(part)).to_have_count(0)


def test_a_picture_is_scored_by_command(visit, tmp_path):
    name = "it's $HOME; a ship.jpg"
    (tmp_path / name).write_bytes(SAMPLE.read_bytes())
    page = visit()
    part = scoring(page, "A picture")
    command = command_of(part)
    choose(part, name, "image/jpeg", SAMPLE.read_bytes())
    expect(command).to_contain_text("a ship.jpg")
    expect(command).to_contain_text("/score?model=cifar10-pixels-16")
    assert json.loads(run(command.text_content(), tmp_path)) == scored(part)


# ---- what fails, and what stays --------------------------------------------------------------------------------------


def test_what_is_wrong_is_said(visit):
    page = visit(expect=["status of 4"])
    part = scoring(page, "A picture")
    alert, button = part.get_by_role("alert"), part.get_by_role("button", name="Score")
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "/score" in request.url else None)
    button.click()
    expect(alert).to_have_text("There is no picture yet: choose one first.")
    assert asked == []
    score_sample(part)
    expect(alert).to_be_hidden()
    expect(map_of(part)).to_be_visible()
    choose(part, "notes.txt", "text/plain", b"no picture")
    expect(alert).to_have_text("This browser cannot read “notes.txt” as a picture.")
    expect(map_of(part)).to_have_count(0)
    choose(part, "cut.jpg", "image/jpeg", SAMPLE.read_bytes()[:500])
    expect(status(part)).to_contain_text("appears here")
    button.click()
    expect(alert).to_contain_text("JPEG")
    expect(status(part)).to_be_empty()
    choose(part, "sample.jpg", "image/jpeg", SAMPLE.read_bytes())
    expect(alert).to_be_hidden()
    # A model that somebody has taken away, then one that comes back.
    part.locator("option").evaluate("(option) => { option.value = 'gone'; }")
    button.click()
    expect(alert).to_contain_text("gone")
    expect(map_of(part)).to_have_count(0)
    page.route("**/score?**", lambda route: route.fulfill(status=400, json={"error": {"message": "not <b>today</b>"}}))
    button.click()
    expect(alert).to_have_text("Not <b>today</b>.")


def test_a_daemon_without_such_a_model_says_so(visit):
    page = visit(prepare=with_states({"cifar10-sima": "loaded"}))
    part = scoring(page, "A picture")
    expect(status(part)).to_have_text("This daemon has no model that draws pictures.")
    expect(part.get_by_role("button", name="Score")).to_be_disabled()
    part.get_by_role("button", name="Sample").click()
    expect(part.get_by_alt_text("Your picture")).to_be_visible()
    expect(status(part)).to_have_text("This daemon has no model that draws pictures.")


def test_a_daemon_that_left_and_a_model_that_is_loaded(visit, start_daemon):
    own = start_daemon("--models-lazy=true")
    page = visit(own.url, expect=["status of 503", "ERR_CONNECTION_REFUSED", "Failed to load resource"])
    part = scoring(page, "A picture")
    part.get_by_role("button", name="Sample").click()
    button = part.get_by_role("button", name="Score")
    button.click()
    expect(status(part)).to_contain_text("bits per sub-pixel")
    own.stop()
    button.click()
    expect(part.get_by_role("alert")).to_have_text("The daemon cannot be reached.")
    expect(map_of(part)).to_have_count(0)


def test_a_map_is_that_of_the_picture_that_is_shown(visit):
    page = visit()
    part = scoring(page, "A picture")
    score_sample(part)
    choose(part, "it.jpg", "image/jpeg", draw(page, 64, 64))
    expect(map_of(part)).to_have_count(0)
    expect(status(part)).to_have_text("How surprising each pixel is appears here.")
    held = []
    page.route("**/score?**", lambda route: held.append(route))
    with page.expect_request("**/score?**"):
        part.get_by_role("button", name="Score").click()
    expect(status(part)).to_have_text("Scoring…")
    part.get_by_role("button", name="Sample").click()  # while the other one is scored
    expect(status(part)).to_have_text("How surprising each pixel is appears here.")
    held[0].continue_()
    page.wait_for_timeout(300)
    expect(map_of(part)).to_have_count(0)
    expect(status(part)).to_have_text("How surprising each pixel is appears here.")
    expect(part.get_by_role("alert")).to_be_hidden()
    page.unroute("**/score?**")
    answer = scored(part)
    expect(status(part)).to_have_text(in_words(answer))


def test_a_text_that_was_scored_stays_while_a_picture_is(visit):
    page = visit()
    part = scoring(page, "A text")
    part.get_by_role("button", name="Score").click()
    expect(status(part)).to_contain_text("bits per byte")
    score_sample(scoring(page, "A picture"))
    expect(part).to_be_hidden()
    part = scoring(page, "A text")
    expect(status(part)).to_contain_text("bits per byte")
    expect(part.get_by_role("region", name="Text")).to_have_text("The history of Rome")
    expect(page.locator("#score-picture")).to_be_hidden()
