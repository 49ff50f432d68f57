"""What the tests of aft_train share: the package on the path, one thread, and where things lie."""
import importlib.util
import os
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "weights" / "train"))
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def oracle():
    """The module that computes every model in float64 from the papers' equations."""
    spec = importlib.util.spec_from_file_location("oracle", ROOT / "tests" / "oracle" / "oracle.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def aft():
    """The served engine's program: AFT_PROGRAM, or the one that make builds."""
    program = Path(os.environ.get("AFT_PROGRAM", ROOT / "build" / "aft"))
    if not os.access(program, os.X_OK):
        pytest.skip(f"{program} is not built: make")
    return str(program)
