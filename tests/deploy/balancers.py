"""What the tests of deploy/nginx and deploy/haproxy share: three daemons with the settings that deploy/BALANCER.md
gives them, and the balancers before them with the files that ship. Only addresses, paths and the certificate are
others."""
import base64
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess

from conftest import DEPLOY, ENVIRONMENT, HANG_S, ROOT, TEXT, Process, await_true, make_certificate

PROGRAMS = {"nginx": "/usr/sbin/nginx", "haproxy": "/usr/sbin/haproxy"}
DAEMON = os.environ.get("AFTD_TEST_DAEMON", str(ROOT / "build/aftd"))
AFT = os.environ.get("AFTD_TEST_CLI", str(ROOT / "build/aft"))
DRAWS = "cifar10-pixels-16"
NAME = "aftd.example.org"  # as all of the files have it
JSON = {"Content-Type": "application/json"}
LONG = 65536  # bytes of a text that takes seconds


def why_not(balancer):
    """Why it cannot run here, or None."""
    if not os.access(PROGRAMS[balancer], os.X_OK):
        return f"{PROGRAMS[balancer]} is not there: make deps-balancers"
    if balancer == "haproxy" and os.geteuid() != 0:
        return "HAProxy changes its root and user as deploy/haproxy/haproxy.cfg says, which takes root"
    return None


def free_ports(count, but=None):
    """Below those that the kernel gives to whoever connects, so that a daemon that is started again gets its own. `but`
    is one that was found before, and that nobody listens on yet."""
    found = []
    for port in random.sample([p for p in range(21500, 21600) if p != but], 99):
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free ports")


def settings():
    """What deploy/BALANCER.md has every daemon behind a balancer set."""
    return json.loads(re.search(r"^```json\n(.*?)^```", (DEPLOY / "BALANCER.md").read_text(), re.M | re.S)[1])


# ---- daemons ---------------------------------------------------------------------------------------------------------


class Daemon:
    """One that can be stopped and started again, on the same port and with the same sessions. `held`: the port stays
    open meanwhile, as by systemd's aftd.socket, and what connects waits."""

    def __init__(self, folder, name, port, held=False, **others):
        self.folder, self.name, self.port, self.starts = folder, name, port, 0
        self.socket = socket.create_server(("127.0.0.1", port), backlog=1024) if held else None
        self.settings = {**settings(), "listen_address": "127.0.0.1", "listen_port": port,
                         "trusted_proxies": "127.0.0.1,unix", "sessions_dir": f"{folder}/sessions-{name}", "threads": 1,
                         "models_dir": "off", "model": f"weights/models/{TEXT},weights/models/{DRAWS}",
                         "drain_timeout_ms": 20000, **others}
        self.process = None
        self.start()

    def start(self):
        config = self.folder / f"{self.name}.json"
        config.write_text(json.dumps(self.settings))
        command = [DAEMON, "--config", str(config)]
        if self.socket:
            held = self.socket.fileno()
            command = ["bash", "-c", f'LISTEN_FDS=1 LISTEN_PID=$$ exec "$@" 3<&{held}', "bash", *command]
        self.starts += 1
        self.log = self.folder / f"{self.name}-{self.starts}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stderr=log, cwd=ROOT, env=ENVIRONMENT,
                pass_fds=[self.socket.fileno()] if self.socket else [])
        await_true(f"{self.name}: {self.log.read_text()}", lambda: "listening on " in self.log.read_text())

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self):
        """Drain; it has to end by itself."""
        self.signal(signal.SIGTERM)
        try:
            assert self.process.wait(HANG_S) == 0, self.log.read_text()
        finally:
            self.kill()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.kill()
        if self.socket:
            self.socket.close()

    def line_of(self, request):
        """The line of a request in any of its logs, by its X-Request-Id."""
        for log in self.folder.glob(f"{self.name}-*.log"):
            found = re.search(rf"^.* id={re.escape(request)}(?!\S).*$", log.read_text(), re.M)
            if found:
                return found[0]
        return None

    def ask(self, path, body=None):
        """The body of an answer that comes without a balancer."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG_S)
        try:
            c.request("POST" if body else "GET", path, json.dumps(body) if body else None, JSON if body else {})
            return c.getresponse().read().decode()
        finally:
            c.close()

    def figure(self, name):
        """The sum of a metric's series."""
        return sum(float(line.rsplit(" ", 1)[1]) for line in self.ask("/metrics").splitlines()
                   if re.match(name + r"[{ ]", line))


# ---- balancers -------------------------------------------------------------------------------------------------------


def replaced(text, *pairs):
    """With each old text, which must be there, replaced."""
    for old, new in pairs:
        assert old in text, f"{old} is not in the file that ships"
        text = text.replace(old, new)
    return text


class Nginx:
    program = PROGRAMS["nginx"]
    upstreams = [f"server 10.0.0.{i}:8080" for i in (1, 2, 3)]

    def __init__(self, folder, port, addresses):
        """addresses: as nginx writes them."""
        ship = DEPLOY / "nginx"
        self.folder = folder / "nginx"
        (self.folder / "aftd").mkdir(parents=True)
        shutil.copy(ship / "aftd.conf", self.folder)
        (self.folder / "aftd/upstreams.conf").write_text(replaced(
            (ship / "aftd/upstreams.conf").read_text(),
            *((old, f"server {new}") for old, new in zip(self.upstreams, addresses, strict=True))))
        (self.folder / "aftd/server.conf").write_text(replaced(
            (ship / "aftd/server.conf").read_text(), ("listen 443", f"listen 127.0.0.1:{port}"),
            ("listen [::]:443 ssl http2;", ""), ("/etc/nginx/aftd/certificate.pem", f"{folder}/certificate.pem"),
            ("/etc/nginx/aftd/key.pem", f"{folder}/key.pem"), ("/var/log/nginx/aftd.log", f"{self.folder}/access.log")))
        self.configure()

    def configure(self):
        # In the place of Debian's own nginx.conf: who it is, where it may write, and the file in conf.d.
        user = "user root; " if os.geteuid() == 0 else ""
        paths = "".join(f"{kind}_temp_path {self.folder}/{kind}; "
                        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (self.folder / "nginx.conf").write_text(
            f"{user}daemon off; pid {self.folder}/pid; worker_processes 2; error_log {self.folder}/error.log;\n"
            f"events {{ worker_connections 512; }}\nhttp {{ {paths}include aftd.conf; }}\n")
        self.command = [self.program, "-p", self.folder, "-c", self.folder / "nginx.conf", "-e",
                        self.folder / "error.log"]
        self.check = [*self.command, "-t"]

    def said(self):
        return (self.folder / "access.log").read_text()


class NginxOfOne(Nginx):
    """single.conf before a single daemon."""

    def __init__(self, folder, port, addresses):
        self.folder = folder / "nginx"
        self.folder.mkdir()
        (self.folder / "aftd.conf").write_text(replaced(
            (DEPLOY / "nginx/single.conf").read_text(), ("listen 443", f"listen 127.0.0.1:{port}"),
            ("/etc/nginx/aftd/certificate.pem", f"{folder}/certificate.pem"),
            ("/etc/nginx/aftd/key.pem", f"{folder}/key.pem"), ("127.0.0.1:8080", addresses[0])))
        self.configure()


class HAProxy:
    program = PROGRAMS["haproxy"]
    file = DEPLOY / "haproxy/haproxy.cfg"

    def __init__(self, folder, port, addresses):
        self.folder = folder / "haproxy"
        self.folder.mkdir()
        (self.folder / "pair.pem").write_text((folder / "certificate.pem").read_text() +
                                              (folder / "key.pem").read_text())
        daemons = dict(zip(("AFTD_A", "AFTD_B", "AFTD_C"), addresses, strict=True))
        # The way to a Unix socket begins at the machine's root.
        root = "/" if any("@" in a for a in addresses) else self.folder
        self.log = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.log.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.log.bind(("127.0.0.1", 0))
        self.log.setblocking(False)
        self.lines = ""
        variables = {
            "AFTD_BIND": f"127.0.0.1:{port}", "AFTD_CERTIFICATE": self.folder / "pair.pem",
            "AFTD_PEERS": f"127.0.0.1:{free_ports(1, port)[0]}", "AFTD_LOG": f"127.0.0.1:{self.log.getsockname()[1]}",
            "AFTD_STATS": self.folder / "stats.sock", "AFTD_CHROOT": root, **daemons}
        self.command = ["env", *(f"{name}={value}" for name, value in variables.items()), self.program, "-W", "-f",
                        self.file]
        self.check = [*self.command, "-c"]

    def said(self):
        while True:
            try:
                self.lines += self.log.recv(65536).decode() + "\n"
            except BlockingIOError:
                return self.lines

    def told(self, command):
        """What the process that runs now answers on its socket for statistics."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(5)
            s.connect(str(self.folder / "stats.sock"))
            s.sendall(command.encode() + b"\n")
            said = b""
            while chunk := s.recv(65536):
                said += chunk
        return said.decode()

    def known_sessions(self):
        """Of how many sessions it knows the daemon."""
        return int(self.told("show table aftd-sessions").split("used:")[1].split()[0])


KINDS = {"nginx": Nginx, "haproxy": HAProxy}


def under_load(kind):
    """Which to try under load, where each takes long: this one, or with AFTD_TEST_ALL each."""
    return list(KINDS) if os.environ.get("AFTD_TEST_ALL") else [kind]


class Balancer(Process):
    """One of KINDS, started before daemons."""

    def __init__(self, kind, folder, addresses):
        if not (folder / "key.pem").exists():
            make_certificate(folder, 30)
        self.kind, self.port = kind, free_ports(1)[0]
        self.how = {**KINDS, "single": NginxOfOne}[kind](folder, self.port, addresses)
        self.trust = ssl.create_default_context(cafile=str(folder / "certificate.pem"))
        self.trust.check_hostname = False  # it is for an address, which is not how clients call this
        checked = subprocess.run([str(a) for a in self.how.check], capture_output=True, text=True)
        self.checked = checked.returncode, checked.stdout + checked.stderr
        super().__init__(folder, kind, self.how.command)
        await_true(f"{kind} listens", self.listens)

    def listens(self):
        assert self.process.poll() is None, self.log.read_text()
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


# ---- clients ---------------------------------------------------------------------------------------------------------


class Answer:
    def __init__(self, request, answer, body):
        self.request, self.status, self.headers, self.body = request, answer.status, answer.headers, body

    def json(self):
        return json.loads(self.body)

    def bytes(self):
        """The text of an answer of /generate, whole or in events; None if it did not come to its end."""
        if self.headers.get_content_type() != "text/event-stream":
            return base64.b64decode(self.json()["bytes_base64"])
        events = [json.loads(line[6:]) for line in self.body.decode().splitlines() if line.startswith("data: ")]
        if not events or "finish_reason" not in events[-1]:
            return None
        return b"".join(base64.b64decode(e["bytes_base64"]) for e in events if "bytes_base64" in e)


class Client:
    """A connection to the balancer that is kept, from an address of the loopback. `over` goes into each request's id,
    which the daemons' logs tell."""

    count = 0

    def __init__(self, balancer, source="127.0.0.1"):
        Client.count += 1
        self.name, self.number = f"client-{Client.count}", 0
        self.c = http.client.HTTPSConnection("127.0.0.1", balancer.port, timeout=HANG_S, context=balancer.trust,
                                             source_address=(source, 0))

    def send(self, method, path, body=None, headers=None):
        """The request's id, and the answer as it begins."""
        self.number += 1
        request = f"{self.name}.{self.number}."
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        self.c.request(method, path, data, {"Host": NAME, "X-Request-Id": request,
                                            **(JSON if isinstance(body, dict) else {}), **(headers or {})})
        return request, self.c.getresponse()

    def ask(self, method, path, body=None, headers=None):
        """OSError or HTTPException: the answer was cut, or there was none."""
        try:
            request, answer = self.send(method, path, body, headers)
            return Answer(request, answer, answer.read())
        except (OSError, http.client.HTTPException):
            self.c.close()
            raise

    def last(self):
        """The id of the request that was sent last."""
        return f"{self.name}.{self.number}."

    def close(self):
        self.c.close()
