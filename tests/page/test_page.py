"""What somebody does at the page, through each of its uses, against the real daemon."""
import base64
import json
import re
import shutil
import time

import pytest
from conftest import HANG_S, LIMIT_MS, ROOT, let_pass, stop_clock
from playwright.sync_api import expect

SAMPLE = ROOT / "weights" / "models" / "cifar10-aft-conv" / "sample.jpg"
CONV, CONV_BAR, SIMA = "ship, 99 %", "ship99.0 %", "ship, 99 %"  # what the two classifiers say of it
GIF = base64.b64decode("R0lGODlhAQABAPAAAP8AAP///yH5BAAAAAAALAAAAAABAAEAAAICRAEAOw==")  # one red pixel
expect.set_options(timeout=LIMIT_MS)


def panel(page, name):
    """Opened, and what it has for those who want more."""
    page.get_by_role("tab", name=name).click()
    page.locator(".advanced").evaluate_all("all => all.forEach((each) => { each.open = true; })")
    return page.get_by_role("tabpanel")


def scoring(page, what):
    """The part of the panel Likelihood for "A text" or "A picture"."""
    panel(page, "Likelihood").get_by_role("radio", name=what).check()
    return page.locator("#score-text" if what == "A text" else "#score-picture")


def status(part):
    return part.locator(".status")


def write(part, bytes):
    """Have a whole text written."""
    with part.page.expect_event("requestfinished", lambda request: request.url.endswith("/generate")):
        part.get_by_role("button", name="Write").click()
    expect(status(part)).to_contain_text(f"{bytes:,} bytes (maximum)")


def metric(page, name):
    text = page.request.get(page.url.split("#")[0] + "metrics").text()
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


def wait_for_metric(page, name, holds):
    until = time.monotonic() + HANG_S
    while not holds(metric(page, name)):
        assert time.monotonic() < until, name


# ---- classify --------------------------------------------------------------------------------------------------------


def test_a_chosen_picture_is_labelled(visit):
    page = visit()
    part = panel(page, "Classify")
    part.locator("input[type=file]:not([capture])").set_input_files(SAMPLE)
    expect(status(part)).to_have_text(f"cifar10-aft-conv: {CONV}")
    bars = part.locator(".bars li")
    expect(bars).to_have_count(5)
    expect(bars.first).to_have_text(CONV_BAR)
    share = bars.first.evaluate("b => b.querySelector('.fill').offsetWidth / b.querySelector('.track').offsetWidth")
    assert 0.98 < share < 1


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
    expect(status(part)).to_have_text(f"cifar10-sima: {SIMA}")
    part.get_by_role("checkbox", name="in each layer").check()
    expect(part.locator("figcaption")).to_contain_text("in each layer, the first at the left")


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


# ---- complete --------------------------------------------------------------------------------------------------------

ROWS = """(all) => all.map((canvas) => {
    const rgba = [...canvas.getContext("2d").getImageData(0, 0, 16, 16).data];
    return Array.from({ length: 16 }, (_, y) => rgba.slice(64 * y, 64 * y + 64).join());
})"""


def test_a_picture_is_completed_row_by_row(visit):
    page = visit()
    part = panel(page, "Draw")
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
    part = panel(page, "Draw")
    part.get_by_label("Seed").fill("3")
    with page.expect_request("**/complete?**") as sent:
        part.get_by_role("button", name="Draw").click()
    assert "rows=0" in sent.value.url and "seed=3" in sent.value.url
    expect(status(part)).to_contain_text("4 drawn")
    expect(part.get_by_role("alert")).to_be_hidden()
    expect(part.get_by_role("button", name="Reuse the seed")).to_be_hidden()  # it is in the field already


def test_drawing_can_be_stopped(visit):
    page = visit()
    part = panel(page, "Draw")
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
    page = visit(prepare=stop_clock)
    part = panel(page, "Write")
    expect(page.locator("#live")).to_be_in_viewport()
    expect(page.locator("#health")).to_contain_text("ready, version")
    expect(number(page, "Running streams")).to_have_text("0 of 128")
    written = metric(page, "aftd_generated_bytes_total")
    part.get_by_label("Maximum bytes").fill("20000")
    part.get_by_role("button", name="Write").click()
    wait_for_metric(page, "aftd_generated_bytes_total", lambda value: value > written + 100)
    let_pass(page, 2)
    expect(number(page, "Running streams")).to_have_text("1 of 128")
    expect(number(page, "Generated")).to_have_text(some("bytes/s"))
    expect(number(page, "Between bytes")).to_have_text(some("(ms|µs)"))
    expect(number(page, "First byte")).to_have_text(some("(ms|µs|s)"))
    part.get_by_role("button", name="Stop").click()
    wait_for_metric(page, "aftd_streams_running", lambda value: value == 0)
    let_pass(page, 2)
    expect(number(page, "Running streams")).to_have_text("0 of 128")
    drawn = page.locator("#live path").evaluate_all("all => all.map((p) => p.getAttribute('d'))")
    assert len(drawn) == 6 and all("L" in (path or "") for path in drawn[:4])


def test_nobody_is_asked_while_nobody_looks(visit):
    page = visit(prepare=stop_clock)
    expect(page.locator("#live")).to_be_in_viewport()
    expect(number(page, "Waiting")).to_have_text("0 in the queue")
    hide = """(hidden) => {
        Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    assert let_pass(page, 4) == ["readyz", "metrics"] * 2
    page.evaluate(hide, True)
    assert let_pass(page, 60) == []
    page.evaluate(hide, False)
    assert let_pass(page, 4) == ["readyz", "metrics"] * 2
    page.get_by_role("button", name="Pause").click()
    assert let_pass(page, 60) == []
    page.get_by_role("button", name="Pause").click()
    assert let_pass(page, 4) == ["readyz", "metrics"] * 2


def test_the_metrics_are_fetched_for_who_sees_them(visit):
    page = visit(width=390, height=600, prepare=stop_clock)
    page.get_by_role("tab", name="Write").click()
    expect(page.locator("#live")).not_to_be_in_viewport()
    expect(page.locator("#health")).to_contain_text("ready, version")
    assert let_pass(page, 4) == ["readyz"] * 2
    page.locator("#live dl").scroll_into_view_if_needed()
    expect(page.locator("#live")).to_be_in_viewport()
    assert let_pass(page, 2) == ["readyz", "metrics"]


def test_a_daemon_that_left_is_noticed(visit, start_daemon):
    own = start_daemon()
    page = visit(own.url, expect=["ERR_CONNECTION_REFUSED", "Failed to load resource"], prepare=stop_clock)
    expect(page.locator("#health")).to_contain_text("ready")
    own.stop()
    let_pass(page, 2)
    expect(page.locator("#health")).to_have_text("not reachable")
    part = panel(page, "Write")
    part.get_by_role("button", name="Write").click()
    expect(part.get_by_role("alert")).to_have_text("The daemon cannot be reached.")
