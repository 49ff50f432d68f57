"""Texts that are continued, through the panel for that, against the real daemon."""
import codecs
import json
import math
import re

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect
from test_page import metric, panel, status, wait_for_metric, write


def test_a_seed_repeats_a_text(visit):
    page = visit()
    part = panel(page, "Write")
    text = part.get_by_role("region", name="Text")
    write(part, 300)
    first = text.text_content()
    assert first.startswith("The history of ") and len(first) > 300
    keep = part.get_by_role("button", name="Reuse the seed")
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
        "prompt": "x", "temperature": 0.25, "stream": True, "moves": True, "model": "enwik8-aft-conv", "max_tokens": 7,
        "seed": 9007199254740991, "top_k": 3, "top_p": 0.5, "min_p": 0.01, "repetition_penalty": 1.2,
        "context_overflow": "shift"}
    expect(status(part)).to_contain_text("7 bytes (maximum)")
    part.get_by_label("Top k").fill("999")  # the browser itself says what is wrong, and nothing is sent
    part.get_by_role("button", name="Write").click()
    assert part.get_by_label("Top k").evaluate("e => e.validity.rangeOverflow && e === document.activeElement")


def test_a_text_without_an_end_has_room_for_everything(visit):
    part = panel(visit(), "Write")
    expect(part.locator(".sees")).to_contain_text("The model’s texts have no end")
    part.get_by_label("Prompt").fill("x" * 2000)
    part.get_by_label("Maximum bytes").fill("1500")
    write(part, 1500)
    expect(part.locator(".notes")).to_have_text("")
    expect(part.get_by_label("Top k")).to_be_visible()
    expect(part.get_by_label("When the context is full")).to_be_hidden()


def test_what_the_context_has_no_room_for_is_told(visit, start_daemon):
    page = visit(start_daemon("--model=tests/data/models/enwik8-aft-local").url)
    part = panel(page, "Write")
    part.get_by_label("Model").select_option("enwik8-aft-local")
    expect(part.locator(".sees")).to_contain_text("The model sees the last 512 bytes")
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
    part.get_by_label("When the context is full").select_option("stop")
    part.get_by_role("button", name="Write").click()
    expect(status(part)).to_contain_text("bytes (context full)")
    expect(notes).to_have_text("The text ends because the model’s context of 512 bytes is full.")
    part.get_by_label("Prompt").fill("y" * 2000)
    part.get_by_role("button", name="Write").click()
    expect(notes).to_have_text(
        "The first 1,489 bytes of the prompt are beyond the model’s context of 512 bytes: the model has not seen what "
        "stands there. The text ends because the model’s context of 512 bytes is full.")


def test_a_text_can_be_stopped(visit):
    page = visit()
    part = panel(page, "Write")
    before = metric(page, "aftd_requests_cancelled_total")
    part.get_by_label("Maximum bytes").fill("20000")
    part.get_by_role("button", name="Write").click()
    # Read while it is written.
    expect(part.get_by_role("region", name="Text")).to_have_text(re.compile(r"[\s\S]{50,}"))
    assert metric(page, "aftd_streams_running") == 1
    part.get_by_role("button", name="Stop").click()
    expect(status(part)).to_contain_text("Stopped after")
    expect(part.get_by_role("button", name="Stop")).to_be_disabled()
    expect(part.get_by_role("alert")).to_be_hidden()
    wait_for_metric(page, "aftd_streams_running", lambda value: value == 0)
    wait_for_metric(page, "aftd_requests_cancelled_total", lambda value: value > before)


def test_a_text_that_breaks_off_goes_on(visit):
    """Cut in the middle of an event, refused, moved, cut again: the text is that of an undisturbed stream."""
    page = visit(expect=["status of 503"])
    part = panel(page, "Write")
    text = part.get_by_role("region", name="Text")
    part.get_by_label("Seed").fill("5")
    part.get_by_label("Maximum bytes").fill("400")
    part.get_by_role("button", name="Write").click()
    expect(status(part)).to_contain_text("400 bytes (maximum)")
    whole = text.text_content()
    sent = []

    def moved(body):
        events = body.split(b"\n\n")[:20]
        last_id = events[-1].split(b"\n")[0]
        return b"\n\n".join([*events, last_id + b'\ndata: {"finish_reason":"moved"}', b""])

    answers = [lambda body: body[:1500], None, moved, None, None, lambda body: body[:200], lambda body: body]

    def answer(route):
        what = answers[min(len(sent), len(answers) - 1)]
        sent.append(route.request.post_data_json)
        if what is None:
            route.fulfill(status=503, body="no daemon", content_type="text/plain")
        else:
            response = route.fetch()
            route.fulfill(response=response, body=what(response.body()))

    page.route("**/generate", answer)
    part.get_by_label("Prompt").press("Control+Enter")
    expect(status(part)).to_contain_text("Waiting to go on")
    expect(status(part)).to_contain_text("400 bytes (maximum)")
    assert text.text_content() == whole
    assert "from" not in sent[0] and len(sent) == len(answers)
    assert sent[1]["from"] == sent[2]["from"] != sent[3]["from"] == sent[5]["from"]
    expect(part.get_by_role("alert")).to_be_hidden()


def test_a_text_that_cannot_go_on_is_said(visit):
    page = visit(expect=["status of 409"])
    part = panel(page, "Write")
    sent = []

    def answer(route):
        sent.append(route.request.post_data_json)
        if len(sent) == 1:
            response = route.fetch()
            route.fulfill(response=response, body=response.body()[:1500])
        else:  # the daemon itself refuses it: it is another request
            route.continue_(post_data=json.dumps({**sent[-1], "max_tokens": 30}))

    page.route("**/generate", answer)
    part.get_by_label("Maximum bytes").fill("200")
    part.get_by_role("button", name="Write").click()
    expect(part.get_by_role("alert")).to_contain_text("is another request's")
    assert len(sent) == 2
    expect(part.get_by_role("button", name="Stop")).to_be_disabled()


def test_a_new_text_ends_the_one_before(visit):
    page = visit()
    part = panel(page, "Write")
    part.get_by_label("Maximum bytes").fill("20000")
    part.get_by_role("button", name="Write").click()
    expect(part.get_by_role("region", name="Text")).to_have_text(re.compile(r"[\s\S]{50,}"))
    part.get_by_label("Maximum bytes").fill("20")
    part.get_by_label("Prompt").press("Control+Enter")
    expect(status(part)).to_contain_text("20 bytes (maximum)")
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
    wide = next(i for i, bytes in enumerate(characters) if len(bytes) > 1)
    shown.nth(wide).hover()
    expect(told.locator("span")).to_have_count(len(characters[wide]))  # a line for each byte
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
    expect(status(part)).to_contain_text("40 bytes (maximum)")
    expect(prompt).to_have_value(first)
    second = text.text_content()
    part.get_by_role("button", name="Edit").click()
    expect(prompt).to_be_focused()
    expect(prompt).to_have_value(second)
    page.keyboard.type(" Then")
    expect(part.get_by_role("button", name="Continue")).to_be_hidden()
    write(part, 40)
    assert text.text_content().startswith(second + " Then")
    part.get_by_label("Maximum bytes").fill("39")
    write(part, 39)
    undo.click()
    expect(status(part)).to_contain_text("40 bytes (maximum)")  # what was said comes back as well
    part.get_by_label("Maximum bytes").fill("40")
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
