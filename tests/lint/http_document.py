"""http_document.py [ROOT]: server/HTTP.md describes the endpoints that there are, and no others.

An endpoint is described below a heading "### METHOD /path", which may name several with commas between them. What there
is, server/api/openapi.json says, which tests/server/api/test_openapi.c compares with the daemon's table of routes.
Endpoints that the text mentions in backquotes, as `GET /path`, must exist as well.
"""

import json
import re
import sys
from pathlib import Path

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")
ENDPOINT = rf"({'|'.join(METHODS)}) (/[^\s,`]*)"


def check(root):
    document = (root / "server/HTTP.md").read_text()
    paths = json.loads((root / "server/api/openapi.json").read_text())["paths"]
    there = {(method.upper(), path) for path, item in paths.items() for method in item if method.upper() in METHODS}
    headings = [line for line in document.splitlines() if line.startswith("#")]
    described = [endpoint for line in headings for endpoint in re.findall(ENDPOINT, line)]
    mentioned = re.findall(f"`{ENDPOINT}`", document)
    wrong = [f"{method} {path} has no heading" for method, path in sorted(there - set(described))]
    wrong += [f"{method} {path} is no endpoint" for method, path in sorted({*described, *mentioned} - there)]
    wrong += [f"{method} {path} has more than one heading" for method, path in sorted(there)
              if described.count((method, path)) > 1]
    return wrong


def main():
    wrong = check(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    for line in wrong:
        print(f"lint: server/HTTP.md: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
