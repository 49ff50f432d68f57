"""deploy/nginx and deploy/haproxy before three real daemons: who is asked, how, and what for. The files are those that
ship; balancers.py says what is replaced in them. `make test-balancers` runs this."""
import json
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest
from balancers import KINDS, LONG, NAME, Balancer, Client, Daemon, free_ports, settings, why_not
from conftest import DEPLOY, HANG_S, await_true

FORGED = {"X-Forwarded-For": "192.0.2.6", "Forwarded": "for=192.0.2.7"}


class Scene:
    def __init__(self, kind, folder):
        self.daemons = [Daemon(folder, name, port) for name, port in zip("abc", free_ports(3), strict=True)]
        self.balancer = Balancer(kind, folder, [f"127.0.0.1:{d.port}" for d in self.daemons])

    def who(self, answer):
        """The names of the daemons that have a line of that request."""
        await_true(f"a line of {answer.request}", lambda: any(d.line_of(answer.request) for d in self.daemons))
        return "".join(d.name for d in self.daemons if d.line_of(answer.request))

    def close(self):
        self.balancer.close()
        for d in self.daemons:
            d.close()


@pytest.fixture(scope="module", params=KINDS)
def scene(request, tmp_path_factory):
    if why_not(request.param):
        pytest.skip(why_not(request.param))
    s = Scene(request.param, tmp_path_factory.mktemp(request.param))
    yield s
    s.close()


@pytest.fixture
def client(scene):
    c = Client(scene.balancer)
    yield c
    c.close()


def test_the_file_is_accepted_without_a_warning(scene):
    code, said = scene.balancer.checked
    assert code == 0 and not re.search("warn|alert|emerg", said, re.I), said


# ---- who is asked ----------------------------------------------------------------------------------------------------


def test_a_session_is_asked_of_the_daemon_that_made_it(scene, client):
    made, i = set(), 0
    while i < 9 or (made != set("abc") and i < 50):  # a daemon that was slow to answer may be taken for dead meanwhile
        name = f"text.{i}~" + "x" * (64 - len(f"text.{i}~") if i == 0 else i)  # the longest one, too
        path = f"/v1/sessions/{name}"
        answers = [
            client.ask("PUT", path, {"prompt": "The history of ", "temperature": 0}),
            client.ask("GET", path), client.ask("GET", path.replace("text", "%74ext")),
            client.ask("POST", "/generate", {"max_tokens": 5}, {"X-Session-ID": name}),
            client.ask("POST", "/generate", {"max_tokens": 5, "session": name, "stream": True}, {"X-Session-ID": name}),
            client.ask("PUT", path, {}, {"Accept": "application/json"}),
            client.ask("GET", path + "/state"), client.ask("DELETE", path), client.ask("GET", path)]
        assert [a.status for a in answers] == [201, 200, 200, 200, 200, 409, 200, 204, 404]
        assert answers[4].headers["Content-Type"] == "text/event-stream"
        who = {scene.who(a) for a in answers}
        assert len(who) == 1, who
        made |= who
        i += 1
    assert made == set("abc")


def test_a_session_under_an_id_that_the_client_has_not_chosen_is_found(scene, client):
    made = set()
    for _ in range(12):
        begun = client.ask("POST", "/v1/sessions", {"prompt": "The history of "}, {"X-Session-ID": "another"})
        assert begun.status == 201, begun.body
        name = begun.headers["X-Session-ID"]
        assert name == begun.json()["id"] and re.fullmatch("[0-9a-f]{32}", name)
        assert begun.headers["Location"] == f"/v1/sessions/{name}"
        on = client.ask("POST", "/generate", {"max_tokens": 5}, {"X-Session-ID": name})
        assert on.status == 200 and scene.who(begun) == scene.who(on)
        made.add(scene.who(begun))
    assert len(made) >= 2


def test_a_fork_is_found_as_the_documents_say(scene, client):
    """By the header of its answer, or, where the balancer goes by ids alone, by way of its state."""
    for _ in range(4):
        name = client.ask("POST", "/v1/sessions", {"prompt": "The history of "}).headers["X-Session-ID"]
        forked = client.ask("POST", f"/v1/sessions/{name}/fork")
        fork = forked.json()["sessions"][0]["id"]
        assert forked.status == 201 and forked.headers["X-Session-ID"] == fork
        if scene.balancer.kind == "haproxy":
            assert client.ask("GET", f"/v1/sessions/{fork}").status == 200
        state = client.ask("GET", f"/v1/sessions/{name}/state").body
        copy = client.ask("POST", "/v1/sessions", {}).headers["X-Session-ID"]
        put = client.ask("PUT", f"/v1/sessions/{copy}/state", state, {"Content-Type": "application/octet-stream"})
        assert put.status == 200 and put.json()["position"] == 15


def test_a_browsers_cookie_leads_to_the_session_that_it_made_last(scene, client):
    for _ in range(6):
        begun = client.ask("POST", "/v1/sessions", {"prompt": "The history of "})
        cookie = begun.headers["Set-Cookie"].split(";")[0]
        assert cookie == "aftd-session=" + begun.json()["id"]
        on = client.ask("POST", "/generate", {"max_tokens": 5, "session": begun.json()["id"]},
                        {"Cookie": f"a=b; {cookie}; c=d"})
        assert on.status == 200, on.body


def test_what_is_nobodys_goes_to_the_daemon_with_the_fewest_requests(scene):
    clients = [Client(scene.balancer) for _ in range(6)]
    try:
        for c in clients:
            _, answer = c.send("POST", "/generate", {"max_tokens": LONG, "stream": True})
            answer.read(1)
        running = [d.figure("aftd_streams_running") for d in scene.daemons]
        assert running == [2, 2, 2]
    finally:
        for c in clients:
            c.close()
    # A client that leaves is told to the daemon.
    await_true("the streams' end", lambda: not any(d.figure("aftd_streams_running") for d in scene.daemons))
    await_true("its count", lambda: sum(d.figure("aftd_requests_cancelled_total") for d in scene.daemons) == 6)


def test_a_client_that_leaves_before_its_answer_takes_its_request_along(scene, client):
    before = sum(d.figure("aftd_requests_cancelled_total") for d in scene.daemons)
    client.c.request("POST", "/generate", json.dumps({"max_tokens": LONG, "n": 16}),
                     {"Host": NAME, "Content-Type": "application/json"})
    await_true("its begin", lambda: any(d.figure("aftd_streams_running") for d in scene.daemons))
    client.close()
    await_true("its end", lambda: not any(d.figure("aftd_streams_running") for d in scene.daemons))
    await_true("its count", lambda: sum(d.figure("aftd_requests_cancelled_total") for d in scene.daemons) == before + 1)


# ---- what comes through ----------------------------------------------------------------------------------------------


def runs(scene):
    return any(d.figure("aftd_streams_running") for d in scene.daemons)


def test_events_that_would_all_fit_into_a_buffer_arrive_as_they_are_written(scene, client):
    """A picture's 16 rows, or what the machine makes of them, of some 130 bytes each, and the end. The first one comes
    while the daemon still draws; as it does not do so for long, once in many tries is enough: what is held back until
    the end never does."""
    early = False
    for _ in range(50):
        _, answer = client.send("POST", "/complete?rows=0&seed=1", b"", {"Accept": "text/event-stream"})
        first = answer.readline()
        early = runs(scene)
        rest = answer.read()
        assert len(first + rest) < 4096 and b"finish_reason" in rest
        if early:
            break
    assert early


def test_events_arrive_over_http_2_as_browsers_speak_it(scene):
    if shutil.which("curl") is None:
        pytest.skip("curl is not there: make deps-balancers")
    with subprocess.Popen(
            ["curl", "-sSNki", "--http2", "--connect-to", f"{NAME}:443:127.0.0.1:{scene.balancer.port}",
             f"https://{NAME}/generate?max_tokens={LONG}&prompt=x"], stdout=subprocess.PIPE) as curl:
        try:
            assert curl.stdout.readline().startswith(b"HTTP/2 200")
            assert any(line.startswith(b"data: ") for line in curl.stdout)
            assert runs(scene)
        finally:
            curl.kill()
    await_true("its end", lambda: not runs(scene))


def test_an_event_source_that_comes_back_is_known_by_its_header(scene, client):
    """Nothing more is to come; without the header the text would begin again."""
    path = "/generate?max_tokens=3&prompt=x&seed=1"
    first = client.ask("GET", path)
    place = re.findall(r"^id: (\S+)$", first.body.decode(), re.M)[-1]
    assert client.ask("GET", path, headers={"Last-Event-ID": place}).status == 204
    assert client.ask("GET", path).status == 200


def test_clients_are_told_apart_by_their_own_addresses(scene):
    for source in ("127.0.0.2", "127.0.0.3"):
        c = Client(scene.balancer, source)
        for headers in ({}, FORGED, {"Forwarded": "for=192.0.2.7"}):
            answer = c.ask("POST", "/generate", {"max_tokens": 2}, headers)
            assert answer.status == 200
            line, = (d.line_of(answer.request) for d in scene.daemons if d.name in scene.who(answer))
            assert f" client={source} " in line
        c.close()


def test_a_body_that_is_too_large_is_refused_as_the_daemon_does(scene, client):
    kind = {"Content-Type": "application/octet-stream"}
    most = 16 << 20
    assert client.ask("POST", "/complete", bytes(most), kind).status == 415  # it arrives: it is no picture
    # It may come while the body is sent: then the rest of it is not taken.
    client.close()
    client.c.putrequest("POST", "/complete", skip_host=True)
    for name, value in {"Host": NAME, **kind, "Content-Length": str(most + 1)}.items():
        client.c.putheader(name, value)
    client.c.endheaders()
    answer = client.c.getresponse()
    assert answer.status == 413 and json.loads(answer.read())["error"]["code"] == "body_too_large"


def test_what_is_not_for_clients_is_not_there(scene, client):
    for path in ("/metrics", "/%6detrics", "/metrics?x=y"):
        assert client.ask("GET", path).status == 404
    assert client.ask("GET", "/admin/models").status == 404
    strange = client.ask("GET", "/readyz", headers={"Host": "elsewhere.example.org"})
    # Over TCP nginx, where it has one server only, leaves that to the daemons.
    assert strange.status == (421 if scene.balancer.kind == "haproxy" else 403)
    assert client.ask("GET", "/readyz").json() == {"status": "ready"}


def test_no_log_of_the_balancer_has_prompts_or_sessions(scene, client):
    client.ask("PUT", "/v1/sessions/who-knows-it", {})
    client.ask("GET", "/generate?max_tokens=2&prompt=do-not-tell")
    client.ask("GET", "/v1/sessions/who-knows-it")
    last = client.ask("GET", "/v1/models").request
    await_true("a line", lambda: f"id={last}" in scene.balancer.how.said())
    said = scene.balancer.how.said()
    assert "/v1/sessions/{session}" in said and "GET /generate " in said
    assert "who-knows-it" not in said and "do-not-tell" not in said


# ---- what a daemon's end does ----------------------------------------------------------------------------------------


def test_a_killed_daemon_loses_what_it_had_and_nothing_is_sent_again(scene):
    """Six streams and six whole answers, two of each in every daemon: one is killed in the middle."""
    await_true("silence", lambda: not any(d.figure("aftd_streams_running") for d in scene.daemons))
    clients = [Client(scene.balancer) for _ in range(12)]
    results, threads = {}, []

    def ask(c, i):
        try:
            a = c.ask("POST", "/generate", {"max_tokens": 12000, "seed": i, "bytes_base64": True, "stream": i % 2 == 0})
            results[i] = a.status, a.bytes() if a.status == 200 else None
        except Exception as e:  # the connection was cut
            results[i] = None, repr(e)

    for i, c in enumerate(clients):
        threads.append(threading.Thread(target=ask, args=(c, i)))
        threads[-1].start()
    await_true("the streams", lambda: sum(d.figure("aftd_streams_running") for d in scene.daemons) == 12)
    killed, *others = scene.daemons
    assert killed.figure("aftd_streams_running") == 4
    killed.signal(signal.SIGKILL)
    for t in threads:
        t.join(HANG_S)
    failed = [i for i, (status, text) in results.items() if status != 200 or text is None]
    assert len(failed) == 4 and len(results) == 12, results
    assert all(results[i][0] in (502, None) for i in failed if i % 2 == 1), results
    # What failed was begun by nobody else.
    for i, c in enumerate(clients):
        if i not in failed:  # a line comes after the answer
            await_true(f"a line of {i}", lambda c=c: any(d.line_of(c.last()) for d in others))
        lines = [d.name for d in others if d.line_of(c.last())]
        assert len(lines) == (0 if i in failed else 1), (i, lines)
        c.close()

    # Meanwhile the others answer what is nobody's, and know their sessions.
    c = Client(scene.balancer)
    for i in range(20):
        assert c.ask("POST", "/generate", {"max_tokens": 2, "seed": i}).status == 200
    if scene.balancer.kind == "haproxy":  # which knows who is there
        await_true("a refusal to be noticed", lambda: "Server aftd/a is DOWN" in scene.balancer.log.read_text() or
                   "aftd/a is DOWN" in scene.balancer.how.said())
        made = [c.ask("PUT", f"/v1/sessions/meanwhile-{i}", {}) for i in range(9)]
        assert {a.status for a in made} == {201}
    killed.kill()
    killed.start()
    if scene.balancer.kind == "haproxy":
        await_true("it is seen", lambda: "aftd/a is UP" in scene.balancer.how.said())
        # What was made elsewhere, although its id says here, is found; also by a new process.
        for again in range(2):
            for i in range(9):
                assert c.ask("GET", f"/v1/sessions/meanwhile-{i}").status == 200
            if not again:
                assert len({scene.who(a) for a in made}) == 2
                # In its first five seconds it would tell its successor nothing: it waits to be told itself.
                await_true("its start to be over",
                           lambda: "resync_timeout=<PAST>" in scene.balancer.how.told("show peers"))
                scene.balancer.process.send_signal(signal.SIGUSR2)
                await_true("the new process", lambda: scene.balancer.log.read_text().count("Loading success") == 2)
                await_true("what it is told", lambda: scene.balancer.how.known_sessions() >= len(made))
                c.close()
    c.close()


@pytest.mark.parametrize("kind", KINDS)
def test_unix_sockets_do_as_well(kind):
    if why_not(kind):
        pytest.skip(why_not(kind))
    folder = Path(tempfile.mkdtemp(prefix="aftd-unix-"))  # where a user without rights may come by
    folder.chmod(0o755)
    path = folder / "a.sock"
    daemon = Daemon(folder, "a", free_ports(1)[0], listen_unix=str(path), listen_unix_mode="0666", listen_address="off",
                    sessions_dir="off")
    try:
        b = Balancer(kind, folder, [f"unix:{path}" if kind == "nginx" else f"unix@{path}"] * 3)
        try:
            c = Client(b, "127.0.0.4")
            answer = c.ask("POST", "/generate", {"max_tokens": 3}, FORGED)
            assert answer.status == 200, answer.body
            await_true("a line", lambda: daemon.line_of(answer.request))
            assert " client=127.0.0.4 " in daemon.line_of(answer.request)
            c.close()
        finally:
            b.close()
    finally:
        daemon.close()
        shutil.rmtree(folder)


# ---- one daemon ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(why_not("nginx") is not None, reason=str(why_not("nginx")))
def test_one_daemon_behind_nginx_is_what_single_conf_says(tmp_path):
    daemon = Daemon(tmp_path, "one", free_ports(1)[0])
    balancer = Balancer("single", tmp_path, [f"127.0.0.1:{daemon.port}"])
    client = Client(balancer)
    try:
        assert balancer.checked[0] == 0 and not re.search("warn|alert|emerg", balancer.checked[1]), balancer.checked[1]
        answer = client.ask("POST", "/generate", {"max_tokens": 5}, FORGED)
        assert answer.status == 200
        await_true("a line", lambda: daemon.line_of(answer.request))
        assert "client=127.0.0.1 " in daemon.line_of(answer.request)
        assert client.ask("POST", "/classify", b"x" * (16 << 20) + b"x").status == 413
        _, stream = client.send("POST", "/generate", {"max_tokens": LONG, "stream": True})
        assert stream.read(1) and daemon.figure("aftd_streams_running") == 1  # events come while it is written
    finally:
        client.close()
        balancer.close()
        daemon.close()


def test_the_folder_for_sessions_is_where_the_unit_lets_the_daemon_make_it():
    folder = Path(settings()["sessions_dir"])
    for unit in (DEPLOY / "systemd").glob("*.service"):
        states = re.search(r"^StateDirectory=(.*)$", unit.read_text(), re.M)[1].split()
        assert str(folder.parent) in [f"/var/lib/{state}" for state in states]
