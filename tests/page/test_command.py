"""What the page does, as commands: they are run by a shell and must do the same. And what is copied."""
import json
import os
import subprocess

import pytest
from playwright.sync_api import expect
from test_key import give
from test_page import SAMPLE, panel, status, write

ODD = "it's \"so\" $HOME `id` $(id) \\ \\n !! %s \t& | > x\r\n\n{[*?~#;]} é 東京 '"


def command_of(part):
    part.get_by_text("Show as curl").click()
    return part.get_by_role("region", name="Command")


def run(command, folder, **environment):
    done = subprocess.run(["sh", "-c", command], cwd=folder, env={**os.environ, **environment}, capture_output=True,
                          timeout=60, check=True)
    return done.stdout


def text_of(stream):
    lines = stream.decode().split("\n")
    return "".join(json.loads(line[6:]).get("text", "") for line in lines if line.startswith("data: "))


def test_a_text_is_what_its_command_writes(visit, tmp_path):
    page = visit()
    part = panel(page, "Write")
    part.get_by_label("Prompt").fill(ODD)
    part.get_by_label("Seed").fill("7")
    part.get_by_label("Min p").fill("0.01")
    command = command_of(part)
    expect(command).to_contain_text('"seed":7')
    part.get_by_label("Maximum bytes").fill("120")
    expect(command).to_contain_text('"max_tokens":120')  # it follows the form
    write(part, 120)
    written = part.locator(".text").text_content()
    prompt = part.get_by_label("Prompt").input_value()  # in which the browser made line ends alike
    assert written == prompt + text_of(run(command.text_content(), tmp_path))


def test_pictures_are_classified_explained_and_completed_by_command(visit, tmp_path):
    name = "it's $HOME; a ship.jpg"
    (tmp_path / name).write_bytes(SAMPLE.read_bytes())
    page = visit()
    part = panel(page, "Classify")
    part.locator("input[type=file]").first.set_input_files(tmp_path / name)
    expect(status(part)).to_contain_text("ship")
    part.get_by_role("switch").check()
    expect(part.locator("figure img")).to_be_visible()
    command = command_of(part)
    expect(command).to_contain_text("explain")
    assert b'"label":"ship"' in run(command.text_content(), tmp_path)
    assert (tmp_path / "cifar10-aft-conv.png").read_bytes().startswith(b"\x89PNG")
    part = panel(page, "Draw")
    command = command_of(part)
    expect(command).to_contain_text("rows=0")  # without a picture
    run(command.text_content(), tmp_path)
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "drawn.png").unlink()
    part.locator("input[type=file]").first.set_input_files(tmp_path / name)
    expect(command).to_contain_text("rows=8")
    run(command.text_content(), tmp_path)
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")


def test_a_key_is_named_and_not_told(visit, start_daemon, make_key, tmp_path):
    key = make_key("somebody")
    own = start_daemon(f"--keys-file={make_key.file}")
    page = visit(own.url, expect=["status of 401"], ready="#key-form")
    give(page, key)
    part = panel(page, "Write")
    expect(part.get_by_role("button", name="Write")).to_be_enabled()
    part.get_by_label("Seed").fill("7")
    write(part, 300)
    shown = command_of(part)
    expect(shown).to_contain_text("curl")
    command = shown.text_content()
    assert key not in command and '"Authorization: Bearer $KEY"' in command
    assert part.locator(".text").text_content() == "The history of " + text_of(run(command, tmp_path, KEY=key))


@pytest.mark.parametrize("clipboard", ["new", "old"])
def test_texts_and_commands_are_copied(visit, clipboard):
    page = visit()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    if clipboard == "old":  # as where the page came over plain HTTP from another machine
        page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true })")
    part = panel(page, "Write")
    write(part, 300)
    copied = """async () => {
        delete navigator.clipboard;
        return navigator.clipboard.readText();
    }"""
    part.get_by_role("button", name="Copy", exact=True).click()
    expect(part.get_by_role("button", name="Copied")).to_be_focused()
    assert page.evaluate(copied) == part.locator(".text").text_content()
    command = command_of(part)
    if clipboard == "old":
        page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true })")
    part.get_by_role("button", name="Copy the command").click()
    expect(part.locator(".command .copy")).to_have_text("Copied")
    expect(part.locator(".command .copy")).to_be_focused()
    assert page.evaluate(copied) == command.text_content()
