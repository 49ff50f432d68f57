#!/usr/bin/env python3
"""run.py [--daemon build/aftd] [--examples 5000] [--seed N]: hold a real daemon's answers against its /openapi.json.

The document is validated, then schemathesis sends about as many requests as asked for, right and wrong ones, and checks
each answer's status, headers, content type and body (schemathesis.toml, hooks.py). The daemon must still be well after
that, and stop as it should. Ends with "N passed, N failed"; exit code 77 and a reason where a package is missing.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from aftd_daemon import ROOT, SLOW, Daemon

HERE = pathlib.Path(__file__).resolve().parent
# Short texts and deadlines keep thousands of requests a matter of minutes.
FLAGS = [
    "--threads=1",
    "--max-tokens=16",
    "--max-tokens-max=64",
    f"--timeout-ms={int(20000 * SLOW)}",
    f"--timeout-ms-max={int(20000 * SLOW)}",
    "--sessions-max=65536",
    "--session-ttl-s=5",
    "--sessions-memory-max-mb=65536",  # a bound: nothing near it is taken
    "--models-memory-max-mb=1024",  # else what that leaves of the machine
    "--log-requests=false",
]


def gather_models(source, folder):
    """The models of `source` in `folder`, and a small one that has conversations, which is the default of no task."""
    for model in pathlib.Path(source).resolve().iterdir():
        (folder / model.name).symlink_to(model)
    chat, golden = folder / "small-chat", ROOT / "tests" / "data" / "golden" / "lm-simple"
    chat.mkdir()
    config = json.loads((golden / "config.json").read_text())
    config["chat_template"] = {"system": "{content}\n", "user": "Q: {content}\n", "assistant": "A: {content}\n",
                               "reply": "A: ", "stop": ["\nQ:"]}  # fmt: skip
    (chat / "config.json").write_text(json.dumps(config))
    (chat / "model.safetensors").symlink_to(golden / "model.safetensors")


def operations_with_input(doc):
    """How many operations there is something to make up for."""
    return sum(
        1
        for item in doc["paths"].values()
        for operation in item.values()
        if operation.get("parameters") or operation.get("requestBody")
    )


def run_schemathesis(url, doc, args):
    """Its exit code, and how many requests it has made up."""
    each = max(1, -(-args.examples // operations_with_input(doc)))
    command = [
        sys.executable,
        "-c",
        "from schemathesis.cli import schemathesis; schemathesis()",
        "--config-file",
        str(HERE / "schemathesis.toml"),
        "run",
        f"{url}/openapi.json",
        f"--max-examples={each}",
        "--workers=1",
        "--no-color",
        f"--header=Authorization: Bearer {args.key}",
    ]
    if args.seed is not None:
        command.append(f"--seed={args.seed}")
    env = {
        **os.environ,
        "SCHEMATHESIS_HOOKS": "hooks",
        "PYTHONPATH": str(HERE),
        "PYTHONPYCACHEPREFIX": "build/pycache",
        "AFTD_URL": url,
        "AFTD_KEY": args.key,
    }
    # It keeps a database of what it found in the working directory.
    with tempfile.TemporaryDirectory(prefix="aftd-openapi-") as folder:
        done = subprocess.run(command, env=env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout)
    found = re.search(r"(\d[\d,]*) generated", done.stdout)
    return done.returncode, int(found.group(1).replace(",", "")) if found else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--daemon", default=str(ROOT / "build/aftd"))
    parser.add_argument("--models", default="weights/models")
    parser.add_argument("--examples", type=int, default=5000)
    parser.add_argument("--seed", type=int)
    args = parser.parse_args()
    try:
        import schemathesis  # noqa: F401
        from openapi_spec_validator import validate
    except ImportError as lack:
        print(f"the answers were not held against /openapi.json ({lack}); for what that needs: make deps-openapi")
        return 77
    passed, faults = 0, []
    folder = tempfile.TemporaryDirectory(prefix="aftd-openapi-")
    keys = f"{folder.name}/keys"
    models = pathlib.Path(folder.name) / "models"
    models.mkdir()
    gather_models(args.models, models)
    aft = pathlib.Path(args.daemon).with_name("aft")
    made = subprocess.run([aft, "key", "add", "test", "--file", keys], check=True, stdout=subprocess.PIPE, text=True)
    args.key = made.stdout.strip()
    daemon = Daemon(*FLAGS, f"--models-dir={models}", f"--keys-file={keys}", command=[args.daemon])
    try:
        with urllib.request.urlopen(f"{daemon.url}/openapi.json") as answer:
            doc = json.load(answer)
        validate(doc)  # raises
        passed += 1
        code, count = run_schemathesis(daemon.url, doc, args)
        if code != 0:
            faults.append(f"schemathesis ended with {code}")
        if count < args.examples:
            faults.append(f"{count} requests were made up, expected {args.examples}")
        passed += 1 if code == 0 and count >= args.examples else 0
        with urllib.request.urlopen(f"{daemon.url}/healthz") as answer:
            passed += 1 if answer.status == 200 else 0
    except Exception as fault:  # whatever it is, the daemon is stopped and the log shown
        faults.append(f"{type(fault).__name__}: {fault}")
    try:
        daemon.stop()
        passed += 1
    except Exception as fault:
        faults.append(f"the daemon's end: {type(fault).__name__}")
    if faults:
        print("the daemon's log:", daemon.said()[-8000:], *faults, sep="\n")
    print(f"{passed} passed, {len(faults)} failed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
