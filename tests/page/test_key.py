"""A daemon that wants keys: the page asks for one, keeps it for its tab, and does what the key may do."""
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect
from test_page import panel, status, write


def give(page, key):
    page.get_by_label("Key").fill(key)
    page.get_by_role("button", name="Sign in").click()


def test_a_key_is_asked_for_and_kept_for_the_tab(visit, start_daemon, make_key, shoot):
    key = make_key("somebody")
    own = start_daemon(f"--keys-file={make_key.file}")
    page = visit(own.url, expect=["status of 401"], ready="#key-form")
    why = page.locator("#key-why")
    expect(why).to_contain_text("A key is needed")
    expect(page.locator("#health")).to_contain_text("ready")  # how the daemon is may be known without one
    shoot(page, "key-light-1280")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    give(page, "wrong")
    expect(page.get_by_label("Key")).to_be_focused()
    expect(why).to_be_visible()
    give(page, key)
    expect(page.locator("#key-form")).to_be_hidden()
    expect(page.get_by_role("tab", name="Classify")).to_be_focused()
    page.reload()
    part = panel(page, "Write")
    expect(part.get_by_role("button", name="Write")).to_be_enabled()
    with page.expect_request("**/generate") as sent:
        write(part, 300)
    assert sent.value.headers["authorization"] == f"Bearer {key}"
    part = panel(page, "Classify")
    part.get_by_role("button", name="Sample").click()
    expect(status(part)).to_contain_text("ship")
    assert page.evaluate("localStorage.length") == 0 and page.context.cookies() == []


def test_a_key_without_the_list_of_models_does(visit, start_daemon, make_key):
    key = make_key("narrow", "--apis", "native", "--models", "enwik8-aft-conv")
    own = start_daemon(f"--keys-file={make_key.file}")
    page = visit(own.url, expect=["status of 401", "status of 403"], ready="#key-form")
    give(page, key)
    write(panel(page, "Write"), 300)
    part = panel(page, "Classify")
    part.get_by_role("button", name="Sample").click()
    expect(part.get_by_role("alert")).to_contain_text("narrow")  # the daemon says which key may not
