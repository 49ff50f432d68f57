"""Three daemons that share their sessions in a Redis server, behind nginx and behind HAProxy, under clients that go on
where a text breaks off: each daemon is killed in turn, and then the Redis server again and again. Every text is that of
a daemon which was left alone, byte for byte, and only what a killed daemon had is interrupted."""
import base64
import http.client
import json
import random
import shutil
import socket
import threading
import time

import pytest
from balancers import Balancer, Client, Daemon, free_ports, under_load, why_not
from conftest import HANG_S, Process, await_true
from test_balancers_upgrade import BEGINNING, LENGTH, SEEDS, whole_texts

READERS = 8
KILLS_OF_REDIS = 3
PASSES = (502, 503, 504)
REDIS = next((p for p in map(shutil.which, ("redis-server", "valkey-server", "redis-check-rdb")) if p), None)
# In a 409: a lease that a killed daemon left, or a request of which the daemon is still to notice that it was cut.
BUSY = "another request has the session", "is in use by another request"


class Redis:
    """One that keeps what it was told when it is killed, which the machine's end alone could lose."""

    def __init__(self, folder):
        self.folder, self.port, self.starts = folder, free_ports(1)[0], 0
        self.start()

    def start(self):
        self.starts += 1
        # Debian's redis-tools has the server under the name of another of its programs.
        self.process = Process(self.folder, f"redis-{self.starts}", [
            "bash", "-c", 'exec -a redis-server "$@"', "bash", REDIS, "--port", self.port, "--bind", "127.0.0.1",
            "--dir", self.folder, "--save", "", "--appendonly", "yes", "--appendfsync", "no"])
        await_true("Redis", self.answers)

    def answers(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as s:
                s.sendall(b"PING\r\n")
                return s.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def kill(self):
        self.process.process.kill()
        self.process.process.wait()


class Reader(threading.Thread):
    """One text after the other, read to its end whatever becomes of connections; half of them move a session."""

    def __init__(self, balancer, number, whole):
        super().__init__(daemon=True)
        self.client, self.draw, self.whole = Client(balancer, f"127.0.2.{number + 1}"), random.Random(number), whole
        self.stopped, self.wrong = threading.Event(), []
        self.texts = self.went_on = self.unseen = self.refused = self.busy = 0
        self.cuts = []  # of answers: when, and of which request
        self.longest_s = 0
        self.session = None

    def patient(self, what, attempt):
        """What the attempt returns, if that is not None: then it is made again."""
        began = time.monotonic()
        while time.monotonic() - began < HANG_S:
            try:
                result = attempt()
            except (OSError, http.client.HTTPException):
                self.cuts.append((time.monotonic(), self.client.last()))
                self.client.close()
                result = None
            if result is not None:
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                return result
            self.stopped.wait(0.1 * self.draw.uniform(0.5, 1))
        raise AssertionError(f"{what} is not answered")

    def must_wait(self, answer, said):
        is_busy = answer.status == 409 and any(b in said for b in BUSY)
        self.busy += is_busy
        self.refused += answer.status in PASSES
        return is_busy or answer.status in PASSES

    def ask(self, method, path, statuses, body=None):
        def attempt():
            answer = self.client.ask(method, path, body)
            if self.must_wait(answer, answer.body.decode()):
                return None
            assert answer.status in statuses, (method, path, answer.status, answer.body[:200])
            return answer
        return self.patient(f"{method} {path}", attempt)

    def read(self, body, session=None):
        """The bytes of a text. False behind them: there are more of them, but the session has moved on already, since
        its daemon was killed when it had stored that and had not told it."""
        got, place, tries = bytearray(), None, 0

        def attempt():
            nonlocal place, tries
            tries += 1
            if session and tries > 1 and not place:
                at = self.ask("GET", f"/v1/sessions/{session['name']}", (200,)).json()
                if at["turn"] != session["turn"]:
                    return got, False
            self.went_on += place is not None and tries > 1
            _, answer = self.client.send("POST", "/generate", {**body, "from": place} if place else body,
                                         {"X-Session-ID": session["name"]} if session else {})
            if answer.status != 200:
                said = answer.read().decode()
                if answer.status == 409 and "has moved on since" in said:
                    return got, False
                assert self.must_wait(answer, said), (answer.status, said)
                return None
            coming = None
            for line in answer:
                if line.startswith(b"id: "):
                    coming = line[4:].strip().decode()
                if not line.startswith(b"data: ") or not line.endswith(b"\n"):
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    assert event["error"]["code"] == "session_store", event
                    self.refused += 1
                    answer.read()
                    return None
                place = coming
                got.extend(base64.b64decode(event.get("bytes_base64", "")))
                if event.get("finish_reason") == "length":
                    try:
                        answer.read()
                    except (OSError, http.client.HTTPException):  # killed behind the end that it had told
                        self.client.close()
                    return got, True
            raise http.client.IncompleteRead(b"")
        return self.patient(f"{body}", attempt)

    def check(self, seed, at, count, got, is_whole=True):
        self.texts += 1
        self.unseen += not is_whole
        if bytes(got) != self.whole[seed][at:at + (count if is_whole else len(got))]:
            self.wrong.append(f"seed {seed}, at {at}, {count}: {bytes(got)!r}")

    def read_alone(self):
        seed, count = self.draw.randrange(SEEDS), self.draw.randrange(1, 400)
        got, _ = self.read({**BEGINNING, "seed": seed, "max_tokens": count, "stream": True, "bytes_base64": True})
        self.check(seed, 0, count, got)

    def move(self):
        if not self.session:
            self.session = {"name": f"read-{self.draw.getrandbits(64):016x}", "at": 0, "turn": 1,
                            "seed": self.draw.randrange(SEEDS)}
            # 409: it was made, which was not told
            self.ask("PUT", "/v1/sessions/" + self.session["name"], (201, 409),
                     {**BEGINNING, "seed": self.session["seed"]})
        s, count = self.session, self.draw.randrange(1, 200)
        got, is_whole = self.read({"max_tokens": count, "stream": True, "bytes_base64": True}, s)
        self.check(s["seed"], s["at"], count, got, is_whole)
        s["at"] += count
        s["turn"] += 1
        if s["at"] > LENGTH - 200:
            self.session = None
            self.ask("DELETE", "/v1/sessions/" + s["name"], (204, 404))

    def run(self):
        try:
            while not self.stopped.is_set():
                if self.draw.random() < 0.5:
                    self.read_alone()
                else:
                    self.move()
        except Exception as e:  # for the test to tell
            self.wrong.append(repr(e))


class Scene:
    def __init__(self, kind, folder):
        self.redis = Redis(folder)
        shared = {"sessions_redis": f"redis://127.0.0.1:{self.redis.port}/0", "sessions_dir": "off",
                  "sessions_lease_ms": 3000}
        self.daemons = [Daemon(folder, name, port, replica=name, **shared)
                        for name, port in zip("abc", free_ports(3), strict=True)]
        self.whole = whole_texts(self.daemons[0])
        self.balancer = Balancer(kind, folder, [f"127.0.0.1:{d.port}" for d in self.daemons])
        self.readers = []

    def read_while(self, disturb):
        self.readers = [Reader(self.balancer, i, self.whole) for i in range(READERS)]
        for r in self.readers:
            r.start()
        disturb()
        time.sleep(1)
        for r in self.readers:
            r.stopped.set()
        for r in self.readers:
            r.join(HANG_S)
            assert not r.is_alive()
        wrong = [w for r in self.readers for w in r.wrong]
        assert not wrong, "\n".join(wrong[:10])

    def sum(self, name):
        return sum(getattr(r, name) for r in self.readers)

    def tell(self, what):
        print(f"{what}: {self.sum('texts')} texts, {sum(len(r.cuts) for r in self.readers)} cut, {self.sum('went_on')} "
              f"times gone on, {self.sum('unseen')} ends unseen, {self.sum('refused')} refusals, "
              f"{self.sum('busy')} times in use; the longest took "
              f"{max(r.longest_s for r in self.readers):.1f} s")

    def close(self):
        for r in self.readers:
            r.stopped.set()
        self.balancer.close()
        for d in self.daemons:
            d.close()
        self.redis.kill()


@pytest.fixture(params=under_load("nginx"))
def scene(request, tmp_path):
    if why_not(request.param):
        pytest.skip(why_not(request.param))
    if REDIS is None:
        pytest.skip("neither redis-server nor valkey-server is there: make deps-balancers")
    s = Scene(request.param, tmp_path)
    yield s
    s.close()


def test_texts_of_a_killed_daemon_go_on_in_another(scene):
    killed = []

    def disturb():
        for d in scene.daemons:
            time.sleep(1.5)
            await_true("its streams", lambda d=d: d.figure("aftd_streams_running") > 0)
            killed.append((time.monotonic(), d))
            d.kill()
            time.sleep(1.5)
            d.start()
    scene.read_while(disturb)
    scene.tell("daemons killed")
    assert scene.sum("went_on") > 0
    assert scene.sum("unseen") <= len(killed) * READERS // 4
    # What was cut was in the daemon that was killed then: no other had begun it.
    for when, request in (cut for r in scene.readers for cut in r.cuts):
        _, daemon = max((k for k in killed if k[0] <= when), key=lambda k: k[0])
        assert not [d.name for d in scene.daemons if d is not daemon and d.line_of(request)], request


def test_texts_go_on_when_the_store_of_sessions_was_away(scene):
    def disturb():
        for _ in range(KILLS_OF_REDIS):
            time.sleep(1.5)
            scene.redis.kill()
            await_true("a refusal", lambda: any(d.figure("aftd_session_store_up") == 0 for d in scene.daemons))
            time.sleep(0.5)
            scene.redis.start()
    scene.read_while(disturb)
    scene.tell("Redis killed")
    assert scene.sum("refused") > 0
    assert not [cut for r in scene.readers for cut in r.cuts]
