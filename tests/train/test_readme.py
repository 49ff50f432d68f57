"""What weights/train/README.md tells a newcomer to type works, word by word."""
import importlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from conftest import ROOT

from aft_train import load


@pytest.fixture(scope="module")
def document():
    return (ROOT / "weights" / "train" / "README.md").read_text()


def test_the_module_becomes_a_model_that_aft_proves(document, aft, tmp_path):
    script = re.search(r"^```python$(.*?)^```$", document, re.M | re.S).group(1)
    (tmp_path / "mine.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "weights" / "train"), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "mine.py"], cwd=tmp_path, env=environment, check=True, timeout=300)
    assert load(tmp_path / "models" / "mine").config.labels == ["dark", "bright"]
    told = subprocess.run([aft, "verify", "models/mine"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert told.returncode == 0 and "1 passed, 0 failed" in told.stdout, told
    for level, label in ((30, "dark"), (220, "bright")):
        picture = tmp_path / f"{label}.jpg"
        subprocess.run([sys.executable, "-c", "from PIL import Image; import sys; "
                        f"Image.new('RGB', (40, 50), ({level},) * 3).save(sys.argv[1])", picture], check=True)
        told = subprocess.run([aft, "classify", "models/mine", picture], cwd=tmp_path, capture_output=True, text=True,
                              timeout=60)
        assert told.stdout.splitlines()[0].split()[-1] == label, told


# The programs that the section of five commands calls.
CALLED = ("make ", ".venv/bin/", "build/", "curl ", "cat ", "kill ")
SHAPES = [(r'"label":"\w+"', '"label":"L"'), (r'"text":".*?(?<!\\)",', '"text":"T",'), (r"bf16|float32", "P"),
          (r"\d+(,\d{3})*(\.\d+)?(e-?\d+)?", "N")]
SERVER = ("for i in {{1..300}}; do curl -sf http://127.0.0.1:{port}/{path} | grep -q '{what}' && break; sleep 0.1; "
          "done\n")


def shape(line):
    """A line of output without its numbers, labels and words, which no two runs share."""
    for what, instead in SHAPES:
        line = re.sub(what, instead, line)
    return " ".join(line.split())


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def newcomer(tmp_path):
    """A folder with what the five commands expect, of 50 pictures of each of four labels."""
    program = Path(sys.executable).parent / "aft-train"
    assert program.exists(), f"{program} is not installed: make deps-train"
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "aft-train").symlink_to(program)
    for name in ("build", "server"):
        (tmp_path / name).symlink_to(ROOT / name)
    with tarfile.open(ROOT / "tests" / "data" / "cifar" / "pictures-500.tar.xz") as tar:
        tar.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # not in 3.11.2
    (tmp_path / "pets").mkdir()
    for label in ("cat", "dog", "frog", "ship"):
        (tmp_path / "test" / label).rename(tmp_path / "pets" / label)
    return tmp_path


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_five_commands_lead_from_data_to_answers(document, aft, newcomer):
    """As they are printed, but for the minutes and the port; what is printed of their output has its shape."""
    section = document.split("## From your data to answers")[1].split("\n## ")[0]
    lines = [line[4:] for line in section.splitlines() if line.startswith("    ")]
    commands = [line for line in lines if line.startswith(CALLED)]
    assert commands[0].split()[:3] == ["make", "all", "deps-train"] and len(commands) == 10
    port = free_port()
    script = "set -em\ntrap 'kill %1' EXIT\n"
    for line in commands[1:]:
        line = line.replace("--minutes 2", "--minutes 0.1").replace(":8080/", f":{port}/")
        if "aftd" in line:
            line = line.replace(" &", f" --listen-port {port} --log-level error &")
        script += line + ("; echo\n" if line.startswith("curl") else "\n")
        if "aftd" in line:
            script += SERVER.format(port=port, path="healthz", what="")
        if line.startswith("kill"):
            script += SERVER.format(port=port, path="v1/models", what='"sources"')
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "weights" / "train")}
    with subprocess.Popen(["bash", "-c", script], cwd=newcomer, env=environment, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as shell:
        try:
            out, err = shell.communicate(timeout=400)
        finally:
            shell.terminate()  # which ends the daemon
    assert shell.returncode == 0, err
    got = [shape(part) for part in re.split(r"[\n\r]", out + err)]
    for line in lines:
        if line and not line.startswith(CALLED):
            wanted = shape(line.removesuffix("...}"))
            assert any(have.startswith(wanted) for have in got), (wanted, out, err)
    assert out.count("1 passed, 0 failed") == 2


def test_every_command_and_option_that_it_names_exists(document):
    """Each `aft-train VERB` line is parsed by the program it names."""
    import aft_train_cli as cli

    commands = re.findall(r"^    (?:\$ )?(?:\.venv/bin/)?aft-train ([\w-]+) (.*?)(?:  +#.*)?$", document, re.M)
    assert {verb for verb, _ in commands} == set(cli.VERBS)
    for verb, arguments in commands:
        module = importlib.import_module("aft_train." + cli.VERBS[verb][0])
        module.parser().parse_args(arguments.split())
