"""precision.json of a finished model: what bf16 and int8 cost in quality, as `aft check-precision` measures it."""
import contextlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from .recipe import TrainError
from .texts import write_texts as write_table

STDERR = 2


def check_program(program):
    """Refuse an aft that is not there, before anything is trained. Raises TrainError."""
    if program is not None and shutil.which(program) is None:
        raise TrainError(f"--aft {program} is no program that can be run, expected aft, such as build/aft")


def record(program, model_dir, write):
    """Have aft measure a model, and write its precision.json, on what write(folder) puts there and returns the path of.

    Raises TrainError; the model is then as it was.
    """
    with tempfile.TemporaryDirectory(prefix="aft-train-") as folder:
        data = write(Path(folder))
        done = subprocess.run([program, "check-precision", "--force", str(model_dir), str(data)], stdout=STDERR)
    if done.returncode:
        raise TrainError(f"{model_dir} is written, but has no precision.json: {program} check-precision ended with "
                         f"{done.returncode}")


def write_text(folder, data):
    """The bytes of a uint8 array as a file."""
    (folder / "held-out").write_bytes(data.tobytes())
    return folder / "held-out"


def write_texts(folder, texts):
    """Those of the Texts that are UTF-8, as lines of a file."""
    def rows():
        for text, label in zip(texts.texts, texts.labels):
            with contextlib.suppress(UnicodeDecodeError):
                yield text.tobytes().decode(), texts.classes[label]

    write_table(folder / "held-out.jsonl", rows())
    return folder / "held-out.jsonl"


def write_pictures(folder, pictures, numbers):
    """Some of the Pictures as files in a folder for each label."""
    for i in numbers:
        source, name = pictures.sources[i], f"{i}{Path(pictures.names[i]).suffix}"
        at = folder / pictures.classes[pictures.labels[i]]
        at.mkdir(exist_ok=True)
        (at / name).write_bytes(source if isinstance(source, bytes) else source.read_bytes())
    return folder
