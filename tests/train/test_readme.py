"""What weights/train/README.md tells a newcomer to type works, word by word."""
import os
import re
import subprocess
import sys

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
        assert told.stdout.splitlines()[0].endswith(" " + label), told


def test_every_command_and_option_that_it_names_exists(document):
    """Each `python -m aft_train.X` line is parsed by the program it names."""
    from aft_train import check, convert, images, pixels, text

    parsers = {"check": check, "convert": convert, "images": images, "pixels": pixels, "text": text}
    commands = re.findall(r"^    (?:\$ )?python -m aft_train\.(\w+) (.*?)(?:  +#.*)?$", document, re.M)
    assert {name for name, _ in commands} >= {"images", "text", "convert"}
    for name, arguments in commands:
        parsers[name].parser().parse_args(arguments.split())
