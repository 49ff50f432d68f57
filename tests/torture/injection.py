#!/usr/bin/env python3
"""injection.py [--short]: line ends, quotes, controls, characters that turn the direction or end a line, and paths that
lead out, raw, percent-encoded and so twice, in every field of a request, in models' folders and in keys files. The long
form also puts them together, MIXED times, as a seed draws them; the short one tries a few of each kind.

Whatever is sent, the connection ends; an answer has the headers that the daemon gives, its JSON parses, and no byte of
it stands for a line or an effect that it should not have; an error has a message. Of the log, as text and as JSON,
each line is one event, with nothing in it that a terminal obeys, and there is one for each answer. /metrics is in
Prometheus's format and has no series that a client named. Prints how much was tried; ends non-zero if something was
not so. The standard library alone, and promtool where there is one."""
import hashlib
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unicodedata

from attacked import HANG_S, PICTURE, Daemon, Report

SHORT = "--short" in sys.argv
PIECES = [s.encode() for s in (
    "a\r\nX-Injected: 1", "a\r\n X-Injected: 1", "a\nX-Injected: 1", "a\rb", '"q"', '\\"', "'", "a\0b", "\x1b[31m\x07",
    "\x7f", "\x85", "\x9b2J", "\u202ecod.exe", "\u2028X", "\u2029X", "\u2066\u061c", "\ufeff\u200b", "\U000e0041\u00ad",
    "../../../etc/passwd", "..\\..\\etc\\passwd", "/etc/passwd", "....//....//etc/passwd", "%2e%2e%2fetc%2fpasswd",
    "%0d%0aX-Injected:%201", "%00", "%e2%80%ae", "<script>alert(1)</script>", "}} {{1}}", 'x"} 1\nevil_metric{a="b',
    "$(id)", "${jndi:ldap://x}", "%n%s%x", "a" * 300)] + [b"\xff\xfe\x80", b"\xc0\xae\xc0\xae/", b"\xed\xa0\x80"]
LABELS = PIECES[8:15]  # of a model
MIXED = 60


def mixtures():
    draw = random.Random(1)
    for _ in range(MIXED):
        yield b"".join(draw.choice(PIECES) for _ in range(draw.randrange(2, 6)))


EVIL = PIECES[::4] if SHORT else PIECES + list(mixtures())
HEADERS = {  # all that an answer may have
    "access-control-allow-headers", "access-control-allow-methods", "access-control-allow-origin",
    "access-control-max-age", "access-control-expose-headers", "allow", "cache-control", "connection",
    "content-encoding", "content-length", "content-security-policy", "content-type",
    "cross-origin-resource-policy", "date", "etag", "inference-header-content-length", "location", "referrer-policy",
    "retry-after", "server", "server-timing", "set-cookie", "traceparent", "transfer-encoding", "vary",
    "www-authenticate",
    "x-accel-buffering", "x-content-type-options", "x-explain-head", "x-explain-layer", "x-explain-prediction",
    "x-explain-view", "x-frame-options", "x-model", "x-prompt-tokens-dropped", "x-request-id", "x-seed",
    "x-session-id"}
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


# ---- requests --------------------------------------------------------------------------------------------------------

def forms(evil):
    once = b"".join(b"%%%02x" % b for b in evil)
    return evil, once, once.replace(b"%", b"%25")


def request(method=b"GET", target=b"/healthz", headers=(), body=None, host=b"127.0.0.1"):
    lines = [method + b" " + target + b" HTTP/1.1", b"Host: " + host, b"Connection: close", *headers]
    if body is not None:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")


def json_post(target, said):
    return request(b"POST", target, [b"Content-Type: application/json"], said)


def quoted(evil):
    """As a JSON string: escaped where it must be; what is no UTF-8 is sent as it is."""
    try:
        return json.dumps(evil.decode()).encode()
    except UnicodeDecodeError:
        return b'"' + evil + b'"'


IN_PATHS = [b"/", b"/page/", b"/v1/models/", b"/v2/models/", b"/v1/sessions/", b"/v1//sessions/", b"/admin/models/",
            b"/admin/requests/", b"/v2/models/text/versions/"]
IN_HEADERS = [b"X-Request-Id", b"X-Forwarded-For", b"Forwarded", b"User-Agent", b"Traceparent", b"Tracestate",
              b"Origin", b"Referer", b"Cookie", b"Accept", b"If-None-Match", b"X-API-Key", b"Content-Type",
              b"Content-Encoding", b"Access-Control-Request-Headers", b"Access-Control-Request-Method", b"Expect",
              b"Range", b"Upgrade"]
IN_JSON = {  # field by field of each path
    b"/generate": [b"model", b"prompt", b"prompt_base64", b"stop", b"priority", b"context_overflow", b"session",
                   b"state"],
    b"/v1/completions": [b"model", b"prompt", b"user", b"suffix", b"stop"],
    b"/v1/embeddings": [b"model", b"input", b"encoding_format", b"user"],
    b"/v1/chat/completions": [b"model", b"messages", b"user", b"stop", b"tool_choice", b"response_format"],
    b"/v1/sessions": [b"model", b"prompt", b"state"],
    b"/score": [b"model", b"text", b"text_base64"],
    b"/classify": [b"model", b"text", b"size"],
    b"/v2/models/text/infer": [b"id"],
    b"/admin/models/text": [b"action"],
}


def requests(evil):
    for form in forms(evil):
        for path in IN_PATHS:
            yield request(target=path + form)
            yield request(b"DELETE", path + form)
        yield request(b"PUT", b"/v1/sessions/" + form, [b"Content-Type: application/json"], b"{}")
        for header in (b"X-Session-Id: ", b"Last-Event-ID: "):
            yield request(b"POST", b"/generate", [b"Content-Type: application/json", header + form],
                          b'{"max_tokens": 1, "stream": true}')
        for path in (b"/classify", b"/metrics", b"/v1/models", b"/generate", b"/complete"):
            yield request(target=path + b"?" + form + b"=1")
            yield request(b"POST", path + b"?model=" + form, body=PICTURE)
            yield request(b"POST", path + b"?" + form, body=PICTURE)
        for name in IN_HEADERS:
            yield request(headers=[name + b": " + form])
        yield request(b"OPTIONS", b"/generate", [b"Origin: " + form, b"Access-Control-Request-Method: POST"])
        yield request(host=form)
        yield request(target=b"http://" + form + b"/healthz")
        yield request(headers=[form + b": 1"])
        yield request(headers=[b"X-Request-Id: fine", b"Traceparent: " + TRACE.encode() + form])
        yield request(headers=[b"Authorization: Bearer " + form])
        yield request(form, b"/healthz")
        yield request(b"POST", b"/v1/compress", [b"Content-Type: text/" + form], b"x")
        yield multipart(b"image", form)
        yield multipart(form, b"a.png")
        yield request(b"POST", b"/classify", [b"Content-Type: multipart/form-data; boundary=" + form], b"--" + form)
        yield request(b"POST", b"/classify", [b"Content-Type: image/" + form], PICTURE)
        yield request(b"POST", b"/v2/models/text/infer", [b"Inference-Header-Content-Length: " + form], b"{}")
    said = quoted(evil)
    for path, fields in IN_JSON.items():
        for field in fields:
            yield json_post(path, b'{"max_tokens": 1, "%s": %s}' % (field, said) if path == b"/generate" else
                            b'{"%s": %s}' % (field, said))
        yield json_post(path, b"{%s: 1}" % said)
        yield json_post(path, said)
        yield json_post(path, evil)
    for message in (b'"role": "user", "content": %s' % said, b'"role": %s, "content": "x"' % said,
                    b'"role": "user", "content": "x", %s: 1' % said,
                    b'"role": "user", "content": [{"type": %s, "text": "x"}]' % said):
        yield json_post(b"/v1/chat/completions", b'{"messages": [{%s}]}' % message)
    tensor = b'{"name": "prompt", "datatype": "BYTES", "shape": [1], "data": [%s]}'
    for part in (b'"id": %s, "inputs": [%s]' % (said, tensor % b'"x"'), b'"inputs": [%s]' % (tensor % said),
                 b'"inputs": [%s]' % (tensor % b'"x"').replace(b'"prompt"', said),
                 b'"inputs": [%s]' % (tensor % b'"x"').replace(b'"BYTES"', said),
                 b'"inputs": [%s], "outputs": [{"name": %s}]' % (tensor % b'"x"', said),
                 b'"inputs": [%s], "parameters": {%s: 1}' % (tensor % b'"x"', said)):
        yield json_post(b"/v2/models/text/infer", b"{%s}" % part)


def multipart(name, filename):
    body = (b'--b\r\nContent-Disposition: form-data; name="' + name + b'"; filename="' + filename +
            b'"\r\nContent-Type: image/jpeg\r\n\r\n' + PICTURE + b"\r\n--b--\r\n")
    return request(b"POST", b"/classify", [b"Content-Type: multipart/form-data; boundary=b"], body)


# ---- answers ---------------------------------------------------------------------------------------------------------

def exchange(port, data, ends=True):
    """`ends`: the client sends no more, so that what is not whole is not waited for; for a client that has left counts
    who ends so before the answer, 499."""
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as s:
        try:
            s.sendall(data)
            if ends:
                s.shutdown(socket.SHUT_WR)
            seen = b""
            while piece := s.recv(65536):
                seen += piece
            return seen
        except ConnectionError:
            return seen if "seen" in locals() else b""


def is_hidden(c):
    """What no line of ours may have in it: it moves the cursor, the line or the reader."""
    return unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs")


def hidden_in(body):
    return [c for c in body.decode() if is_hidden(c)]


def wrong_with(answer):
    """None, or what is wrong with an answer; an empty one is a connection that was cut."""
    if not answer:
        return None
    head, gap, body = answer.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    if not gap or not re.fullmatch(rb"HTTP/1\.1 [2-5]\d\d [A-Za-z -]+", lines[0]):
        return "no answer"
    headers = {}
    for line in lines[1:]:
        found = re.fullmatch(rb"([A-Za-z-]+): ([\x20-\x7e]*)", line)
        name = found.group(1).lower().decode() if found else ""
        if name not in HEADERS or name in headers:
            return f"the header {line}"
        headers[name] = found.group(2).decode()
    if headers.get("content-type", "").startswith("application/json"):
        try:
            said = json.loads(body)
        except ValueError:
            return "no JSON"
        error = said.get("error", {}) if isinstance(said, dict) else {}
        message = error if isinstance(error, str) else error.get("message", "-")
        if not message:
            return "no message"
        if lines[0][9:10] in b"45" and hidden_in(body):
            return f"the body {body}"
    if b"root:x:0" in body:
        return "another file"
    return None


def status_of(answer):
    return int(answer[9:12]) if answer.startswith(b"HTTP/") else 0


# ---- the log and the metrics -----------------------------------------------------------------------------------------

TEXT_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (error|warning|info|debug) .+")


def check_log(report, what, text, is_json):
    """The number of requests that it tells of."""
    lines = text.split("\n")[:-1]
    for line in lines:
        if is_json:
            try:
                pairs = json.loads(line, object_pairs_hook=list)
                fine = len({k for k, _ in pairs}) == len(pairs) and {"time", "level"} <= {k for k, _ in pairs}
            except ValueError:
                fine = False
        else:
            fine = TEXT_LINE.fullmatch(line) is not None
        report.check(fine and not [c for c in line if is_hidden(c)], f"{what}: the log's line {line!r}")
    return sum('"id":' in line or " id=" in line for line in lines)


SERIES = re.compile(r'([a-z_]+)(\{[a-z_]+="(?:[^"\\\n]|\\["\\n])*"(?:,[a-z_]+="(?:[^"\\\n]|\\["\\n])*")*\})? '
                    r'(-?[0-9.]+(?:e[+-]?\d+)?|\+Inf|NaN)')


def check_metrics(report, what, text):
    """The series' names with their labels."""
    series = set()
    for line in text.splitlines():
        if not line.startswith(("# HELP ", "# TYPE ")):
            found = SERIES.fullmatch(line)
            report.check(found is not None, f"{what}: the metric {line!r}")
            if found is not None:
                report.check(found.group(1, 2) not in series, f"{what}: {line!r} twice")
                series.add(found.group(1, 2))
    report.check(not [c for c in text if c != "\n" and is_hidden(c)], f"{what}: /metrics has what nobody sees")
    if shutil.which("promtool"):
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
        report.check(done.returncode == 0, f"{what}: promtool: {done.stdout}{done.stderr}")
    return series


# ---- what is attacked ------------------------------------------------------------------------------------------------

def put_model(folder, name, of, change=None):
    """A copy of a golden model; change(config) makes it what it is to be."""
    to = os.path.join(os.fsencode(folder), name)
    os.makedirs(to)
    config = json.load(open(f"tests/data/golden/{of}/config.json"))
    if change is not None:
        change(config)
    with open(os.path.join(to, b"config.json"), "w") as f:
        json.dump(config, f)
    shutil.copy(f"tests/data/golden/{of}/model.safetensors", os.path.join(to, b"model.safetensors"))


def as_text(evil):
    return evil.decode(errors="replace").replace("\0", "")


def attack_requests(report, folder, log_format):
    tally = {}
    with Daemon("--log-format=" + log_format, "--log-level=debug", "--trusted-proxies=127.0.0.1",
                "--admin-address=127.0.0.1", "--admin-port=0", "--http-threads=2", "--session-cookie=on",
                models=folder) as d:
        ports = (d.port, d.admin_port())
        before = check_metrics(report, "before", d.ask("GET", "/metrics")[2].decode())
        with_id = 1
        for evil in EVIL:
            for data in requests(evil):
                for port in ports:
                    answer = exchange(port, data)
                    wrong = wrong_with(answer)
                    report.check(wrong is None, f"{wrong}: {data[:200]!r}")
                    tally[status_of(answer)] = tally.get(status_of(answer), 0) + 1
                    with_id += b"\r\nX-Request-Id: " in answer
        after = check_metrics(report, "after", d.ask("GET", "/metrics")[2].decode())
        strange = {s for s in after - before if "evil" in str(s) or re.search(r"passwd|Injected|%", str(s))}
        report.check(not strange, f"new series {strange}")
        report.check(d.stop() == 0, "it did not end as it should")
        told = check_log(report, log_format, d.log(), log_format == "json")
        report.check(told == with_id + 1, f"{log_format}: {told} lines for {with_id + 1} answers")
    print(f"{sum(tally.values())} requests, log as {log_format}: " +
          ", ".join(f"{n} of {status}" if status else f"{n} cut" for status, n in sorted(tally.items())), flush=True)


def hostile_models(evil):
    """Names of folders, and every text in a config.json: (folder, what is put there)."""
    name, text = evil.replace(b"/", b"_").replace(b"\0", b"_")[:200], as_text(evil)
    yield b"bad" + name, lambda c: None
    yield b"task", lambda c: c.update(task=text)
    yield b"mixer", lambda c: c["mixer"].update(type=text)
    yield b"key", lambda c: c.update({text: 1})
    yield b"shard", lambda c: None


def put_hostile_model(folder, name, change, text):
    put_model(folder, name, "lm-simple", change)
    if name == b"shard":
        to = os.path.join(folder, "shard", "model.safetensors")
        os.remove(to)
        with open(to + ".index.json", "w") as f:
            json.dump({"weight_map": {text: text}}, f)


def reload_and_look(report, d, name, evil):
    """What became of the new model."""
    answers = [exchange(port, data, ends=False) for port, data in (
        (d.admin_port(), json_post(b"/admin/config/reload", b"{}")), (d.admin_port(), request(target=b"/admin/models")),
        (d.port, request(target=b"/v1/models")))]
    for answer in answers:
        wrong = wrong_with(answer)
        report.check(wrong is None, f"models: {wrong}: {name} {evil!r}")
        report.check(not hidden_in(answer.partition(b"\r\n\r\n")[2]), f"models: {name} {evil!r}: {answer[:600]!r}")
    if status_of(answers[0]) == 422:
        return "refused"
    state = re.search(rb'"model":"%s","state":"(\w+)"' % re.escape(name), answers[1])
    state = state.group(1).decode() if state else "absent"
    report.check(status_of(answers[0]) == 200 and state in ("loaded", "failed"), f"models: {name} {evil!r}: {state}")
    report.check(b'"id":"%s"' % name in answers[2], f"models: {name} {evil!r} is {state}, and not listed")
    return state


def attack_models(report, folder, log_format):
    """They come while the daemon runs, which tells of them in its log and to administrators."""
    labels = [as_text(e)[:80] for e in LABELS]
    models = os.path.join(folder, "models-" + log_format)
    put_model(models, b"labelled", "conv-heads8-k5", lambda c: c.update(labels=labels))
    with Daemon("--log-format=" + log_format, "--log-level=debug", "--admin-address=127.0.0.1", "--admin-port=0",
                models=models) as d:
        told = {}
        for evil in EVIL:
            for name, change in hostile_models(evil):
                put_hostile_model(models, name, change, as_text(evil))
                end = reload_and_look(report, d, name, evil)
                told[end] = told.get(end, 0) + 1
                shutil.rmtree(os.path.join(os.fsencode(models), name))
        for target in (b"/classify?model=labelled&top_k=7", b"/explain?model=labelled"):
            answer = exchange(d.port, request(b"POST", target, [b"Content-Type: image/jpeg"], PICTURE), ends=False)
            report.check(wrong_with(answer) is None and status_of(answer) == 200, f"labels: {answer[:300]!r}")
            if b"application/json" in answer:
                seen = {p["label"] for p in json.loads(answer.partition(b"\r\n\r\n")[2])["predictions"]}
                report.check(seen == set(labels), f"the labels became {seen}")
        check_metrics(report, "models", d.ask("GET", "/metrics")[2].decode())
        report.check(d.stop() == 0, "it did not end as it should")
        check_log(report, "models", d.log(), log_format == "json")
    print(f"{sum(told.values())} models, log as {log_format}: {told}", flush=True)


def attack_keys(report, folder):
    """Names of keys, fields and models of keys: refused at the start, in one line."""
    path, refused = os.path.join(folder, "keys.json"), 0
    fine = {"name": "a", "sha256": hashlib.sha256(b"x").hexdigest()}
    for evil in EVIL:
        for key in ({**fine, "name": as_text(evil)}, {**fine, as_text(evil): 1}, {**fine, "models": [as_text(evil)]},
                    {**fine, "apis": [as_text(evil)]}):
            with open(path, "w") as f:
                json.dump({"keys": [key]}, f)
            os.chmod(path, 0o600)
            done = subprocess.run([os.environ.get("AFTD_TEST_DAEMON", "build/aftd"), "--check-config",
                                   "--keys-file=" + path, "--models-dir=tests/data/models"],
                                  capture_output=True, text=True, errors="replace", timeout=HANG_S)
            report.check(done.returncode in (0, 1, 2), f"keys: {done}")
            report.check(not [c for c in done.stderr + done.stdout if c != "\n" and is_hidden(c)],
                         f"keys: {done.stderr!r}")
            refused += done.returncode != 0
    print(f"{4 * len(EVIL)} keys files: {refused} refused", flush=True)


def main():
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        put_model(folder, b"text", "lm-simple")
        put_model(folder, b"picture", "conv-heads8-k5")
        for log_format in ("text", "json"):
            attack_requests(report, folder, log_format)
            attack_models(report, folder, log_format)
        attack_keys(report, folder)
    report.end()


if __name__ == "__main__":
    main()
