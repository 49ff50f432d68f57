"""Three daemons behind nginx and behind HAProxy are drained and started again, one after the other, under clients that
never try again: no request fails, and every text is that of a daemon which was left alone, byte for byte."""
import base64
import http.client
import json
import random
import signal
import subprocess
import threading
import time

import pytest
from balancers import AFT, NAME, Balancer, Client, Daemon, free_ports, under_load, why_not
from conftest import HANG_S, await_true

SEEDS, LENGTH = 8, 1200
CLIENTS = 6
BEGINNING = {"prompt": "The history of ", "temperature": 0.8}


class Load(threading.Thread):
    """One client after another request: sessions that it begins, moves on, looks at and ends, and texts without one."""

    def __init__(self, balancer, number, whole):
        super().__init__(daemon=True)
        self.client, self.draw, self.whole = Client(balancer, f"127.0.1.{number + 1}"), random.Random(number), whole
        self.stopped, self.wrong, self.counts = threading.Event(), [], {}
        self.longest_s = 0
        self.texts = {}  # a session's seed, and how far it is

    def ask(self, status, *request):
        began = time.monotonic()
        try:
            answer = self.client.ask(*request)
        except (OSError, http.client.HTTPException) as e:
            self.wrong.append(f"{request[:2]}: {e!r}")
            return None
        self.longest_s = max(self.longest_s, time.monotonic() - began)
        self.counts[status] = self.counts.get(status, 0) + 1
        if answer.status != status:
            self.wrong.append(f"{request}: {answer.status}, expected {status}: {answer.body[:200]}")
            return None
        return answer

    def check(self, answer, seed, at, count):
        if answer is not None and answer.bytes() != self.whole[seed][at:at + count]:
            self.wrong.append(f"seed {seed}, at {at}: {answer.bytes()!r}")

    def begin(self):
        seed = self.draw.randrange(SEEDS)
        if self.draw.random() < 0.5:
            name = f"text-{self.draw.getrandbits(64):016x}"
            answer = self.ask(201, "PUT", f"/v1/sessions/{name}", {**BEGINNING, "seed": seed})
        else:
            answer = self.ask(201, "POST", "/v1/sessions", {**BEGINNING, "seed": seed})
        if answer is not None:
            self.texts[answer.headers["X-Session-ID"]] = (seed, 0)

    def go_on(self):
        name = self.draw.choice(list(self.texts))
        seed, at = self.texts[name]
        count = self.draw.randrange(1, 60)
        answer = self.ask(200, "POST", "/generate",
                          {"max_tokens": count, "bytes_base64": True, "stream": self.draw.random() < 0.5},
                          {"X-Session-ID": name})
        self.check(answer, seed, at, count)
        self.texts[name] = (seed, at + count)
        if at + count > LENGTH - 60 or answer is None:
            self.end(name)

    def end(self, name):
        self.texts.pop(name)
        self.ask(204, "DELETE", f"/v1/sessions/{name}")

    def step(self):
        chance = self.draw.random()
        if chance < 0.4:
            seed, count = self.draw.randrange(SEEDS), self.draw.randrange(1, 200)
            self.check(self.ask(200, "POST", "/generate", {
                **BEGINNING, "seed": seed, "max_tokens": count, "bytes_base64": True,
                "stream": self.draw.random() < 0.5}), seed, 0, count)
        elif chance < 0.45:
            self.ask(200, "GET", "/v1/models")
        elif len(self.texts) < 4:
            self.begin()
        elif chance < 0.5:
            self.ask(200, "GET", "/v1/sessions/" + self.draw.choice(list(self.texts)))
        elif chance < 0.53:
            self.end(self.draw.choice(list(self.texts)))
        else:
            self.go_on()

    def run(self):
        try:
            while not self.stopped.is_set():
                self.step()
                self.stopped.wait(0.02)  # the machine has other work to do
        except Exception as e:  # for the test to tell
            self.wrong.append(repr(e))


class AftLoad:
    """aft load until it is stopped: then, what it tells. (libcurl sends a request again whose kept connection was
    closed before it arrived, as browsers do.)"""

    def __init__(self, balancer, folder):
        self.process = subprocess.Popen(
            [AFT, "load", f"https://127.0.0.1:{balancer.port}", "--ca-file", folder / "certificate.pem", "--header",
             f"Host: {NAME}", "--concurrency", "4", "--max-tokens", "60", "--duration", "3600", "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        try:
            told, said = self.process.communicate(timeout=HANG_S)
        finally:
            self.kill()
        assert self.process.returncode == 0 and not said, said
        return json.loads(told)

    def kill(self):
        self.process.kill()
        self.process.wait()


def whole_texts(daemon):
    """What a daemon says that nobody disturbs."""
    texts = []
    for seed in range(SEEDS):
        answer = daemon.ask("/generate", {**BEGINNING, "seed": seed, "max_tokens": LENGTH, "bytes_base64": True})
        texts.append(base64.b64decode(json.loads(answer)["bytes_base64"]))
    assert len(set(texts)) == SEEDS
    return texts


@pytest.mark.parametrize("kind", under_load("haproxy"))
def test_daemons_are_upgraded_in_turn_and_no_request_fails(kind, tmp_path):
    if why_not(kind):
        pytest.skip(why_not(kind))
    # nginx does not wait for a daemon that is restarted: its socket does, as systemd holds it.
    daemons = [Daemon(tmp_path, name, port, held=kind == "nginx")
               for name, port in zip("abc", free_ports(3), strict=True)]
    balancer, loads, aft_load = None, [], None
    try:
        whole = whole_texts(daemons[0])
        balancer = Balancer(kind, tmp_path, [f"127.0.0.1:{d.port}" for d in daemons])
        aft_load = AftLoad(balancer, tmp_path)
        loads = [Load(balancer, i, whole) for i in range(CLIENTS)]
        for load in loads:
            load.start()
        await_true("sessions", lambda: all(d.figure("aftd_sessions") > 0 for d in daemons))
        for d in daemons:
            time.sleep(1)
            before = d.figure("aftd_sessions")
            d.stop()
            d.start()
            assert before > 0  # it had some, which go on: nothing else would answer them
        time.sleep(1)
        told = aft_load.stop()
    finally:
        if aft_load:
            aft_load.kill()
        for load in loads:
            load.stopped.set()
        for load in loads:
            load.join(HANG_S)
        if balancer:
            balancer.close()
        for d in daemons:
            d.close()
    wrong = [what for load in loads for what in load.wrong]
    asked = sum(sum(load.counts.values()) for load in loads)
    print(f"{kind}: {asked} requests, the longest took {max(load.longest_s for load in loads):.1f} s; aft load: "
          f"{told['answered']} of {told['requests']} answered, the longest {told['e2e_ms']['max'] / 1e3:.1f} s")
    assert not wrong, f"{len(wrong)} of {asked}: " + "\n".join(wrong[:10])
    assert asked > 0 and told["failed"] == 0 and told["answered"] > 0, told
