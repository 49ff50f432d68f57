"""The page behind a proxy, at its root and below a path that the proxy takes away again. The fixture `visit` fails
where anything is asked for beside that."""
import itertools
import json
from urllib.parse import urljoin
from urllib.request import urlopen

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import ALL, LOOKS
from playwright.sync_api import expect
from test_access import TABS, go_through_by_keyboard, look_at_everything, use_everything

PLACES = ["/aft", ""]


@pytest.mark.parametrize("width, theme, place", [
    (*look, place) for look, place in (itertools.product(LOOKS, PLACES) if ALL else zip(LOOKS, PLACES))])
def test_every_use_goes_behind_a_proxy(visit, nginx, width, theme, place):
    page = visit(nginx + place, width=width, height=1000 if width > 500 else 2600, color_scheme=theme)
    expect(page.locator("#health")).to_contain_text("ready")
    assert page.evaluate("document.querySelector('h1 img').naturalWidth") > 0
    use_everything(page)
    for _ in look_at_everything(page):
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.url.startswith(f"{nginx}{place}/#/")
    page.reload()
    expect(page.get_by_role("tab", name=TABS[-1])).to_have_attribute("aria-selected", "true")


@pytest.mark.parametrize("place", PLACES if ALL else PLACES[:1])
def test_every_use_goes_without_a_mouse_behind_a_proxy(visit, nginx, place):
    go_through_by_keyboard(visit(nginx + place))


@pytest.mark.parametrize("place", PLACES)
def test_the_description_says_where_the_daemon_is(nginx, place):
    """As OpenAPI has it: from where the document is, to which the paths are added."""
    at = f"{nginx}{place}/openapi.json"
    with urlopen(at) as answer:
        server = json.load(answer)["servers"][0]["url"]
    assert urljoin(at, server) == f"{nginx}{place}/"
    with urlopen(urljoin(at, server).rstrip("/") + "/healthz") as answer:
        assert json.load(answer) == {"status": "ok"}
