"""Texts that are scored, and texts that are classified, by the panels for each."""
import json
import math
import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import ROOT
from playwright.sync_api import expect
from test_command import ODD, command_of, run
from test_models import with_states
from test_page import SAMPLE, panel, scoring, status

GOLDEN = ROOT / "tests" / "data" / "golden"


def reload_models(page):
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_a_text_is_scored_byte_by_byte(visit, shoot, tmp_path):
    page = visit()
    part = scoring(page, "A text")
    text = part.get_by_role("region", name="Text")
    part.get_by_role("textbox", name="Text").fill("The history of Köln")
    with page.expect_response("**/score") as answer:
        part.get_by_role("button", name="Score").click()
    told = answer.value.json()
    expect(status(part)).to_have_text(f"{told['bits_per_byte']:.3f} bits per byte: the model would compress the last "
                                      f"19 bytes to {math.ceil(-sum(told['log2_probs']) / 8)} bytes.")
    expect(text).to_have_text("The history of Köln")
    chances = [2 ** each for each in told["log2_probs"]]
    assert len(chances) == 19  # nothing stands before the first, and this model has no start embedding
    chances[15:17] = [chances[15] * chances[16]]  # ö
    steps = [f"p{[chance >= p for p in (0.7, 0.3, 0.1, 0.02, 0)].index(True)}" for chance in chances]
    characters = text.locator("span")
    assert characters.evaluate_all("all => all.map((e) => e.className)") == ["p0", *steps]
    characters.nth(16).hover()
    expect(part.locator(".told span")).to_have_text([re.compile("^0xC3 .* %$"), re.compile("^0xB6 .* %$")])
    characters.nth(0).hover()
    expect(part.locator(".told span")).to_have_text("“T” is the first")
    shoot(page, "score-light-1280")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    part.get_by_role("textbox", name="Text").fill(ODD)
    command = command_of(part)
    expect(command).to_contain_text("score")
    with page.expect_response("**/score") as answer:
        part.get_by_role("textbox", name="Text").press("Control+Enter")
    assert json.loads(run(command.text_content(), tmp_path)) == answer.value.json()


def test_a_long_text_is_scored_whole_and_shown_in_part(visit):
    page = visit()
    part = scoring(page, "A text")
    part.get_by_role("textbox", name="Text").fill("x " * 15000)
    part.get_by_role("button", name="Score").click()
    expect(status(part)).to_contain_text("29,999 bytes")
    expect(part.locator(".text span")).to_have_count(20000)
    expect(part.locator(".text .note")).to_have_text("The first 20,000 bytes are shown.")


@pytest.fixture
def with_classifiers(start_daemon):
    return start_daemon("--model", str(GOLDEN / "text-fastformer")).url


@pytest.mark.parametrize("width", [1280, 360])
def test_a_text_is_classified(visit, with_classifiers, shoot, width, tmp_path):
    page = visit(with_classifiers, expect=["status of 400"], width=width, height=1000 if width > 500 else 2000)
    part = panel(page, "Label")
    expect(part.get_by_label("Model")).to_have_value("languages-aft-conv")
    part.get_by_role("textbox", name="Text").fill("Der Hund schläft unter dem Tisch.")
    part.get_by_role("button", name="Label").click()
    expect(status(part)).to_contain_text("languages-aft-conv: German, ")
    part.get_by_label("Model").select_option("text-fastformer")
    part.get_by_role("textbox", name="Text").fill("What a film!")
    with page.expect_response("**/classify") as answer:
        part.get_by_role("button", name="Label").click()
    best, *others = answer.value.json()["predictions"]
    expect(status(part)).to_have_text(f"text-fastformer: {best['label']}, {100 * best['probability']:.0f} %")
    expect(part.locator(".bars li")).to_have_count(1 + len(others))
    shoot(page, f"label-light-{width}")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    command = command_of(part)
    expect(command).to_contain_text("What a film!")
    assert json.loads(run(command.text_content(), tmp_path)) == answer.value.json()
    part.get_by_role("textbox", name="Text").fill("x" * 1000)  # longer than the model's context
    part.get_by_role("button", name="Label").click()
    expect(part.get_by_role("alert")).to_contain_text("1000")
    expect(part.locator(".bars")).to_have_count(0)


def test_without_a_model_that_classifies_texts_there_is_no_panel_for_it(visit):
    page = visit(prepare=with_states({"cifar10-aft-conv": "loaded", "enwik8-aft-conv": "loaded"}))
    expect(page.get_by_role("tab", name="Label")).to_be_hidden()
    page.get_by_role("tab", name="Likelihood").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Classify")).to_be_focused()
    page.evaluate("location.hash = '#/label'")
    reload_models(page)
    expect(page.get_by_role("tab", name="Classify")).to_have_attribute("aria-selected", "true")


def test_what_a_classifier_knows_is_said(visit):
    """Where the daemon tells the labels."""
    labels = json.loads((SAMPLE.parent / "config.json").read_text())["labels"]
    many = [f"thing {i}" for i in range(1000)]

    def prepare(page):
        def answer(route):
            model = route.fetch().json()
            told = labels if model["id"] == "cifar10-aft-conv" else many
            route.fulfill(json={**model, "labels": told})
        page.route("**/v1/models/*", answer)

    page = visit(prepare=prepare)
    part = panel(page, "Classify")
    part.get_by_role("checkbox", name="cifar10-sima").check()
    part.get_by_role("button", name="Sample").click()
    notes = part.locator("article .note")
    expect(notes).to_have_text([f"Knows 10 things: {', '.join(labels)}.",
                                f"Knows 1,000 things: {', '.join(many[:20])} and 980 more."])
