"""What the tests of the Helm chart share: rendering it, and a folder that is to the daemon what a pod's files are.

The chart is rendered by helm itself: those that `make deps-chart` put into build/helm, or else the one that is
installed.
"""
import base64
import functools
import json
import os
import re
import shlex
import shutil
import subprocess

import yaml
from conftest import BUILD, DEPLOY, ENVIRONMENT, ROOT

CHART = DEPLOY / "helm/aftd"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
ADAPTER = yaml.safe_load((DEPLOY / "helm/prometheus-adapter.yaml").read_text())
DAEMON = os.environ.get("AFTD_TEST_DAEMON", str(BUILD / "aftd"))
HELMS = sorted(str(path) for path in BUILD.glob("helm/*/helm")) or [path for path in [shutil.which("helm")] if path]
NO_HELM = "helm is not there: make deps-chart (x86-64)"
NAMESPACE, RELEASE = "models", "aftd"
KEYS_FILE = '{"keys": []}\n'

# Sets of values that must all render; the last but one has everything at once.
SETS = {
    "default": {},
    "secrets and a claim that there are": {
        "keys": {"existingSecret": "aftd-keys", "key": "the.keys"}, "tls": {"existingSecret": "aftd.example.org"},
        "models": {"existingClaim": "models"}},
    "a platform that chooses the user": {
        "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
        "models": {"volume": {"nfs": {"server": "nfs.example.org", "path": "/models"}}, "subfolder": "/for/aftd/"}},
    "less than the default": {
        "podDisruptionBudget": {"enabled": False}, "topologySpread": {"enabled": False}, "replicaCount": 0,
        "resources": {"limits": {"cpu": None}},
        "config": {"listen_address": "::", "threads": 3, "page": False, "precision": "bf16"},
        "serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}},
    "kserve": {
        "deployment": {"enabled": False}, "prometheusRule": {"enabled": True},
        "kserve": {"enabled": True, "inferenceService": {"name": "pets", "storageUri": "pvc://models/pets"}}},
    "kserve without a server": {
        "deployment": {"enabled": False}, "image": {"repository": "registry.example.org/aftd"},
        "imagePullSecrets": [{"name": "registry"}],
        "kserve": {"enabled": True, "deploymentMode": "Knative", "inferenceService": {
            "name": "pets", "storageUri": "s3://models/pets", "minReplicas": 0}}},
    "sessions that pods share": {
        "replicaCount": 2, "sessions": {"redis": "redis://redis.cache.svc"},
        "networkPolicy": {"enabled": True}},
    "everything": {
        "image": {"repository": "registry.example.org/aftd", "tag": "7"}, "imagePullSecrets": [{"name": "registry"}],
        "replicaCount": 3, "config": {"trusted_proxies": "10.0.0.0/8", "drain_delay_ms": 1, "models_lazy": True},
        "hosts": ["also.example.org", "*.example.net"],
        "models": {"claim": {"create": True, "storageClassName": "shared"}, "subfolder": "aft"},
        "keys": {"file": KEYS_FILE}, "tls": {"certificate": "CERTIFICATE", "key": "KEY"},
        "service": {"type": "LoadBalancer", "port": 443, "externalTrafficPolicy": "Local", "annotations": {"a/b": "c"}},
        "ingress": {"enabled": True, "className": "nginx", "annotations": {"e/f": "g"}, "tls": [
            {"secretName": "aftd-tls", "hosts": ["aftd.example.org"]}]},
        "admin": {"expose": True}, "startupSeconds": 1001, "podDisruptionBudget": {"maxUnavailable": "25%"},
        "autoscaling": {"enabled": True, "minReplicas": 2, "targetCPUUtilizationPercentage": 80},
        "sessions": {"redis": "redis://redis.cache.svc:6380/2", "passwordSecret": {"name": "redis"}},
        "networkPolicy": {"enabled": True, "adminFrom": [{"podSelector": {"matchLabels": {"role": "operator"}}}],
                          "redisTo": [{"namespaceSelector": {"matchLabels": {"cache": "true"}}}]},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"},
                           "keySecret": {"name": "aftd-key", "key": "prometheus"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"},
                           "runbooks": "https://wiki.example.org/aftd/"},
        "kserve": {"enabled": True, "inferenceService": {"name": "pets", "storageUri": "pvc://models/pets"}},
        "podLabels": {"team": "a"}, "podAnnotations": {"b/c": "d"},
        "serviceAccount": {"create": True, "annotations": {"g/h": "i"}},
        "priorityClassName": "high", "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "aft", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {
            "matchExpressions": [{"key": "avx512", "operator": "Exists"}]}}]}},
        "extraEnv": [{"name": "GOMP_SPINCOUNT", "value": "1000"}]},
}
EVERYTHING = SETS["everything"]


def helm(program, folder, *arguments, values=None):
    """helm with an empty home; its process, ended."""
    places = {f"HELM_{what}_HOME": str(folder / what.lower()) for what in ("CACHE", "CONFIG", "DATA")}
    return subprocess.run([program, *arguments, *(["-f", "-"] if values is not None else [])],
                          input=yaml.safe_dump(values) if values is not None else None, capture_output=True, text=True,
                          env={"PATH": os.environ["PATH"], "HOME": str(folder), **places})


@functools.lru_cache
def _render(program, values):
    done = helm(program, BUILD / "helm", "template", RELEASE, str(CHART), "--namespace", NAMESPACE,
                values=json.loads(values))
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def render(values, program=None):
    """The objects that the chart makes of these values."""
    return json.loads(json.dumps(_render(program or HELMS[-1], json.dumps(values))))


def find(objects, kind, suffix=""):
    """The one object of a kind whose name ends so."""
    found = [o for o in objects if o["kind"] == kind and o["metadata"]["name"] == f"{RELEASE}{suffix}"]
    assert len(found) == 1, f"{len(found)} objects of the kind {kind} are named {RELEASE}{suffix}"
    return found[0]


def pod_of(objects):
    return find(objects, "Deployment")["spec"]["template"]["spec"]


def settings_of(objects, suffix=""):
    return json.loads(find(objects, "ConfigMap", suffix)["data"]["aftd.json"])


def image_environment():
    """What the Dockerfile puts into the environment."""
    return dict(re.findall(r"^ENV (\w+)=(\S+)$", (DEPLOY / "container/Dockerfile").read_text(), re.M))


def image_command():
    return json.loads(re.search(r"^ENTRYPOINT (\[.*\])$", (DEPLOY / "container/Dockerfile").read_text(), re.M)[1])


# ---- a pod's files ---------------------------------------------------------------------------------------------------


def files_of(volume, objects, given):
    """name -> contents: of a config map or a secret of the chart, or of a secret in `given`, name -> contents."""
    if "configMap" in volume:
        source, = [o for o in objects if o["kind"] == "ConfigMap"
                   and o["metadata"]["name"] == volume["configMap"]["name"]]
        return source["data"]
    name = volume["secret"]["secretName"]
    made = [o["data"] for o in objects if o["kind"] == "Secret" and o["metadata"]["name"] == name]
    data = {key: base64.b64decode(value).decode() for key, value in made[0].items()} if made else given[name]
    items = volume["secret"].get("items")
    return {item["path"]: data[item["key"]] for item in items} if items else data


def lay_out(root, spec, container, objects, given=None, models=ROOT / "weights/models"):
    """Put into the folder `root` what the container sees: mounts, the models of the image, and those of a volume.

    The paths of settings then begin with root's."""
    (root / "usr/share/aftd").mkdir(parents=True)
    (root / "usr/share/aftd/models").symlink_to(ROOT / "weights/models")
    volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
    for mount in container["volumeMounts"]:
        to = root / mount["mountPath"].lstrip("/")
        volume = volumes[mount["name"]]
        assert mount["readOnly"]
        if mount["name"] == "models":
            to.symlink_to(models)
            continue
        to.mkdir(parents=True)
        for name, text in files_of(volume, objects, given or {}).items():
            (to / name).write_text(text)
    settings = root / "etc/aftd/aftd.json"
    written = {name: f"{root}{value}" if isinstance(value, str) and value.startswith("/") else value
               for name, value in json.loads(settings.read_text()).items()}
    settings.write_text(json.dumps(written))


def command(root, container, *flags):
    """How the container's program is started there: its arguments and its environment, the image's below."""
    environment = {**image_environment(), **{e["name"]: e["value"] for e in container["env"]}}
    assert image_command() == ["/usr/bin/aftd"]
    arguments = [f"{root}{a}" if a.startswith("/etc/") else a for a in container["args"]]
    return ["env", *(f"{name}={value}" for name, value in environment.items()), DAEMON, *arguments, *flags]


def run(words):
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=ENVIRONMENT)
    return done.returncode, done.stdout + done.stderr, shlex.join(map(str, words))
