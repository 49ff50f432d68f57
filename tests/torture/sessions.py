#!/usr/bin/env python3
"""sessions.py [--short] [--kills N]: the daemon is killed at random moments (fixed seeds) while clients begin, move on,
fork and end stored sessions, and is started again on the same folder. Every text is that of an undisturbed daemon, byte
for byte; what was answered is never lost; what was not answered has happened or not, as the session's turn says. Prints
a table; ends non-zero if something was not so. The standard library alone."""
import base64
import http.client
import json
import random
import shutil
import signal
import sys
import tempfile
import threading
import time

from attacked import TEXT_ALONE, Daemon, Report

SHORT = "--short" in sys.argv
KILLS = int(sys.argv[sys.argv.index("--kills") + 1]) if "--kills" in sys.argv else 20 if SHORT else 1000
CLIENTS, SEEDS, LENGTH = 8, 16, 2000
FLAGS = [TEXT_ALONE, "--threads=1", "--drain-idle-ms=0", "--log-requests=false"]
BEGINNING = {"prompt": "The history of ", "temperature": 0.8}
JSON = {"Content-Type": "application/json"}


class Cut(Exception):
    """There was no answer, or not all of one."""


class Scene:
    """The daemon as it is now, and what was counted."""

    def __init__(self, folder, report):
        self.folder, self.report, self.over = folder, report, False
        self.lock, self.counts = threading.Lock(), {}
        self.daemon = self.start()

    def start(self):
        return Daemon(*FLAGS, f"--sessions-dir={self.folder}/sessions", "--sessions-max=12", models="off")

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def ask(self, method, path, fields=None):
        """Status and body; Cut if the daemon was killed meanwhile."""
        body = json.dumps(fields) if fields is not None else None
        try:
            status, _, text = self.daemon.ask(method, path, body, JSON if body else None)
        except (OSError, http.client.HTTPException) as e:
            raise Cut from e
        return status, text

    def ask_until_answered(self, method, path, fields=None):
        while True:
            try:
                return self.ask(method, path, fields)
            except Cut:
                time.sleep(0.02)


class Text:
    """A session of one client, and how far that knows it to be."""

    def __init__(self, scene, draw, whole):
        self.scene, self.draw, self.whole = scene, draw, whole
        self.id, self.turn, self.at = None, 0, 0

    def begin(self):
        seed = self.draw.randrange(SEEDS)
        name = f"text-{self.draw.getrandbits(64):016x}"
        self.expected, self.at, self.turn = self.whole[seed], 0, 1
        try:
            status, text = self.scene.ask("PUT", "/v1/sessions/" + name, {**BEGINNING, "seed": seed})
        except Cut:
            status, text = self.scene.ask_until_answered("GET", "/v1/sessions/" + name)
            self.scene.count("begun, not answered: " + ("there" if status == 200 else "not there"))
            if status == 404:
                return
        self.check(status in (200, 201), f"a new session: {status} {text[:200]}")
        self.id = name
        self.scene.count("begun")

    def check(self, right, what):
        return self.scene.report.check(right, what)

    def take(self, count, text, is_whole):
        """What came of a text that would have `count` bytes."""
        expected = self.expected[self.at:self.at + count]
        self.check(text == expected if is_whole else expected.startswith(text),
                   f"at {self.at}: {text!r}, expected {expected!r}")

    def go_on(self):
        count = self.draw.randrange(1, 60)
        fields = {"session": self.id, "max_tokens": count, "bytes_base64": True,
                  "stream": self.draw.random() < 0.5}
        try:
            status, body = self.scene.ask("POST", "/generate", fields)
            if not self.check(status == 200, f"a text: {status} {body[:200]}"):
                return
            if fields["stream"] and b"finish_reason" not in body:
                raise Cut
        except Cut:
            self.find_out(count)
            return
        self.take(count, bytes_of(body, fields["stream"]), True)
        self.at, self.turn = self.at + count, self.turn + 1
        self.scene.count("moved on")

    def find_out(self, count):
        """Nobody answered: where is it?"""
        status, body = self.scene.ask_until_answered("GET", "/v1/sessions/" + self.id)
        if not self.check(status == 200, f"a session that was answered is lost: {status} {body[:200]}"):
            self.id = None
            return
        turn = json.loads(body)["turn"]
        self.check(turn in (self.turn, self.turn + 1), f"its turn is {turn}, expected {self.turn} or one more")
        self.scene.count("not answered: " + ("moved" if turn > self.turn else "where it was"))
        self.at, self.turn = self.at + (count if turn > self.turn else 0), turn

    def fork(self):
        """A fork has a seed's next sample: its text is its own, but it stands where this one does."""
        try:
            status, body = self.scene.ask("POST", f"/v1/sessions/{self.id}/fork")
        except Cut:
            return
        if not self.check(status == 201, f"a fork: {status} {body[:200]}"):
            return
        fork = json.loads(body)["sessions"][0]
        status, body = self.scene.ask_until_answered("GET", "/v1/sessions/" + fork["id"])
        self.check(status == 200, f"a fork is lost: {status} {body[:200]}")
        self.scene.ask_until_answered("DELETE", "/v1/sessions/" + fork["id"])
        self.scene.count("forked")

    def end(self):
        try:
            status, body = self.scene.ask("DELETE", "/v1/sessions/" + self.id)
            self.check(status == 204, f"an end: {status} {body[:200]}")
            status, _ = self.scene.ask_until_answered("GET", "/v1/sessions/" + self.id)
            self.check(status == 404, f"a session that was ended is there again: {status}")
            self.scene.count("ended")
        except Cut:
            pass
        self.id = None

    def step(self):
        if self.id is None:
            self.begin()
        elif self.at > LENGTH - 60 or self.draw.random() < 0.02:
            self.end()
        elif self.draw.random() < 0.03:
            self.fork()
        else:
            self.go_on()


def bytes_of(body, is_stream):
    if not is_stream:
        return base64.b64decode(json.loads(body)["bytes_base64"])
    events = [json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith("data: ")]
    return b"".join(base64.b64decode(e["bytes_base64"]) for e in events if "bytes_base64" in e)


def client(scene, number, whole):
    draw = random.Random(number)
    texts = [Text(scene, draw, whole) for _ in range(3)]
    while not scene.over:
        try:
            draw.choice(texts).step()
        except (AssertionError, KeyError, TypeError, ValueError) as e:
            scene.report.check(False, repr(e))
            return


def whole_texts():
    with Daemon(*FLAGS, models="off") as d:
        texts = []
        for seed in range(SEEDS):
            fields = {**BEGINNING, "seed": seed, "max_tokens": LENGTH, "bytes_base64": True}
            _, _, body = d.ask("POST", "/generate", json.dumps(fields), JSON)
            texts.append(bytes_of(body, False))
        return texts


def main():
    report, draw = Report(), random.Random(18)
    folder = tempfile.mkdtemp(prefix="aftd-torture-")
    try:
        scene = Scene(folder, report)
        whole = whole_texts()
        threads = [threading.Thread(target=client, args=(scene, i, whole), daemon=True) for i in range(CLIENTS)]
        for t in threads:
            t.start()
        for _ in range(KILLS):
            time.sleep(draw.uniform(0.01, 0.3))
            before = scene.daemon
            before.signal(signal.SIGKILL)
            before.process.wait()
            scene.daemon = scene.start()
            before.close()
        scene.over = True
        for t in threads:
            t.join()
        left = scene.daemon.log()
        report.check("is refused" not in left, "a session was refused: " + left)
        report.check(scene.daemon.stop() == 0, "it does not stop")
        scene.daemon.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for what, count in sorted(scene.counts.items()):
        print(f"{count:8d}  {what}")
    print(f"{KILLS:8d}  kills\n{len(report.wrong):8d}  lost or wrong")
    report.end()


if __name__ == "__main__":
    main()
