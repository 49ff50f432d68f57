"""The Helm chart and the real daemon: what the rendered pod says of ports, probes, names, metrics and its end is tried
on a daemon that runs as that pod would, with its files in a folder and on this machine's loopback."""
import http.client
import json
import re
import shutil
import socket
import ssl
import subprocess

import pytest
import yaml
from chart import ADAPTER, HELMS, NO_HELM, command, find, lay_out, pod_of, render, run, settings_of
from conftest import BUILD, HANG_S, ROOT, TEXT, Process, add_key, await_true, make_certificate

if not HELMS:
    pytest.skip(NO_HELM, allow_module_level=True)

DELAY_MS, DRAIN_MS = 2000, 3000
LONG = 1 << 20  # bytes of a text that no machine writes in that time


def free_ports(count):
    """Ports of the loopback that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def here(**config):
    """Settings that let a daemon run beside others on this machine; the chart's ports follow them."""
    listen, admin, metrics = free_ports(3)
    return {"listen_address": "127.0.0.1", "listen_port": listen, "admin_port": admin, "metrics_port": metrics,
            "threads": 1, "drain_delay_ms": DELAY_MS, "drain_timeout_ms": DRAIN_MS, "log_format": "text", **config}


def ask(port, path, host=None, headers=None, tls=None):
    """Status and body of an answer."""
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=HANG_S, context=tls) if tls else \
        http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_S)
    try:
        connection.request("GET", path, headers={**({"Host": host} if host else {}), **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


class Pod(Process):
    """The container of the chart's Deployment, as a process of this machine."""

    def __init__(self, folder, objects, container=None, spec=None, flags=()):
        self.objects, self.spec = objects, spec or pod_of(objects)
        self.container = container or self.spec["containers"][0]
        self.root = folder / "root"
        lay_out(self.root, self.spec, self.container, objects)
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(str(folder / "manager"))
        self.manager.settimeout(HANG_S)
        super().__init__(folder, "pod", ["env", f"NOTIFY_SOCKET={folder / 'manager'}",
                                         *command(self.root, self.container, *flags)])
        self.await_probe("startup" if "startupProbe" in self.container else "readiness")

    def port(self, name):
        """A port of the container by the name that others use, or the number itself."""
        ports = {port.get("name"): port["containerPort"] for port in self.container["ports"]}
        return ports.get(name, name)

    def probe(self, kind):
        """As the kubelet does it: at the pod's address, without TLS unless the probe says so."""
        get = self.container[f"{kind}Probe"]["httpGet"]
        assert get.keys() == {"path", "port"}
        try:
            return ask(self.port(get["port"]), get["path"])[0]
        except ConnectionError:
            return None

    def await_probe(self, kind):
        def succeeds():
            self.said()
            return self.probe(kind) == 200

        await_true(f"the {kind} probe", succeeds)

    def within_ms(self):
        """How long it told its service manager that it takes to end."""
        while True:
            match = re.search(rb"STOPPING=1\nEXTEND_TIMEOUT_USEC=(\d+)", self.manager.recv(4096))
            if match:
                return int(match[1]) // 1000


@pytest.fixture(scope="module")
def pod(tmp_path_factory):
    p = Pod(tmp_path_factory.mktemp("pod"), render({"config": here(), "hosts": ["aftd.example.org", "*.example.net"]}))
    yield p
    p.process.terminate()
    try:
        assert p.process.wait(HANG_S) == 0, p.log.read_text()
    finally:
        p.process.kill()


# ---- while it runs ---------------------------------------------------------------------------------------------------


def test_probes_succeed(pod):
    assert [pod.probe(kind) for kind in ("startup", "readiness", "liveness")] == [200, 200, 200]


def test_services_lead_to_what_they_are_for(pod):
    for name, service in ("", "http"), ("-headless", "http"), ("-headless", "metrics"):
        port, = [p for p in find(pod.objects, "Service", name)["spec"]["ports"] if p["name"] == service]
        path = "/metrics" if service == "metrics" else "/v1/models"
        assert ask(pod.port(port["targetPort"]), path)[0] == 200
        assert (ask(pod.port(port["targetPort"]), "/v1/models")[0] == 200) == (service == "http")


@pytest.mark.parametrize("host", [
    "aftd", "aftd.models", "aftd.models.svc:8080", "aftd.models.svc.cluster.local", "aftd-headless.models.svc",
    "aftd.example.org", "any.example.net:443"])
def test_clients_may_call_it_by_the_names_of_its_services_and_its_own(pod, host):
    assert ask(pod.port("http"), "/v1/models", host=host)[0] == 200


def test_other_names_are_refused(pod):
    for host in "aftd.others", "aftd.models.svc.cluster.local.example.org", "example.org":
        assert ask(pod.port("http"), "/v1/models", host=host)[0] == 403


def test_administration_is_for_the_pod_alone(pod):
    settings = settings_of(pod.objects)
    assert settings["admin_address"] == "127.0.0.1" and settings_of(render({}))["admin_address"] == "127.0.0.1"
    assert ask(settings["admin_port"], "/admin/requests")[0] == 200
    assert not any(p.get("name") == "admin" for p in pod.container["ports"])
    # kubectl exec deployment/aftd -- aft ps
    code, said, words = run([BUILD / "aft", "ps", "--config", pod.root / "etc/aftd/aftd.json"])
    assert code == 0 and "ENDPOINT" in said, f"{words}\n{said}"


# ---- metrics ---------------------------------------------------------------------------------------------------------


def test_the_monitor_reads_metrics(pod):
    monitor = find(render({"serviceMonitor": {"enabled": True}}), "ServiceMonitor")["spec"]["endpoints"][0]
    status, text = ask(pod.port(monitor["port"]), monitor["path"])
    assert status == 200 and "aftd_build_info" in text


def test_the_adapter_asks_for_metrics_that_the_daemon_has(pod):
    _, text = ask(pod.port("metrics"), "/metrics")
    has = set(re.findall(r"^(aftd_\w+)\{", text, re.M))
    for rule in ADAPTER["rules"]["custom"]:
        asked = set(re.findall(r"aftd_\w+", rule["seriesQuery"] + rule["metricsQuery"] + rule["name"]["matches"]))
        assert asked and asked <= has, rule["name"]["as"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed: make deps-lint")
def test_the_autoscaler_sees_the_busiest_model_of_each_pod(pod, tmp_path):
    """The adapter's queries, of series that the daemon has, by Prometheus' own evaluation. The text model of one pod
    runs half of its streams and lets a quarter as many wait; a classifier has no streams, and its queue counts not."""
    _, text = ask(pod.port("metrics"), "/metrics")
    values = {("aftd_streams_running", TEXT): 32, ("aftd_queue_depth", TEXT): 16,
              ("aftd_queue_depth", "cifar10-aft-conv"): 8}
    series = []
    for name, model, value in re.findall(
            r'^(aftd_streams_running|aftd_queue_depth|aftd_stream_slots)\{model="([^"]+)"\} (\d+)$', text, re.M):
        for number, who in enumerate(("busy", "idle")):
            shown = values.get((name, model), value) if number == 0 else value
            series.append({"series": f'{name}{{namespace="models",pod="{who}",model="{model}"}}', "values": str(shown)})
    assert len(series) == 2 * 3 * len(list((ROOT / "weights" / "models").glob("*/config.json"))), text
    expected = {"aftd_stream_load": [0.75, 0], "aftd_queue_depth": [24, 0]}
    checks = []
    for rule in ADAPTER["rules"]["custom"]:
        query = rule["metricsQuery"].replace("<<.LabelMatchers>>", 'namespace="models",pod=~"busy|idle"')
        samples = [{"labels": f'{{pod="{who}"}}', "value": value}
                   for who, value in zip(("busy", "idle"), expected[rule["name"]["as"]])]
        checks.append({"expr": query.replace("<<.GroupBy>>", "pod"), "eval_time": "0s", "exp_samples": samples})
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [
        {"interval": "1m", "input_series": series, "promql_expr_test": checks}]}))
    done = subprocess.run(["promtool", "test", "rules", str(tmp_path / "test.yml")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# ---- when it ends ----------------------------------------------------------------------------------------------------


def test_a_pod_that_ends_is_told_to_nobody_and_has_the_time_that_it_takes(tmp_path):
    """SIGTERM while a stream runs: readiness fails, liveness does not, new requests are still answered, and what the
    daemon says that it takes to end is within what the pod may take."""
    pod = Pod(tmp_path, render({"config": here(max_tokens_max=LONG, drain_delay_ms=600000)}))
    body = json.dumps({"model": TEXT, "prompt": "x", "max_tokens": LONG, "context_overflow": "shift", "stream": True})
    try:
        with socket.create_connection(("127.0.0.1", pod.port("http"))) as client:
            client.sendall(f"POST /generate HTTP/1.1\r\nHost: aftd\r\nContent-Type: application/json\r\n"
                           f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
            assert b"200 OK" in client.recv(4096)
            pod.process.terminate()
            await_true("the end of readiness", lambda: pod.probe("readiness") == 503)
            assert pod.probe("liveness") == 200
            assert ask(pod.port("http"), "/v1/models")[0] == 200
            within_ms = pod.within_ms()
            pod.process.terminate()  # no more waiting
            assert b"".join(iter(lambda: client.recv(65536), b"")).count(b"finish_reason")
            assert pod.process.wait(HANG_S) == 0, pod.log.read_text()
    finally:
        pod.process.kill()
        pod.manager.close()
    assert 600000 + DRAIN_MS < within_ms
    assert within_ms <= 1000 * pod.spec["terminationGracePeriodSeconds"] < within_ms + 1000


def test_the_default_pod_has_time_to_end():
    """Its readiness is noticed while it still accepts requests; and liveness does not kill what /healthz calls stuck
    before it says so."""
    objects = render({})
    settings, pod = settings_of(objects), pod_of(objects)
    probe = pod["containers"][0]["readinessProbe"]
    assert 1000 * probe["periodSeconds"] * probe["failureThreshold"] <= settings["drain_delay_ms"]
    assert pod["terminationGracePeriodSeconds"] == 10 + 30 + 15
    quick = pod_of(render({"config": {"drain_delay_ms": 1, "drain_timeout_ms": 0}}))
    assert quick["terminationGracePeriodSeconds"] == 1 + 15
    assert pod["containers"][0]["startupProbe"]["failureThreshold"] * 2 == 300
    assert find(objects, "Deployment")["spec"]["progressDeadlineSeconds"] > 300


# ---- keys, TLS, KServe -----------------------------------------------------------------------------------------------


def test_keys_and_tls_are_for_clients_and_not_for_probes(tmp_path):
    make_certificate(tmp_path, 30)
    key = add_key(tmp_path, "alice")
    values = {"keys": {"file": (tmp_path / "keys.json").read_text()}, "admin": {"expose": True}, "config": here(),
              "tls": {"certificate": (tmp_path / "certificate.pem").read_text(),
                      "key": (tmp_path / "key.pem").read_text()}}
    pod = Pod(tmp_path, render(values))
    trust = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
    try:
        assert [pod.probe(kind) for kind in ("startup", "readiness", "liveness")] == [200, 200, 200]
        service, = find(pod.objects, "Service")["spec"]["ports"]
        assert service["name"] == service["appProtocol"] == "https"
        port = pod.port(service["targetPort"])
        assert ask(port, "/v1/models", tls=trust)[0] == 401
        assert ask(port, "/v1/models", tls=trust, headers={"X-API-Key": key})[0] == 200
        admin, = find(pod.objects, "Service", "-admin")["spec"]["ports"]
        assert ask(pod.port(admin["targetPort"]), "/admin/requests", host="aftd-admin.models.svc")[0] == 401
        assert ask(pod.port("metrics"), "/metrics")[0] == 200
    finally:
        pod.stop()
        pod.manager.close()


def test_kserve_is_served_the_model_that_it_puts_there(tmp_path):
    objects = render({"deployment": {"enabled": False}, "config": here(), "kserve": {
        "enabled": True, "domain": "example.org",
        "inferenceService": {"name": "pets", "storageUri": "pvc://models/pets"}}})
    runtime = find(objects, "ServingRuntime", "-kserve")["spec"]
    service, = [o for o in objects if o["kind"] == "InferenceService"]
    model = service["spec"]["predictor"]["model"]
    assert model["runtime"] == "aftd-kserve" and model["protocolVersion"] in runtime["protocolVersions"]
    assert model["modelFormat"]["name"] in [f["name"] for f in runtime["supportedModelFormats"]]
    assert service["spec"]["predictor"]["terminationGracePeriodSeconds"] == 20
    container, = runtime["containers"]
    # What KServe does: the service's name, and the model's files at that path.
    container["args"] = [a.replace("{{.Name}}", "pets").replace("/mnt/models", str(ROOT / "weights/models" / TEXT))
                         for a in container["args"]]
    pod = Pod(tmp_path, objects, container, runtime)
    try:
        port, = [p["containerPort"] for p in container["ports"]]
        assert runtime["annotations"]["prometheus.kserve.io/port"] == str(port)
        assert ask(port, runtime["annotations"]["prometheus.kserve.io/path"])[0] == 200
        assert [pod.probe("readiness"), pod.probe("liveness")] == [200, 200]
        for host in "pets-predictor.models.svc.cluster.local", "pets-models.example.org", "pets-predictor.models":
            assert ask(port, "/v2/models/pets/ready", host=host)[0] == 200, host
        assert ask(port, "/v2/models/pets/ready", host="pets.others.svc")[0] == 403
        assert [m["id"] for m in json.loads(ask(port, "/v1/models")[1])["data"]] == ["pets"]
        answer = ask(port, "/v2/models/pets", headers={"Accept": "application/json"})
        assert json.loads(answer[1])["name"] == "pets"
    finally:
        pod.stop()
        pod.manager.close()
