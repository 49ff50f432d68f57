"""What somebody does at the page, through each of its uses, against the real daemon."""
import base64
import codecs
import json
import math
import re
import shutil
import time

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import LIMIT_MS, ROOT, SLOW
from playwright.sync_api import expect

SAMPLE = ROOT / "weights" / "models" / "cifar10-aft-conv" / "sample.jpg"
GIF = base64.b64decode("R0lGODlhAQABAPAAAP8AAP///yH5BAAAAAAALAAAAAABAAEAAAICRAEAOw==")  # one red pixel
expect.set_options(timeout=LIMIT_MS)


def panel(page, name):
    page.get_by_role("tab", name=name).click()
    return page.get_by_role("tabpanel")


def status(part):
    return part.locator(".status")


def write(part, bytes):
    """Have a whole text written."""
    with part.page.expect_event("requestfinished", lambda request: request.url.endswith("/generate")):
        part.get_by_role("button", name="Write").click()
    expect(status(part)).to_contain_text(f"{bytes} bytes, full length")


def metric(page, name):
    text = page.request.get(page.url.split("#")[0] + "metrics").text()
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


# ---- classify --------------------------------------------------------------------------------------------------------


def test_a_chosen_picture_is_labelled(visit):
    page = visit()
    part = panel(page, "Classify")
    part.locator("input[type=file]:not([capture])").set_input_files(SAMPLE)
    expect(status(part)).to_have_text("cifar10-aft-conv: ship, 91 %")
    bars = part.locator(".bars li")
    expect(bars).to_have_count(5)
    expect(bars.first).to_have_text("ship90.6 %")
    share = bars.first.evaluate("b => b.querySelector('.fill').offsetWidth / b.querySelector('.track').offsetWidth")
    assert 0.89 < share < 0.92


# What a model's author may write as the names of its classes, and a person as the name of a file.
HOSTILE = ["<img src=x onerror=alert(1)>", "</ol><script>alert(1)</script>", "\" onmouseover='alert(1)",
           "&lt;b&gt;&amp;", "javascript:alert(1)", "${alert(1)}", "{{alert(1)}}", "<!-- ", "<svg/onload=alert(1)>",
           "a\nb\tc"]


def test_labels_and_names_of_files_that_are_markup_are_shown_as_they_are(visit, start_daemon, tmp_path):
    folder = tmp_path / "hostile"
    shutil.copytree(SAMPLE.parent, folder)
    config = json.loads((folder / "config.json").read_text())
    config["labels"] = HOSTILE
    (folder / "config.json").write_text(json.dumps(config))
    page = visit(start_daemon("--model", str(folder)).url)
    page.on("dialog", lambda dialog: pytest.fail("a script ran: " + dialog.message))
    part = panel(page, "Classify")
    part.get_by_role("checkbox", name="hostile").check()
    part.get_by_role("checkbox", name="cifar10-aft-conv").uncheck()
    files = part.locator("input[type=file]:not([capture])")
    files.set_input_files({"name": HOSTILE[0], "mimeType": "image/jpeg", "buffer": SAMPLE.read_bytes()})
    expect(part.locator(".bars li")).to_have_count(5)
    shown = part.locator(".bars li").evaluate_all("all => all.map((b) => b.textContent)")
    assert all(any(text.startswith(label) for label in HOSTILE) for text in shown), shown
    assert part.locator(".bars img, .bars script, .bars svg, .bars b, [onerror], [onload], [onmouseover]").count() == 0
    files.set_input_files({"name": HOSTILE[1], "mimeType": "text/plain", "buffer": b"no picture"})
    expect(part.get_by_role("alert")).to_contain_text(HOSTILE[1])


def test_several_models_are_compared_and_explained(visit):
    page = visit()
    part = panel(page, "Classify")
    part.get_by_role("checkbox", name="cifar10-sima").check()
    part.get_by_role("button", name="Sample").click()
    expect(part.locator("article")).to_have_count(2)
    expect(part.locator("figure")).to_have_count(0)
    part.get_by_role("switch", name="Show what the model looks at").check()
    maps = part.locator("figure img")
    expect(maps).to_have_count(2)
    for i, words in enumerate(("Weight of each patch", "Size of each patch")):
        expect(maps.nth(i)).to_have_js_property("naturalWidth", 512)
        expect(part.locator("figcaption").nth(i)).to_contain_text(words)
    part.get_by_role("checkbox", name="cifar10-aft-conv").uncheck()
    expect(status(part)).to_have_text("cifar10-sima: ship, 93 %")


TRANSFER = """([type, bytes]) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0))], "it", { type }));
    return transfer;
}"""


def transfer(page, kind, data):
    return page.evaluate_handle(TRANSFER, [kind, base64.b64encode(data).decode()])


@pytest.mark.parametrize("way", ["drop", "paste"])
def test_a_picture_can_be_dropped_and_pasted(visit, way):
    page = visit()
    part = panel(page, "Classify")
    data = transfer(page, "image/jpeg", SAMPLE.read_bytes())
    if way == "drop":
        part.dispatch_event("dragover", {"dataTransfer": data})
        part.dispatch_event("drop", {"dataTransfer": data})
    else:
        page.evaluate("data => document.dispatchEvent("
                      "new ClipboardEvent('paste', { clipboardData: data, bubbles: true }))", data)
    expect(status(part)).to_contain_text("ship")
    assert page.evaluate("location.pathname") == "/"


def test_a_phone_offers_its_camera(visit):
    page = visit(width=360)
    camera = panel(page, "Classify").locator("input[capture]")
    expect(page.get_by_text("Photograph").first).to_be_visible()
    assert camera.get_attribute("capture") == "environment"
    camera.set_input_files(SAMPLE)
    expect(status(page.locator("#classify"))).to_contain_text("ship")
    expect(visit().get_by_text("Photograph").first).to_be_hidden()  # a mouse has none


def test_what_only_the_browser_reads_is_sent_as_jpeg(visit):
    page = visit()
    with page.expect_request("**/classify?**") as sent:
        page.locator("#classify input[type=file]").first.set_input_files(
            {"name": "red.gif", "mimeType": "image/gif", "buffer": GIF})
    assert sent.value.headers["content-type"] == "image/jpeg"
    expect(status(page.locator("#classify"))).to_contain_text("%")


def test_errors_of_the_daemon_are_shown_by_their_message(visit):
    page = visit(expect=["status of 4"])
    part = panel(page, "Classify")
    files = part.locator("input[type=file]").first
    files.set_input_files({"name": "cut.jpg", "mimeType": "image/jpeg", "buffer": SAMPLE.read_bytes()[:500]})
    expect(part.get_by_role("alert")).to_contain_text("JPEG")
    files.set_input_files({"name": "notes.txt", "mimeType": "text/plain", "buffer": b"no picture"})
    expect(part.get_by_role("alert")).to_have_text("This browser cannot read “notes.txt” as a picture.")
    files.set_input_files(SAMPLE)
    expect(part.get_by_role("alert")).to_be_hidden()
    part = panel(page, "Write")
    part.get_by_label("Maximum bytes").fill("30000")
    part.get_by_role("button", name="Write").click()
    expect(part.get_by_role("alert")).to_contain_text("expected a whole number from 1 to 20000")


# ---- write -----------------------------------------------------------------------------------------------------------


def test_text_streams_and_a_seed_repeats_it(visit):
    page = visit()
    part = panel(page, "Write")
    text = part.get_by_role("region", name="Text")
    # How many pieces it came in: each is a change of its own, unless some arrive within a frame.
    page.evaluate("""() => {
        window.pieces = 0;
        new MutationObserver((changes) => { window.pieces += changes.length; })
            .observe(document.querySelector(".text"), { childList: true });
    }""")
    write(part, 300)
    assert page.evaluate("window.pieces") > 3
    first = text.text_content()
    assert first.startswith("The history of ") and len(first) > 300
    keep = part.get_by_role("button", name="Keep the seed")
    seed = keep.text_content().split()[-1]
    keep.click()
    expect(part.get_by_label("Seed")).to_have_value(seed)
    write(part, 300)
    assert text.text_content() == first
    part.get_by_label("Seed").fill("1")
    write(part, 300)
    assert text.text_content() != first


def test_options_reach_the_daemon(visit):
    page = visit()
    part = panel(page, "Write")
    part.get_by_label("Prompt").fill("x")
    part.get_by_label("Temperature").fill("0.25")
    expect(part.locator("output")).to_have_text("0.25")
    for name, value in (("Maximum bytes", "7"), ("Seed", "9007199254740991"), ("Top k", "3"), ("Top p", "0.5"),
                        ("Min p", "0.01"), ("Repetition penalty", "1.2")):
        part.get_by_label(name).fill(value)
    with page.expect_request("**/generate") as sent:
        part.get_by_role("button", name="Write").click()
    assert sent.value.post_data_json == {
        "prompt": "x", "temperature": 0.25, "stream": True, "model": "enwik8-aft-local", "max_tokens": 7,
        "seed": 9007199254740991, "top_k": 3, "top_p": 0.5, "min_p": 0.01, "repetition_penalty": 1.2,
        "context_overflow": "shift"}
    expect(status(part)).to_contain_text("7 bytes, full length")
    part.get_by_label("Top k").fill("999")  # the browser itself says what is wrong, and nothing is sent
    part.get_by_role("button", name="Write").click()
    assert part.get_by_label("Top k").evaluate("e => e.validity.rangeOverflow && e === document.activeElement")


def test_what_the_context_has_no_room_for_is_told(visit):
    page = visit()
    part = panel(page, "Write")
    notes = part.locator(".notes")
    part.get_by_label("Maximum bytes").fill("5")
    write(part, 5)
    expect(notes).to_have_text("")
    part.get_by_label("Prompt").fill("x" * 513)  # the model has 512 positions
    write(part, 5)
    expect(notes).to_have_text(re.compile(
        r"^The first [\d,]+ bytes? of the prompt (is|are) beyond the model’s context of 512 bytes: the model has not "
        r"seen what stands there\.$"))
    part.get_by_label("Prompt").fill("x" * 500)
    part.get_by_label("Maximum bytes").fill("100")
    part.get_by_label("Where the model’s context ends").select_option("stop")
    part.get_by_role("button", name="Write").click()
    expect(status(part)).to_contain_text("bytes, no more context")
    expect(notes).to_have_text("The text ends because the model’s context of 512 bytes is full.")
    part.get_by_label("Prompt").fill("y" * 2000)
    part.get_by_role("button", name="Write").click()
    expect(notes).to_have_text("The first 1,489 bytes of the prompt are beyond the model’s context of 512 bytes: the model "
                               "has not seen what stands there. The text ends because the model’s context of 512 bytes is "
                               "full.")


def test_a_text_can_be_stopped(visit):
    page = visit()
    part = panel(page, "Write")
    before = metric(page, "aftd_requests_cancelled_total")
    part.get_by_label("Maximum bytes").fill("20000")
    part.get_by_role("button", name="Write").click()
    expect(part.get_by_role("region", name="Text")).to_have_text(re.compile(r"[\s\S]{50,}"))
    assert metric(page, "aftd_streams_running") == 1
    part.get_by_role("button", name="Stop").click()
    expect(status(part)).to_contain_text("Stopped after")
    expect(part.get_by_role("button", name="Stop")).to_be_disabled()
    expect(part.get_by_role("alert")).to_be_hidden()
    until = time.monotonic() + 10 * SLOW
    while metric(page, "aftd_streams_running") > 0 or metric(page, "aftd_requests_cancelled_total") == before:
        assert time.monotonic() < until


def test_a_new_text_ends_the_one_before(visit):
    page = visit()
    part = panel(page, "Write")
    part.get_by_label("Maximum bytes").fill("20000")
    part.get_by_role("button", name="Write").click()
    expect(part.get_by_role("region", name="Text")).to_have_text(re.compile(r"[\s\S]{50,}"))
    part.get_by_label("Maximum bytes").fill("20")
    part.get_by_label("Prompt").press("Control+Enter")
    expect(status(part)).to_contain_text("20 bytes, full length")
    assert len(part.get_by_role("region", name="Text").text_content()) <= len("The history of ") + 20


def test_colour_tells_how_likely_each_character_was(visit, shoot):
    page = visit()
    part = panel(page, "Write")
    part.get_by_label("Prompt").fill("die Römer, 東京 ")
    part.get_by_label("Seed").fill("1")
    part.get_by_label("Temperature").fill("1")
    write(part, 300)
    text = part.get_by_role("region", name="Text")
    plain = text.text_content()
    expect(part.locator(".legend")).to_be_hidden()
    part.get_by_role("switch", name="Colour each byte").check()
    with page.expect_response("**/generate") as answer:
        write(part, 300)
    assert text.text_content() == plain  # asking for colours changes nothing else
    expect(part.locator(".legend")).to_be_visible()
    shoot(page, "write-coloured-light-1280")
    page.emulate_media(color_scheme="dark")
    shoot(page, "write-coloured-dark-1280")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    events = [json.loads(line[6:]) for line in answer.value.text().splitlines() if line.startswith("data: ")]
    told = [byte for event in events for byte in event.get("logprobs", [])]
    assert len(told) == 300
    marked = part.locator(".text span:not(.given)").evaluate_all("all => all.map((e) => [e.textContent, e.className])")
    assert "".join(character for character, _ in marked) == plain[len("die Römer, 東京 "):]
    decoder, logprob, steps = codecs.getincrementaldecoder("utf-8")("replace"), 0.0, []
    for byte in told:  # of a character of several bytes their product counts
        logprob += byte["logprob"]
        if decoder.decode(bytes([byte["byte"]])):
            steps.append(f"p{[math.exp(logprob) >= p for p in (0.7, 0.3, 0.1, 0.02, 0)].index(True)}")
            logprob = 0.0
    assert [step for _, step in marked] == steps
    assert len(set(steps)) == 5 and len(steps) < len(told)


def test_a_byte_tells_what_else_was_likely(visit):
    page = visit(expect=["status of 400"])
    part = panel(page, "Write")
    part.get_by_label("Prompt").fill("die Römer, 東京 ")
    part.get_by_label("Seed").fill("1")
    part.get_by_label("Temperature").fill("1")
    part.get_by_role("switch", name="Colour each byte").check()
    with page.expect_response("**/generate") as answer:
        write(part, 300)
    events = [json.loads(line[6:]) for line in answer.value.text().splitlines() if line.startswith("data: ")]
    drawn = [byte for event in events for byte in event.get("logprobs", [])]
    assert all(len(byte["top"]) == 5 for byte in drawn)
    told = part.locator(".told")
    expect(told).to_have_text(re.compile("^Point at a character"))

    def likely(each):
        percent = float(f"{100 * math.exp(each['logprob']):.2g}")
        return re.escape(f"{chr(each['byte'])}” {percent:g} %")

    decoder, characters = codecs.getincrementaldecoder("utf-8")("replace"), [[]]
    for byte in drawn:
        characters[-1].append(byte)
        if decoder.decode(bytearray([byte["byte"]])):
            characters.append([])
    at = next(i for i, (byte, *more) in enumerate(characters)
              if not more and all(33 <= each["byte"] < 127 for each in [byte, *byte["top"]]))
    byte = characters[at][0]
    others = [each for each in byte["top"] if each["byte"] != byte["byte"]]
    words = f"^“{likely(byte)}; in its place " + ", ".join(f"“{likely(each)}" for each in others) + "$"
    shown = part.locator(".text span:not(.given)")
    shown.nth(at).hover()
    expect(told).to_have_text(re.compile(words))
    before = told.text_content()
    part.get_by_role("region", name="Text").focus()
    page.keyboard.press("ArrowRight")
    expect(told).not_to_have_text(before)
    expect(part.locator(".here")).to_have_count(1)
    page.keyboard.press("ArrowLeft")
    expect(told).to_have_text(before)
    wide = shown.evaluate_all("all => all.findIndex((e) => new TextEncoder().encode(e.textContent).length === 2)")
    shown.nth(wide).hover()
    expect(told.locator("span")).to_have_count(2)  # a line for each byte
    part.get_by_label("Maximum bytes").fill("20000")
    with page.expect_request("**/generate") as sent:
        part.get_by_role("button", name="Write").click()
    assert sent.value.post_data_json["logprobs"] == 5
    part.get_by_label("Maximum bytes").fill("65536")
    with page.expect_request("**/generate") as sent:
        part.get_by_role("button", name="Write").click()
    assert sent.value.post_data_json["logprobs"] == 3  # of all numbers there may be 262144


def test_a_text_is_continued_edited_and_taken_back(visit):
    page = visit()
    part = panel(page, "Write")
    text, prompt = part.get_by_role("region", name="Text"), part.get_by_label("Prompt")
    undo = part.get_by_role("button", name="Undo")
    expect(undo).to_be_hidden()
    expect(part.get_by_role("button", name="Continue")).to_be_hidden()
    part.get_by_label("Maximum bytes").fill("40")
    part.get_by_label("Seed").fill("3")
    write(part, 40)
    first = text.text_content()
    expect(undo).to_be_hidden()
    part.get_by_role("button", name="Continue").click()
    expect(text).to_have_text(re.compile(re.escape(first) + r"[\s\S]{30,}"))
    expect(status(part)).to_contain_text("40 bytes, full length")
    expect(prompt).to_have_value(first)
    second = text.text_content()
    part.get_by_role("button", name="Edit").click()
    expect(prompt).to_be_focused()
    expect(prompt).to_have_value(second)
    page.keyboard.type(" Then")
    expect(part.get_by_role("button", name="Continue")).to_be_hidden()
    write(part, 40)
    assert text.text_content().startswith(second + " Then")
    undo.click()  # of the edit, which goes with what was written after it
    assert (text.text_content(), prompt.input_value()) == (second, first)
    undo.click()
    assert (text.text_content(), prompt.input_value()) == (first, "The history of ")
    expect(undo).to_be_hidden()
    part.get_by_label("Seed").fill("4")
    write(part, 40)  # a new text
    assert text.text_content() != first
    undo.click()
    assert text.text_content() == first
    part.get_by_label("Maximum bytes").fill("20000")
    part.get_by_role("button", name="Continue").click()
    expect(text).to_have_text(re.compile(r"[\s\S]{100,}"))
    undo.click()  # while it is being written
    page.wait_for_timeout(300)
    assert text.text_content() == first
    expect(part.get_by_role("button", name="Stop")).to_be_disabled()


# ---- complete --------------------------------------------------------------------------------------------------------

ROWS = """(all) => all.map((canvas) => {
    const rgba = [...canvas.getContext("2d").getImageData(0, 0, 16, 16).data];
    return Array.from({ length: 16 }, (_, y) => rgba.slice(64 * y, 64 * y + 64).join());
})"""


def test_a_picture_is_completed_row_by_row(visit):
    page = visit()
    part = panel(page, "Complete")
    part.get_by_role("button", name="Sample").click()
    rows = part.get_by_label("Rows kept")
    rows.focus()
    for _ in range(4):
        rows.press("ArrowLeft")
    expect(rows).to_have_value("4")
    assert part.locator(".shade").evaluate("e => e.style.top") == "25%"
    part.get_by_label("Pictures").fill("3")
    page.evaluate("""() => {
        const put = CanvasRenderingContext2D.prototype.putImageData;
        window.puts = [];
        CanvasRenderingContext2D.prototype.putImageData = function (...all) {
            window.puts.push(all[2]);
            return put.apply(this, all);
        };
    }""")
    part.get_by_role("button", name="Draw").click()
    expect(status(part)).to_contain_text("3 drawn")
    assert len(page.evaluate("window.puts")) >= 3 * 8  # events of a row, or of a few
    expect(part.get_by_role("img", name="Picture 3 of 3, complete")).to_be_visible()
    pictures = part.locator("canvas").evaluate_all(ROWS)
    for y in range(16):  # the rows kept are those of the picture, what follows is drawn anew each time
        assert (len({picture[y] for picture in pictures}) == 1) == (y < 4)


def test_a_picture_is_drawn_from_nothing(visit):
    page = visit()
    part = panel(page, "Complete")
    part.get_by_label("Seed").fill("3")
    with page.expect_request("**/complete?**") as sent:
        part.get_by_role("button", name="Draw").click()
    assert "rows=0" in sent.value.url and "seed=3" in sent.value.url
    expect(status(part)).to_contain_text("4 drawn")
    expect(part.get_by_role("alert")).to_be_hidden()
    expect(part.get_by_role("button", name="Keep the seed")).to_be_hidden()  # it is in the field already


def test_drawing_can_be_stopped(visit):
    page = visit()
    part = panel(page, "Complete")
    part.get_by_role("button", name="Sample").click()
    part.get_by_label("Rows kept").fill("1")
    part.get_by_label("Pictures").fill("16")
    # At once: on a fast machine all is drawn before Playwright has found the button.
    part.evaluate("""part => {
        const button = name => [...part.querySelectorAll("button")].find(b => b.textContent.trim() === name);
        const stop = button("Stop");
        new MutationObserver(() => stop.disabled || stop.click()).observe(stop, {attributes: true});
        button("Draw").click();
    }""")
    expect(status(part)).to_have_text("Stopped.")
    expect(part.locator("canvas")).to_have_count(16)


# ---- live numbers ----------------------------------------------------------------------------------------------------


def number(page, title):
    return page.locator(f"#live dl > div:has(dt:text-is('{title}')) dd:not(.plot)")


def some(unit):
    return re.compile(rf"^[1-9][\d,.]* {unit}$")


def test_numbers_and_plots_are_live(visit):
    page = visit()
    part = panel(page, "Write")
    expect(page.locator("#health")).to_contain_text("ready, version")
    expect(number(page, "Running streams")).to_have_text("0 of 128")
    part.get_by_label("Maximum bytes").fill("20000")
    part.get_by_role("button", name="Write").click()
    expect(number(page, "Running streams")).to_have_text("1 of 128")
    expect(number(page, "Generated")).to_have_text(some("bytes/s"))
    expect(number(page, "Between bytes")).to_have_text(some("(ms|µs)"))
    expect(number(page, "First byte")).to_have_text(some("(ms|µs|s)"))
    part.get_by_role("button", name="Stop").click()
    expect(number(page, "Running streams")).to_have_text("0 of 128")
    drawn = page.locator("#live path").evaluate_all("all => all.map((p) => p.getAttribute('d'))")
    assert len(drawn) == 6 and all("L" in (path or "") for path in drawn[:4])


def test_nobody_is_asked_while_nobody_looks(visit):
    page = visit()
    expect(number(page, "Waiting")).to_have_text("0 in the queue")
    asked = []
    page.on("request", lambda request: asked.append(request.url))

    def quiet():
        page.wait_for_timeout(300)  # one that is under way
        asked.clear()
        page.wait_for_timeout(2500)
        return asked == []

    assert not quiet()
    hide = """(hidden) => {
        Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(hide, True)
    assert quiet()
    page.evaluate(hide, False)
    assert not quiet()
    page.get_by_role("button", name="Pause").click()
    assert quiet()
    page.get_by_role("button", name="Pause").click()
    assert not quiet()


def test_a_daemon_that_left_is_noticed(visit, start_daemon):
    own = start_daemon()
    page = visit(own.url, expect=["ERR_CONNECTION_REFUSED", "Failed to load resource"])
    expect(page.locator("#health")).to_contain_text("ready")
    own.stop()
    expect(page.locator("#health")).to_have_text("not reachable")
    part = panel(page, "Write")
    part.get_by_role("button", name="Write").click()
    expect(part.get_by_role("alert")).to_have_text("The daemon cannot be reached.")
