"""The page for everybody: keyboard, screen readers, phones, both themes, little motion."""
import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import LOOKS
from playwright.sync_api import expect
from test_page import panel, scoring, status

TABS = ("Classify", "Write", "Draw", "Likelihood")


def look_at_everything(page):
    """Opens one panel after the other, and both parts of that for scores; gives each one's name."""
    for name in TABS[:-1]:
        panel(page, name)
        yield name.lower()
    for what in ("A picture", "A text"):
        scoring(page, what)
        yield "score-" + what.split()[-1]


FOCUSED = """() => {
    const e = document.activeElement;
    const label = e.labels?.[0];
    const words = [e.ariaLabel, label?.firstChild.textContent, label?.textContent, e.textContent];
    return words.find((text) => text?.trim()).trim().replace(/\\s+/g, " ");
}"""


def tab_through(page, count):
    names = []
    for _ in range(count):
        page.keyboard.press("Tab")
        names.append(page.evaluate(FOCUSED))
    return names


def test_the_keyboard_goes_in_the_order_of_reading(visit):
    page = visit()
    assert tab_through(page, 10) == ["Skip to the content", "Classify", "Choose…", "Sample", "cifar10-aft-conv",
                                     "cifar10-sima", "Show what the model looks at", "in each layer", "Show as curl",
                                     "Pause"]
    page.get_by_role("tab", name="Classify").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate(FOCUSED) == "Write" and page.url.endswith("#/generate")
    assert tab_through(page, 9) == ["Prompt", "Temperature", "Maximum bytes", "Seed", "Advanced",
                                    "Colour each byte by its probability", "Write", "Show as curl", "Pause"]
    page.get_by_text("Advanced").click()
    page.get_by_role("tab", name="Write").focus()
    assert tab_through(page, 10)[5:] == ["Top k", "Top p", "Min p", "Repetition penalty",
                                         "Colour each byte by its probability"]
    page.get_by_role("tab", name="Write").focus()
    page.keyboard.press("ArrowRight")
    assert tab_through(page, 8) == ["Choose…", "Sample", "Temperature", "Pictures", "Seed", "Draw", "Show as curl",
                                    "Pause"]
    page.get_by_role("tab", name="Draw").focus()
    page.keyboard.press("End")
    assert tab_through(page, 3) == ["Text", "Label", "Show as curl"]
    page.get_by_role("tab", name="Label").focus()
    page.keyboard.press("ArrowLeft")
    assert tab_through(page, 4) == ["A text", "Text", "Score", "Show as curl"]
    page.get_by_role("radio", name="A text").focus()
    page.keyboard.press("ArrowRight")
    assert tab_through(page, 5) == ["Choose…", "Sample", "Score", "Show as curl", "Pause"]
    page.get_by_role("tab", name="Label").focus()
    page.keyboard.press("ArrowRight")  # round
    assert page.evaluate(FOCUSED) == "Classify"
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(FOCUSED) == "Label"


def go_through_by_keyboard(page):
    page.get_by_role("tab", name="Classify").focus()
    tab_through(page, 2)
    page.keyboard.press("Enter")  # Sample
    expect(status(page.locator("#classify"))).to_contain_text("ship")
    tab_through(page, 3)
    page.keyboard.press("Space")  # what the model looks at
    expect(page.locator("figure img")).to_be_visible()
    page.get_by_role("tab", name="Classify").focus()
    page.keyboard.press("ArrowRight")
    tab_through(page, 1)
    page.keyboard.type(" x")
    page.keyboard.press("Control+Enter")
    expect(status(page.locator("#generate"))).to_contain_text("300 bytes")
    page.get_by_role("tab", name="Write").focus()
    page.keyboard.press("ArrowRight")
    tab_through(page, 2)
    page.keyboard.press("Enter")
    expect(page.locator("#complete").get_by_label("Rows kept")).to_be_visible()
    tab_through(page, 5)
    page.keyboard.press("Enter")
    expect(status(page.locator("#complete"))).to_contain_text("4 drawn")
    page.get_by_role("tab", name="Draw").focus()
    page.keyboard.press("ArrowRight")
    tab_through(page, 3)
    page.keyboard.press("Enter")
    expect(status(page.locator("#score-text"))).to_contain_text("bits per byte")
    page.get_by_role("tab", name="Likelihood").focus()
    tab_through(page, 1)
    page.keyboard.press("ArrowDown")  # a picture
    tab_through(page, 2)
    page.keyboard.press("Enter")
    expect(page.locator("#score-picture").get_by_alt_text("Your picture")).to_be_visible()
    tab_through(page, 1)
    page.keyboard.press("Enter")
    expect(status(page.locator("#score-picture"))).to_contain_text("bits per sub-pixel")
    assert tab_through(page, 2) == ["Show as curl", "Pixels"]
    page.keyboard.press("ArrowDown")
    expect(page.locator("#score-picture .told")).to_contain_text("Pixel in row 1, column 1: ")


def test_every_use_goes_without_a_mouse(visit):
    go_through_by_keyboard(visit())


@pytest.mark.parametrize("tab, button", [("Write", "Write"), ("Draw", "Draw"), ("Likelihood", "Score")])
def test_a_phone_shows_the_result(visit, tab, button):
    page = visit(width=390, height=844)
    page.get_by_role("tab", name=tab).click()
    page.get_by_role("tabpanel").get_by_role("button", name=button, exact=True).click()
    expect(page.get_by_role("tabpanel").locator(".status").filter(visible=True)).to_be_in_viewport()
    fields = page.locator("[role=tabpanel] :is(input[type=number], textarea, select)")
    assert {size for size in fields.evaluate_all("all => all.map((e) => parseFloat(getComputedStyle(e).fontSize))")
            if size < 16} == set()  # iOS zooms in on smaller ones


def test_what_has_the_focus_is_marked(visit):
    page = visit()
    for _ in range(8):
        page.keyboard.press("Tab")
        marked = page.evaluate("""() => {
            const e = document.activeElement;
            return [e, e.parentElement].some((at) => getComputedStyle(at).outlineStyle === "solid");
        }""")
        assert marked, page.evaluate(FOCUSED)


def use_everything(page):
    part = panel(page, "Classify")
    part.get_by_role("checkbox", name="cifar10-sima").check()
    part.get_by_role("switch").check()
    part.get_by_role("button", name="Sample").click()
    expect(part.locator("figure img")).to_have_count(2)
    part = panel(page, "Write")
    part.get_by_label("Seed").fill("5")
    part.get_by_role("button", name="Write").click()
    expect(status(part)).to_contain_text("300 bytes")
    part = panel(page, "Draw")
    part.get_by_role("button", name="Sample").click()
    part.get_by_label("Pictures").fill("9")
    part.get_by_role("button", name="Draw").click()
    expect(status(part)).to_contain_text("9 drawn")
    part = scoring(page, "A text")
    part.get_by_role("button", name="Score").click()
    expect(status(part)).to_contain_text("bits per byte")
    part = scoring(page, "A picture")
    part.get_by_role("button", name="Sample").click()
    part.get_by_role("button", name="Score").click()
    expect(status(part)).to_contain_text("bits per sub-pixel")
    part.get_by_role("application").press("ArrowDown")


@pytest.mark.parametrize("width, theme", LOOKS)
def test_nothing_stands_in_the_way(visit, shoot, theme, width):
    page = visit(width=width, height=1000 if width > 500 else 2600, color_scheme=theme)
    shoot(page, f"empty-{theme}-{width}")
    use_everything(page)
    for name in look_at_everything(page):
        shoot(page, f"{name}-{theme}-{width}")
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width < 500:  # a finger's width
        small = page.locator("button:visible, .button:visible, select:visible").evaluate_all(
            "all => all.filter((e) => e.offsetHeight < 40).map((e) => e.textContent)")
        assert small == []


def test_the_themes_differ(visit):
    grounds = {theme: visit(color_scheme=theme).evaluate("getComputedStyle(document.body).backgroundColor")
               for theme in ("light", "dark")}
    assert grounds == {"light": "rgb(246, 245, 241)", "dark": "rgb(19, 24, 22)"}


def test_nothing_moves_for_those_who_want_that(visit):
    css = "getComputedStyle(document.querySelector('.switch input'), '::after').transitionDuration"
    assert visit().evaluate(css) == "0.15s"
    assert visit(reduced_motion="reduce").evaluate(css) == "0s"


def test_screen_readers_are_told_what_happens(visit):
    page = visit()
    for name in TABS:
        part = panel(page, name)
        for at in part.locator(".pane + .pane").all():
            expect(status(at)).to_have_role("status")
            expect(at.locator(".error")).to_have_attribute("role", "alert")
        assert part.get_attribute("aria-labelledby") == page.get_by_role("tab", name=name).get_attribute("id")
        expect(page.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("heading", level=1)).to_have_text("aftd")
    # The text itself is no live region: it would be read out letter by letter.
    assert page.locator(".text[aria-live]").count() == 0
