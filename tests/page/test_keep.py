"""What somebody entered is there again after a reload, and nowhere else."""
from playwright.sync_api import expect
from test_page import SAMPLE, SIMA, panel, scoring, status


def test_fields_stay_over_a_reload(visit, start_daemon):
    page = visit(start_daemon("--model=tests/data/models/enwik8-aft-local").url)
    part = panel(page, "Classify")
    part.get_by_role("checkbox", name="cifar10-sima").check()
    part.get_by_role("checkbox", name="cifar10-aft-conv").uncheck()
    part.get_by_role("switch").check()
    part = panel(page, "Draw")
    part.get_by_label("Pictures").fill("2")
    part.get_by_role("button", name="Sample").click()  # which has rows to keep
    part.get_by_label("Rows kept").fill("3")
    scoring(page, "A text").get_by_role("textbox").fill("kept")
    scoring(page, "A picture")
    part = panel(page, "Write")
    part.get_by_label("Prompt").fill("‘Twas\n\"$brillig\" ")
    part.get_by_label("Temperature").fill("0.25")
    part.get_by_label("Seed").fill("")
    part.get_by_label("Top k").fill("12")
    part.get_by_label("Model").select_option("enwik8-aft-local")
    part.get_by_label("When the context is full").select_option("stop")
    part.get_by_role("switch").check()
    page.reload()
    part = page.get_by_role("tabpanel")
    expect(part.get_by_role("button", name="Write")).to_be_enabled()
    expect(part.get_by_label("Prompt")).to_have_value("‘Twas\n\"$brillig\" ")
    expect(part.get_by_label("Temperature")).to_have_value("0.25")
    expect(part.locator("output")).to_have_text("0.25")
    expect(part.get_by_label("Top k")).to_have_value("12")
    expect(part.get_by_label("Model")).to_have_value("enwik8-aft-local")
    expect(part.get_by_label("When the context is full")).to_have_value("stop")
    expect(part.get_by_role("switch")).to_be_checked()
    part = panel(page, "Draw")
    expect(part.get_by_label("Pictures")).to_have_value("2")
    expect(part.get_by_label("Rows kept")).to_have_value("3")
    expect(panel(page, "Likelihood").get_by_role("radio", name="A picture")).to_be_checked()
    expect(page.locator("#score-text")).to_be_hidden()
    expect(scoring(page, "A text").get_by_role("textbox")).to_have_value("kept")
    part = panel(page, "Classify")
    part.locator("input[type=file]").first.set_input_files(SAMPLE)
    expect(status(part)).to_have_text(f"cifar10-sima: {SIMA}")
    expect(part.locator("figure img")).to_have_count(1)
    assert page.evaluate("localStorage.length") == 0
    other = page.context.new_page()  # a tab of its own
    other.goto(page.url)
    expect(panel(other, "Write").get_by_label("Prompt")).to_have_value("The history of ")
