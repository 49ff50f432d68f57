"""The Helm chart as helm renders it: valid for the oldest and the newest Kubernetes, complete, and refused where values
are wrong. Against the real daemon: test_chart_daemon.py. `make test-chart` runs both."""
import json
import re

import pytest
import yaml
from chart import (
    ADAPTER,
    CHART,
    DAEMON,
    EVERYTHING,
    HELMS,
    NAMESPACE,
    NO_HELM,
    RELEASE,
    SCHEMA,
    SETS,
    VALUES,
    command,
    find,
    helm,
    lay_out,
    pod_of,
    render,
    run,
    settings_of,
)
from conftest import DEPLOY, ROOT, TEXT, add_key, make_certificate

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate: make deps-chart")
jsonschema = pytest.importorskip("jsonschema")
if not HELMS:
    pytest.skip(NO_HELM, allow_module_level=True)

VERSIONS = ["1.27", "1.37"]  # the oldest that Chart.yaml allows, the newest that the package knows
CORE = {"ConfigMap", "Deployment", "PodDisruptionBudget", "Service"}

# Of what is no part of Kubernetes: only the fields that the chart uses, as their CRDs have them (prometheus-operator
# 0.80, KServe 0.21). Containers and volumes in them are looked at as those of a pod.
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}


def fields(required, **properties):
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


STRING, INTEGER = {"type": "string"}, {"type": "integer"}
EXTENSIONS = {
    "monitoring.coreos.com/v1 ServiceMonitor": fields(
        ["selector", "endpoints"], selector=fields(["matchLabels"], matchLabels=TEXTS),
        endpoints={"type": "array", "minItems": 1, "items": fields(
            ["port"], port=STRING, path=STRING, interval={"type": "string", "pattern": "^[0-9]+s$"},
            authorization=fields(["credentials"], credentials=fields(["name", "key"], name=STRING, key=STRING)),
            relabelings={"type": "array", "items": fields(
                [], targetLabel=STRING, replacement=STRING, regex=STRING, action={"enum": ["labeldrop"]})})}),
    "monitoring.coreos.com/v1 PrometheusRule": fields(
        ["groups"], groups={"type": "array", "items": fields(["name", "rules"], name=STRING, rules={
            "type": "array", "items": fields(["expr"], record=STRING, alert=STRING, expr=STRING,
                                             labels=TEXTS, annotations=TEXTS, **{"for": STRING})})}),
    "serving.kserve.io/v1alpha1 ServingRuntime": fields(
        ["containers", "supportedModelFormats"], annotations=TEXTS, containers={"type": "array"},
        imagePullSecrets={"type": "array"}, volumes={"type": "array"},
        protocolVersions={"type": "array", "items": {"enum": ["v1", "v2", "grpc-v1", "grpc-v2"]}},
        supportedModelFormats={"type": "array", "items": fields(
            ["name"], name=STRING, version=STRING, autoSelect={"type": "boolean"})}),
    "serving.kserve.io/v1beta1 InferenceService": fields(
        ["predictor"], predictor=fields(
            ["model"], minReplicas=INTEGER, maxReplicas=INTEGER, terminationGracePeriodSeconds=INTEGER,
            automountServiceAccountToken={"type": "boolean"}, enableServiceLinks={"type": "boolean"},
            model=fields(["modelFormat", "runtime", "storageUri"], modelFormat=fields(["name"], name=STRING),
                         protocolVersion=STRING, runtime=STRING, storageUri=STRING))),
}


def check_object(thing, version):
    kind = f"{thing['apiVersion']} {thing['kind']}"
    if kind not in EXTENSIONS:
        kubernetes_validate.validate(thing, version, strict=True)
        return
    jsonschema.validate(thing["spec"], EXTENSIONS[kind])
    if thing["kind"] == "ServingRuntime":
        pod = {key: thing["spec"][key] for key in ("containers", "volumes", "imagePullSecrets") if key in thing["spec"]}
        kubernetes_validate.validate(
            {"apiVersion": "v1", "kind": "Pod", "metadata": thing["metadata"], "spec": pod}, version, strict=True)


# ---- rendering -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", HELMS)
@pytest.mark.parametrize("name", SETS)
def test_values_render_to_what_kubernetes_accepts(program, name):
    objects = render(SETS[name], program)
    for version in VERSIONS:
        for thing in objects:
            check_object(thing, version)
    names = [(o["kind"], o["metadata"]["name"]) for o in objects]
    assert len(names) == len(set(names))
    assert all(o["metadata"]["namespace"] == NAMESPACE for o in objects)


@pytest.mark.parametrize("name", SETS)
def test_every_helm_renders_the_same(name):
    def ordered(program):
        return sorted(json.dumps(o, sort_keys=True) for o in render(SETS[name], program))

    assert all(ordered(program) == ordered(HELMS[0]) for program in HELMS)


@pytest.mark.parametrize("program", HELMS)
def test_helm_finds_nothing_wrong(program, tmp_path):
    done = helm(program, tmp_path, "lint", "--strict", str(CHART))
    assert done.returncode == 0 and "[WARNING]" not in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("values, said", [
    ({}, "http://aftd.models.svc:8080/"), ({"replicaCount": 2}, "clients must do without sessions"),
    (EVERYTHING, "share their sessions in redis://redis.cache.svc:6380/2"),
    ({"service": {"type": "NodePort"}}, "clients need no key"),
    ({"resources": {"limits": {"cpu": None}}}, "there is no resources.limits.cpu"),
    (SETS["kserve"], "kubectl -n models get inferenceservice pets")])
def test_whoever_installs_it_is_told_what_to_do(values, said, tmp_path):
    if helm(HELMS[-1], tmp_path, "version", "--short").stdout.startswith("v3"):
        pytest.skip("helm 3 asks a cluster even for a dry run: make deps-chart has helm 4")
    done = helm(HELMS[-1], tmp_path, "install", "--dry-run=client", RELEASE, str(CHART), "--namespace", NAMESPACE,
                values=values)
    assert done.returncode == 0 and said in done.stdout.partition("NOTES:")[2], done.stdout + done.stderr


def test_the_default_needs_no_other_kinds_of_objects():
    assert {o["kind"] for o in render({})} == CORE
    assert {o["kind"] for o in render(EVERYTHING)} == CORE | {
        "Secret", "HorizontalPodAutoscaler", "NetworkPolicy", "ServiceMonitor", "PrometheusRule", "ServingRuntime",
        "InferenceService", "Ingress", "ServiceAccount", "PersistentVolumeClaim"}


def test_selectors_meet_the_pods():
    objects = render(EVERYTHING)
    labels = find(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [find(objects, "Deployment")["spec"]["selector"]["matchLabels"],
                 find(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
                 find(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
                 pod_of(objects)["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"]]
    selectors += [o["spec"]["selector"] for o in objects if o["kind"] == "Service"]
    assert len(selectors) == 7 and all(s.items() <= labels.items() for s in selectors)
    monitor = find(objects, "ServiceMonitor")["spec"]
    scraped = [o for o in objects if o["kind"] == "Service"
               and monitor["selector"]["matchLabels"].items() <= o["metadata"]["labels"].items()]
    assert [o["metadata"]["name"] for o in scraped] == ["aftd-headless"]
    assert monitor["endpoints"][0]["port"] in [port["name"] for port in scraped[0]["spec"]["ports"]]


def test_ports_have_the_names_that_others_use():
    for values in SETS.values():
        objects = render(values)
        if not any(o["kind"] == "Deployment" for o in objects):
            continue
        settings = settings_of(objects)
        container, = pod_of(objects)["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        expected = {"http": settings["listen_port"], "metrics": settings["metrics_port"]}
        if values.get("admin", {}).get("expose"):
            expected["admin"] = settings["admin_port"]
        assert ports == expected
        used = [port["targetPort"] for o in objects if o["kind"] == "Service" for port in o["spec"]["ports"]]
        used += [container[f"{kind}Probe"]["httpGet"]["port"] for kind in ("startup", "liveness", "readiness")]
        used += [port["port"] for o in objects if o["kind"] == "NetworkPolicy"
                 for rule in o["spec"]["ingress"] for port in rule["ports"]]
        assert set(used) == set(ports)


@pytest.mark.parametrize("keys", [{}, {"tls": {"existingSecret": "a"}}])
def test_an_ingress_leads_to_the_service_by_names_that_the_daemon_answers(keys):
    objects = render({"ingress": {"enabled": True}, **keys})
    rule, = find(objects, "Ingress")["spec"]["rules"]
    path, = rule["http"]["paths"]
    assert (rule["host"], path["path"], path["pathType"]) == ("aftd.example.org", "/", "Prefix")
    service = find(objects, "Service")
    assert path["backend"]["service"] == {
        "name": service["metadata"]["name"], "port": {"name": service["spec"]["ports"][0]["name"]}}
    assert rule["host"] in settings_of(objects)["hosts"].split(",")
    assert rule["host"] not in settings_of(render({}))["hosts"]


def test_the_charts_own_account_and_claim_are_the_pods():
    objects = render({"serviceAccount": {"create": True}, "models": {"claim": {"create": True}}})
    account, claim = find(objects, "ServiceAccount"), find(objects, "PersistentVolumeClaim", "-models")
    pod = pod_of(objects)
    assert pod["serviceAccountName"] == account["metadata"]["name"] and not account["automountServiceAccountToken"]
    assert {"claimName": claim["metadata"]["name"], "readOnly": True} in \
        [volume.get("persistentVolumeClaim") for volume in pod["volumes"]]
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}  # models outlast an uninstall
    assert settings_of(objects)["models_dir"] == "/models"
    assert pod_of(render({"serviceAccount": {"name": "mine"}}))["serviceAccountName"] == "mine"
    assert "serviceAccountName" not in pod_of(render({}))


@pytest.mark.parametrize("name", [name for name in SETS if name != "kserve without a server"])
def test_pods_are_what_the_restricted_standard_allows(name):
    """The Pod Security Standard "restricted", but for the user, which a platform may choose."""
    for thing in render(SETS[name]):
        if thing["kind"] not in ("Deployment", "ServingRuntime"):
            continue
        spec = thing["spec"]["template"]["spec"] if thing["kind"] == "Deployment" else thing["spec"]
        assert not any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC"))
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["runAsNonRoot"] and context["readOnlyRootFilesystem"] and not context["privileged"]
            assert context["allowPrivilegeEscalation"] is False and context["capabilities"] == {"drop": ["ALL"]}
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}
            assert all(mount["readOnly"] for mount in container["volumeMounts"])
            assert not any("hostPort" in port for port in container["ports"])


def test_a_pod_gets_no_token_and_no_variables_of_services():
    pod = pod_of(render({}))
    assert pod["automountServiceAccountToken"] is False and pod["enableServiceLinks"] is False


@pytest.mark.parametrize("redis, port", [
    ("redis://a", 6379), ("redis://a/3", 6379), ("redis://a.b:7000", 7000), ("redis://a:1/15", 1),
    ("redis://[fd00::1]", 6379), ("redis://[fd00::1]:80/1", 80)])
def test_pods_may_reach_the_server_with_their_sessions_and_no_other(redis, port):
    def egress(sessions, **more):
        return find(render({"sessions": {"redis": sessions}, "networkPolicy": {"enabled": True, **more}}),
                    "NetworkPolicy")["spec"]["egress"]
    peer = {"podSelector": {"matchLabels": {"app": "redis"}}}
    names = {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}
    server = {"ports": [{"protocol": "TCP", "port": port}]}
    assert egress("") == []
    assert egress(redis) == [server, names]
    assert egress(redis, redisTo=[peer]) == [{**server, "to": [peer]}, names]
    settings = settings_of(render({"sessions": {"redis": redis}}))
    assert settings["sessions_redis"] == redis and "sessions_redis_password_file" not in settings
    assert run([DAEMON, "--sessions-redis", redis, "--check-config"])[0] == 0


def test_other_settings_and_secrets_of_the_chart_make_new_pods():
    def annotations(values):
        return find(render(values), "Deployment")["spec"]["template"]["metadata"]["annotations"]

    others = [{"config": {"streams_max": 3}}, {"keys": {"file": "a"}}, {"tls": {"certificate": "a", "key": "b"}},
              {"tls": {"certificate": "a", "key": "c"}}]
    seen = [annotations(values) for values in ({}, *others)]
    assert all(a != b for i, a in enumerate(seen) for b in seen[:i])
    assert annotations({"replicaCount": 7}) == seen[0]


# ---- in agreement with what else there is ----------------------------------------------------------------------------


def test_versions_and_the_image_are_the_projects():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.search(r"^VERSION := (.*)$", (ROOT / "Makefile").read_text(), re.M)[1]
    assert chart["version"] == chart["appVersion"] == version
    user = re.search(r"^USER (\d+):(\d+)$", (DEPLOY / "container/Dockerfile").read_text(), re.M)
    context = pod_of(render({}))["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"]) == (int(user[1]), int(user[2]))
    assert pod_of(render({}))["containers"][0]["image"] == f"aftd:{version}"


def test_settings_are_the_shipped_ones_but_for_those_of_a_cluster():
    shipped = json.loads((ROOT / "config/aftd.json").read_text())
    own = settings_of(render({}))
    assert {name: own.get(name) for name in shipped} == shipped | {"listen_address": "0.0.0.0", "log_format": "json"}
    assert VALUES["config"].items() <= own.items()


def test_every_value_has_a_schema_and_is_on_its_own_side_of_it():
    def check(values, schema, path):
        for name in values:
            assert name in schema["properties"] or schema.get("additionalProperties"), f"{path}{name}"
            inner = schema["properties"].get(name, {})
            if isinstance(values[name], dict) and "properties" in inner:
                check(values[name], inner, f"{path}{name}.")

    check(VALUES, SCHEMA, "")
    assert SCHEMA["properties"].keys() - VALUES.keys() == {"global"}


def test_bounds_in_the_schema_are_the_daemons():
    def accepts(name, value):
        return run([DAEMON, f"--{name.replace('_', '-')}={value}", "--print-config"])[0] == 0

    bounded = {name: s for name, s in SCHEMA["properties"]["config"]["properties"].items() if "maximum" in s}
    assert {"listen_port", "drain_delay_ms", "drain_timeout_ms"} <= bounded.keys()
    for name, schema in bounded.items():
        assert accepts(name, schema["minimum"]) and accepts(name, schema["maximum"]), name
        assert not accepts(name, schema["maximum"] + 1), name


def test_settings_that_follow_from_others_are_settings():
    managed = SCHEMA["properties"]["config"]["propertyNames"]["not"]["enum"]
    every = json.loads(run([DAEMON, "--print-config"])[1])
    assert set(managed) | VALUES["config"].keys() <= every.keys()
    assert set(managed) == settings_of(render(EVERYTHING)).keys() - VALUES["config"].keys() \
        - EVERYTHING["config"].keys()


def test_rules_are_those_that_ship():
    rules = find(render({"prometheusRule": {"enabled": True}}), "PrometheusRule")["spec"]
    assert rules == yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())
    pages = {rule["annotations"]["runbook_url"].partition("#")[0]
             for group in find(render(EVERYTHING), "PrometheusRule")["spec"]["groups"] for rule in group["rules"]
             if "alert" in rule}
    assert pages == {"https://wiki.example.org/aftd/RUNBOOK.md"}


def test_prometheus_leaves_jobs_and_endpoints_as_the_rules_expect_them():
    """The operator's target label `endpoint` would take the place of the metrics' own."""
    endpoint, = find(render({"serviceMonitor": {"enabled": True}}), "ServiceMonitor")["spec"]["endpoints"]
    prometheus = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    assert {"targetLabel": "job", "replacement": prometheus["scrape_configs"][0]["job_name"]} in endpoint["relabelings"]
    assert {"action": "labeldrop", "regex": "endpoint"} in endpoint["relabelings"]


def test_the_autoscaler_asks_for_what_the_adapter_has():
    served = {rule["name"]["as"] for rule in ADAPTER["rules"]["custom"]}
    assert served == set(SCHEMA["properties"]["autoscaling"]["properties"]["metric"]["properties"]["name"]["enum"])
    scaler = find(render({"autoscaling": {"enabled": True}}), "HorizontalPodAutoscaler")["spec"]
    assert scaler["metrics"][0]["pods"]["metric"]["name"] in served and len(scaler["metrics"]) == 1
    assert "replicas" not in find(render({"autoscaling": {"enabled": True}}), "Deployment")["spec"]
    assert len(find(render(EVERYTHING), "HorizontalPodAutoscaler")["spec"]["metrics"]) == 2


# ---- what the daemon says of its file --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secrets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secrets")
    make_certificate(folder, 30)
    add_key(folder, "alice")
    return {name: (folder / name).read_text() for name in ("keys.json", "certificate.pem", "key.pem")}


@pytest.mark.parametrize("name", [name for name in SETS if "kserve" not in name])
def test_the_daemon_accepts_the_file(name, secrets, tmp_path):
    values = json.loads(json.dumps(SETS[name]))
    if "file" in values.get("keys", {}):
        values["keys"]["file"] = secrets["keys.json"]
        values["tls"] = {"certificate": secrets["certificate.pem"], "key": secrets["key.pem"]}
    pair = {"tls.crt": secrets["certificate.pem"], "tls.key": secrets["key.pem"]}
    models = tmp_path / "volume"
    folder = models / values.get("models", {}).get("subfolder", "").strip("/")
    folder.mkdir(parents=True)
    (folder / TEXT).symlink_to(ROOT / "weights/models" / TEXT)
    objects = render(values)
    container, = pod_of(objects)["containers"]
    lay_out(tmp_path / "root", pod_of(objects), container, objects,
            {"aftd-keys": {"the.keys": secrets["keys.json"]}, "aftd.example.org": pair, "redis": {"password": "x\n"}},
            models)
    code, said, words = run(command(tmp_path / "root", container, "--check-config"))
    assert code == 0 and "matches no setting" not in said, f"{words}\n{said}"
    # What the image has in the environment does not win over the file.
    code, said, words = run(command(tmp_path / "root", container, "--print-config"))
    in_force, written = json.loads(said), json.loads((tmp_path / "root/etc/aftd/aftd.json").read_text())
    assert code == 0 and written.items() <= in_force.items()


# ---- wrong values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path, value", [
    ("replicas", 2), ("replicaCount", "two"), ("replicaCount", -1), ("image.repository", ""),
    ("image.pullPolicy", "Sometimes"),
    ("config.listen_port", 0), ("config.listen_port", 65536), ("config.listen_port", "8080"),
    ("config.listen_address", "off"), ("config.drain_delay_ms", 1.5), ("config.drain_delay_ms", None),
    ("config.drain_timeout_ms", 3600001), ("config.threads", "all"), ("config.listen-port", 8080),
    ("config.hosts", "*"), ("config.models_dir", "/models"), ("config.keys_file", "/keys"), ("config.aliases", ["a=b"]),
    ("hosts", ["aftd.example.org:8080"]), ("hosts", "aft"), ("models.subfolder", "../etc"),
    ("models.existingClaim", "My Models"), ("keys.key", "a/b"), ("service.type", "ExternalName"),
    ("service.externalTrafficPolicy", "Remote"), ("admin.expose", "yes"), ("startupSeconds", 0),
    ("config.sessions_redis", "redis://a"), ("sessions.redis", "redis://user:password@a"),
    ("sessions.redis", "unix:/a"), ("sessions.passwordSecret.key", "a/b"),
    ("podDisruptionBudget.maxUnavailable", "half"), ("topologySpread.whenUnsatisfiable", "Wait"),
    ("autoscaling.metric.name", "aftd_requests_total"), ("autoscaling.metric.averageValue", 0.7),
    ("autoscaling.minReplicas", 0), ("networkPolicy.from", {}), ("serviceMonitor.interval", "15"),
    ("kserve.deploymentMode", "Bare"), ("kserve.inferenceService.storageUri", "/models"),
    ("ingress.hosts", ["aftd.example.org"]), ("ingress.enabled", "yes"), ("models.claim.size", "much"),
    ("models.claim.accessModes", []), ("serviceAccount.automount", True), ("prometheusRule.runbooks", "RUNBOOK.md"),
    ("podSecurityContext.runAsUser", 0), ("podSecurityContext.privileged", True), ("podLabels", {"a": 1}),
])
def test_wrong_values_are_refused_by_the_schema(path, value, tmp_path):
    values = value
    for name in reversed(path.split(".")):
        values = {name: values}
    for program in HELMS:
        done = helm(program, tmp_path, "template", RELEASE, str(CHART), values=values)
        assert done.returncode != 0 and not done.stdout
        assert "don't meet the specifications of the schema" in done.stderr, done.stderr
        assert path.split(".")[-1] in done.stderr


@pytest.mark.parametrize("values, said", [
    ({"keys": {"existingSecret": "a", "file": "b"}}, "keys.existingSecret and keys.file: expected one"),
    ({"tls": {"existingSecret": "a", "certificate": "b", "key": "c"}}, "tls.existingSecret and tls.certificate"),
    ({"tls": {"certificate": "a"}}, "tls.certificate and tls.key: expected both"),
    ({"models": {"existingClaim": "a", "volume": {"emptyDir": {}}}}, "and models.volume: expected one"),
    ({"models": {"existingClaim": "a", "claim": {"create": True}}}, "models.existingClaim, models.claim.create and"),
    ({"models": {"subfolder": "a"}}, "models.subfolder: expected"),
    ({"admin": {"expose": True}}, "admin.expose: expected keys"),
    ({"sessions": {"passwordSecret": {"name": "a"}}}, "sessions.passwordSecret: expected sessions.redis"),
    ({"autoscaling": {"enabled": True, "minReplicas": 5}}, "expected at most autoscaling.maxReplicas"),
    ({"kserve": {"enabled": True, "inferenceService": {"name": "a"}}}, "expected name and storageUri"),
])
def test_values_that_do_not_go_together_are_refused(values, said, tmp_path):
    for program in HELMS:
        done = helm(program, tmp_path, "template", RELEASE, str(CHART), values=values)
        assert done.returncode != 0 and said in done.stderr, done.stderr


def test_old_clusters_are_refused(tmp_path):
    done = helm(HELMS[-1], tmp_path, "template", RELEASE, str(CHART), "--kube-version", "1.26.9")
    assert done.returncode != 0 and "1.27" in done.stderr
    assert helm(HELMS[-1], tmp_path, "template", RELEASE, str(CHART), "--kube-version", "v1.27.0-gke.1").returncode == 0
