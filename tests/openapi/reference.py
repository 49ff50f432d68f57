#!/usr/bin/env python3
"""reference.py DAEMON: server/API.md, made of what a daemon with default settings says at /openapi.json, on stdout.

`make api` writes it; tests/server/api/test_openapi.c refuses one that is not what this prints.
"""

import json
import re
import sys
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from aftd_daemon import Daemon

BYTES = ("string", "[Picture](#picture)")
EVERY = {"400", "401", "403", "411", "413", "414", "429"}  # what HTTP.md says of every request
TITLES = {"native": "aftd's own API", "openai": "OpenAI's API", "inference": "Open Inference Protocol",
          "health": "Health, metrics, the page", "admin": "Administration"}  # fmt: skip
PREFACE = """# Reference of the HTTP interface

Every endpoint with its fields and answers; [HTTP.md](HTTP.md) is the guide, with examples and what holds for every
request. Beside the [errors](HTTP.md#errors) that are named here, any request may be answered 400, 401, 403, 414 or 429,
and one with a body 411 or 413. A field that is null counts as left out. What is below `/v2/models/{model}` is below
`/v2/models/{model}/versions/{version}` too.

The daemon says the same to programs at `/openapi.json`. `make api` writes this page from that, with the ranges of the
default settings: change `server/api/openapi.json` or the tables of routes and fields, not this page.
"""


def fetch(program):
    """What the public listener describes, and what that of administrators does."""
    daemon = Daemon("--admin-address=127.0.0.1", "--admin-port=0", "--models-lazy=true", command=[program])
    ports = daemon.port, daemon.admin_port
    docs = [json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/openapi.json")) for port in ports]
    daemon.stop()
    return docs


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-")


def kind(schema):
    """A few words for what a value is."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{anchor(name)})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(kind, schema["anyOf"])))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema.get("enum") or [schema["const"]])
    types = schema.get("type", "any value")
    words = " or ".join([types] if isinstance(types, str) else types)
    if "items" in schema:
        return words.replace("array", f"list of ({kind(schema['items'])})")
    if "properties" in schema:
        inner = ", ".join(f"`{key}`: " + kind(of) + (f" ({of['description']})" if "description" in of else "")
                          for key, of in schema["properties"].items())  # fmt: skip
        return words.replace("object", f"{{{inner}}}")
    return words + (" in base64" if "contentEncoding" in schema else "")


def table(rows):
    lines = ["", "| name | what |", "| --- | --- |"]
    return [*lines, *(f"| {name} | {what} |" for name, what in rows)] if rows else []


def members(schema):
    """Rows of an object's members."""
    return [(f"`{name}`", ": ".join(filter(None, (kind(of), of.get("description")))))
            for name, of in schema["properties"].items()]  # fmt: skip


def inputs(fields, known):
    """Rows of what a request may have; what is as for /generate is told there alone."""
    rows, same = [], []
    for name, about, schema, required in fields:
        if about and known.get(name, "").endswith(about):
            same += [f"`{name}`"]
            continue
        if about.endswith("a whole number") and "maximum" in schema:
            about += f" from {schema['minimum']} to {schema['maximum']}"
        rows += [(f"`{name}`" + ", required" * required, about or kind(schema))]
    return rows + ([(", ".join(same), "as for [POST /generate](#post-generate)")] if same else [])


def of_operation(operation, known):
    texts = [text[0].upper() + text[1:] for text in (operation["summary"], operation.get("description")) if text]
    yield from ["", " ".join(text + ("" if text[-1] in ".?" else ".") for text in texts)]
    for place in ("a header", "the query"):
        rows = inputs([(p["name"], p.get("description", ""), p["schema"], p.get("required", False))
                       for p in operation.get("parameters", ()) if place.endswith(p["in"])], known)  # fmt: skip
        yield from ["", f"In {place}:", *table(rows)] if rows else []
    bodies = operation.get("requestBody", {"content": {}, "required": True})
    named = []
    for media, body in bodies["content"].items():
        schema = body["schema"]
        if schema.get("properties") and "description" not in schema:
            yield from ["", f"In a body `{media}`:"]
            yield from table(inputs([(name, of.get("description", ""), of, name in schema.get("required", ()))
                                     for name, of in schema["properties"].items()], known))  # fmt: skip
        else:
            named += [f"`{media}`" + ("" if kind(schema) in BYTES or "$ref" not in schema else f", {kind(schema)}")]
        if body.get("example"):
            yield from ["", f"    {json.dumps(body['example'])}"]
    word = "The" if len(named) == len(bodies["content"]) else "As a"
    yield from ["", f"{word} body: {', '.join(named)}."] if named else []
    yield from [] if bodies["required"] else ["", "The body may be missing."]
    refused = []
    for status, answer in operation["responses"].items():
        name = answer.get("$ref", "").rpartition("/")[2]
        if name and name != "Status":
            refused += [status] if status not in EVERY else []
            continue
        medias = [f"`{media}`" + ("" if (what := kind(body["schema"])) in BYTES else f", {what}")
                  for media, body in answer.get("content", {}).items()]  # fmt: skip
        yield from ["", f"**{status}**: {answer.get('description') or '[Status](#status)'}."]
        yield from [f"- {media}" for media in medias]
        yield from table([(f"`{header}`", of["description"])
                          for header, of in answer.get("headers", {}).items() if "description" in of])  # fmt: skip
    yield from ["", f"Errors: {', '.join(refused)}."] if refused else []


def document(public, admin):
    paths = {**public["paths"], **{path: item for path, item in admin["paths"].items() if path not in public["paths"]}}
    chapters = {tag: [] for tag in TITLES}
    generate = paths["/generate"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    known = {name: of["description"] for name, of in generate.items()}
    for path, item in paths.items():
        if "/versions/" in path:
            continue
        for method, operation in item.items():
            chapters[operation["tags"][0]].append((f"{method.upper()} {path}", operation))
    lines = [PREFACE]
    for tag, title in TITLES.items():
        links = [f"[{name}](#{anchor(name)})" for name, _ in chapters[tag]]
        lines += [f"- [{title}](#{anchor(title)}): {', '.join(links)}"]
    for tag, title in TITLES.items():
        lines += ["", f"## {title}"]
        for name, operation in chapters[tag]:
            lines += ["", f"### {name}", *of_operation(operation, known if name != "POST /generate" else {})]
    lines += ["", "## Objects"]
    for name, schema in sorted(public["components"]["schemas"].items()):
        lines += ["", f"### {name}", *(table(members(schema)) if "properties" in schema else ["", f"{kind(schema)}."])]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(document(*fetch(sys.argv[1])))
