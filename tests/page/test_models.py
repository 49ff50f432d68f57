"""Which models the page offers, and what it says where it has none: not yet known, not loaded, not allowed."""
import json

from conftest import let_pass, stop_clock
from playwright.sync_api import expect
from test_key import give
from test_page import CONV, SAMPLE, panel, status


def with_states(states):
    """Has the daemon's list tell of these models that they are in such states, and leaves out those without one."""
    def prepare(page):
        def answer(route):
            models = route.fetch().json()["data"]
            told = [{**model, "state": states[model["id"]]} for model in models if model["id"] in states]
            route.fulfill(body=json.dumps({"object": "list", "data": told}), content_type="application/json")
        page.route("**/v1/models", answer)
    return prepare


def test_a_list_that_fails_is_asked_for_again(visit):
    failures = [{"status": 503, "body": json.dumps({"error": {"message": "the server is draining"}})},
                {"status": 502, "body": "<html>Bad gateway</html>"}, None]

    def prepare(page):
        def answer(route):
            if not failures:
                route.continue_()
            elif failures[0] is None:
                route.abort()
            else:
                route.fulfill(**failures[0])
        page.route("**/v1/models", answer)
        stop_clock(page)

    page = visit(expect=["status of 50", "ERR_FAILED"], ready="#models-why", prepare=prepare)
    why = page.locator("#models-why")
    part = panel(page, "Classify")
    expect(status(part)).to_have_text("Asking for the models…")
    part.locator("input[type=file]").first.set_input_files(SAMPLE)
    expect(why).to_have_text("The models are not known: the server is draining. Asking again in 1 s.")
    let_pass(page, 1)
    expect(why).to_have_text("The models are not known: the server is draining. Asking again in 2 s.")
    failures.pop(0)
    let_pass(page, 2)
    expect(why).to_have_text("The models are not known: the answer was 502 Bad Gateway. Asking again in 4 s.")
    failures.pop(0)
    let_pass(page, 4)
    expect(why).to_have_text("The models are not known: the daemon cannot be reached. Asking again in 8 s.")
    expect(panel(page, "Write").get_by_role("button", name="Write")).to_be_disabled()
    failures.pop(0)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # somebody looks again: no need to wait
    expect(why).to_be_hidden()
    expect(panel(page, "Write").get_by_role("button", name="Write")).to_be_enabled()
    expect(status(panel(page, "Classify"))).to_contain_text("ship")  # the picture that was there first


def test_another_daemon_is_asked_for_its_models(visit, start_daemon):
    """One that comes back may have others."""
    page = visit(expect=["ERR_FAILED"], prepare=stop_clock)
    expect(page.locator("#live")).to_be_in_viewport()
    expect(page.locator("#health")).to_contain_text("ready, version")
    page.route("**/metrics", lambda route: route.abort())
    let_pass(page, 2)
    expect(page.locator("#health")).to_have_text("not reachable")
    with_states({"cifar10-sima": "loaded"})(page)
    page.unroute("**/metrics")
    let_pass(page, 2)
    expect(page.locator("#classify .models .check")).to_have_text(["cifar10-sima"])


def test_models_that_are_away_are_not_offered(visit):
    page = visit(prepare=with_states({
        "cifar10-aft-conv": "idle", "cifar10-sima": "unloaded", "enwik8-aft-conv": "unloaded",
        "cifar10-pixels-16": "failed"}))
    part = panel(page, "Classify")
    expect(part.locator(".models .check")).to_have_text(["cifar10-aft-conv (loaded when asked)"])
    part.get_by_role("button", name="Sample").click()
    expect(status(part)).to_contain_text("cifar10-aft-conv: ship")
    part = panel(page, "Write")
    expect(status(part)).to_have_text(
        "No model that writes texts can be used: an administrator has unloaded enwik8-aft-conv.")
    expect(part.get_by_role("button", name="Write")).to_be_disabled()
    part = panel(page, "Draw")
    expect(status(part)).to_have_text("No model that could be loaded draws pictures; cifar10-pixels-16 could not be.")
    expect(part.get_by_role("button", name="Draw")).to_be_disabled()


def test_what_the_daemon_does_not_have_is_said(visit):
    page = visit(prepare=with_states({"cifar10-sima": "loaded"}))
    expect(status(panel(page, "Write"))).to_have_text("This daemon has no model that writes texts.")
    page.unroute("**/v1/models")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(status(panel(page, "Write"))).to_have_text("The text appears here.")


def test_what_the_key_may_not_use_is_said(visit, start_daemon, make_key):
    key = make_key("writer", "--models", "enwik8-aft-conv")
    own = start_daemon(f"--keys-file={make_key.file}")
    page = visit(own.url, expect=["status of 401"], ready="#key-form")
    give(page, key)
    expect(page.locator("#key-form")).to_be_hidden()
    expect(page.locator("#models-why")).to_be_hidden()
    expect(panel(page, "Write").get_by_role("button", name="Write")).to_be_enabled()
    expect(status(panel(page, "Classify"))).to_have_text(
        "No model that classifies pictures can be used: your key may not use cifar10-aft-conv, cifar10-sima.")


def test_a_model_that_is_being_loaded_is_waited_for(visit, start_daemon):
    page = visit(start_daemon("--models-lazy=true").url, expect=["status of 503"])
    part = panel(page, "Classify")
    expect(part.locator(".models .check")).to_have_text(
        ["cifar10-aft-conv (loaded when asked)", "cifar10-sima (loaded when asked)"])
    part.get_by_role("button", name="Sample").click()
    expect(status(part)).to_contain_text(CONV)
    part = panel(page, "Write")
    part.get_by_role("button", name="Write").click()
    expect(status(part)).to_contain_text("300 bytes (maximum)")
