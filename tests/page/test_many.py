"""Several pictures at once: a table, and the same as CSV."""
import csv
import io
import subprocess

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import LOOKS, ROOT
from playwright.sync_api import expect
from test_command import command_of
from test_page import CONV, SAMPLE, SIMA, panel, status

IMAGES = ROOT / "tests" / "data" / "images"


def label(path, model="cifar10-aft-conv"):
    """What the aft program says."""
    run = subprocess.run([ROOT / "build" / "aft", "classify", model, "--top-k", "1", path], cwd=ROOT, check=True,
                         capture_output=True, text=True)
    probability, name = run.stdout.split(None, 1)
    return name.strip(), float(probability)


def choose(part, *files):
    part.locator("input[type=file]:not([capture])").set_input_files(files)


def file(name, kind, data):
    return {"name": name, "mimeType": kind, "buffer": data}


@pytest.mark.parametrize("width, theme", LOOKS)
def test_several_pictures_make_a_table(visit, shoot, theme, width):
    page = visit(width=width, height=1000 if width > 500 else 2000, color_scheme=theme, expect=["status of 422"])
    part = panel(page, "Classify")
    part.get_by_role("checkbox", name="cifar10-sima").check()
    choose(part, file("=1+1, \"a\".jpg", "image/jpeg", SAMPLE.read_bytes()),
           file("landscape.jpg", "image/jpeg", (IMAGES / "landscape.jpg").read_bytes()),
           file("cut.jpg", "image/jpeg", SAMPLE.read_bytes()[:500]), file("notes.txt", "text/plain", b"no picture"))
    expect(status(part)).to_have_text("2 of 4 pictures classified, 2 not.")
    expect(part.get_by_alt_text("Your picture")).to_be_hidden()
    rows = part.locator("tbody tr")
    expect(rows.locator("th")).to_have_text(["=1+1, \"a\".jpg", "landscape.jpg", "cut.jpg", "notes.txt"])
    cells = rows.evaluate_all(
        "all => all.map((row) => [...row.querySelectorAll('td')].map((cell) => cell.textContent))")
    for i, path in enumerate((SAMPLE, IMAGES / "landscape.jpg")):
        for k, model in enumerate(("cifar10-aft-conv", "cifar10-sima")):
            name, probability = label(path, model)
            assert cells[i][k] == f"{name}, {100 * probability:.0f} %"
    assert "JPEG" in cells[2][0] and cells[3][1] == "this browser cannot read “notes.txt” as a picture"
    with page.expect_download() as saved:
        part.get_by_role("button", name="Download as CSV").click()
    assert saved.value.suggested_filename == "labels.csv"
    lines = list(csv.DictReader(io.StringIO(saved.value.path().read_bytes().decode())))
    assert [(line["picture"], line["model"]) for line in lines] == [
        (name, model) for name in ("'=1+1, \"a\".jpg", "landscape.jpg", "cut.jpg", "notes.txt")  # no formula
        for model in ("cifar10-aft-conv", "cifar10-sima")]
    assert lines[0]["label"] == "ship" and abs(float(lines[0]["probability"]) - label(SAMPLE)[1]) < 1e-4
    assert lines[0]["error"] == "" and "JPEG" in lines[4]["error"] and lines[4]["label"] == ""
    shoot(page, f"many-{theme}-{width}")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_table_follows_what_is_chosen(visit):
    page = visit()
    part = panel(page, "Classify")
    data = SAMPLE.read_bytes()
    choose(part, file("a.jpg", "image/jpeg", data), file("b.jpg", "image/jpeg", data))
    expect(status(part)).to_have_text("2 of 2 pictures classified.")
    expect(part.locator("thead th")).to_have_text(["Picture", "cifar10-aft-conv"])
    part.get_by_role("checkbox", name="cifar10-sima").check()
    expect(part.locator("thead th")).to_have_text(["Picture", "cifar10-aft-conv", "cifar10-sima"])
    expect(part.locator("td")).to_have_text([CONV, SIMA] * 2)
    expect(command_of(part)).to_contain_text("'@b.jpg'")
    for name in ("cifar10-aft-conv", "cifar10-sima"):
        part.get_by_role("checkbox", name=name).uncheck()
    expect(part.locator("table")).to_have_count(0)
    expect(status(part)).to_have_text("No model is ticked.")
    part.get_by_role("checkbox", name="cifar10-aft-conv").check()
    expect(part.locator("td")).to_have_text([CONV] * 2)
    part.get_by_role("button", name="Sample").click()  # one picture again
    expect(status(part)).to_have_text(f"cifar10-aft-conv: {CONV}")
    expect(part.locator("table")).to_have_count(0)


def test_a_table_that_was_left_says_nothing_more(visit):
    page = visit(expect=["status of 422"])
    part = panel(page, "Classify")
    bad = SAMPLE.read_bytes()[:500]
    held = []
    page.route("**/classify?**", lambda route: held.append(route) if held else (held.append(None), route.continue_()))
    choose(part, file("bad.jpg", "image/jpeg", bad), *(file(f"{i}.jpg", "image/jpeg", bad) for i in range(5)))
    expect(part.locator(".bad")).to_have_count(1)
    page.unroute("**/classify?**")
    part.get_by_role("button", name="Sample").click()
    expect(status(part)).to_have_text(f"cifar10-aft-conv: {CONV}")
    page.wait_for_timeout(300)
    expect(status(part)).to_have_text(f"cifar10-aft-conv: {CONV}")


def test_a_table_can_be_stopped(visit):
    page = visit()
    part = panel(page, "Classify")
    page.route("**/classify?**", lambda route: None)  # no answer comes
    choose(part, *(file(f"{i}.jpg", "image/jpeg", SAMPLE.read_bytes()) for i in range(9)))
    expect(part.locator("tbody img")).to_have_count(4)  # as many at once
    part.get_by_role("button", name="Stop").click()
    expect(status(part)).to_have_text("Stopped: 0 of 9 pictures classified.")
    expect(part.get_by_role("button", name="Stop")).to_be_disabled()
    expect(part.locator("tbody img")).to_have_count(4)


def test_programs_are_shown_where_to_go(visit, nginx):
    page = visit(nginx + "/aft")
    for name, path in (("the interface, as OpenAPI", "openapi.json"), ("figures, for Prometheus", "metrics")):
        link = page.get_by_role("link", name=name)
        assert link.evaluate("a => a.href") == f"{nginx}/aft/{path}"
        assert page.request.get(f"{nginx}/aft/{path}").ok
