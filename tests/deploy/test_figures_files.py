"""The rules and the dashboard as files: valid, complete, and in agreement with the metrics and with RUNBOOK.md."""
import importlib.util
import json
import re
import shutil
import subprocess

import pytest
import yaml
from conftest import DEPLOY, ROOT
from figures import ALERTS, DASHBOARD, RULE_TESTS, RULES, known_metrics, panel_queries, panels, without_filters

RUNBOOK = "file:///usr/share/doc/aftd/RUNBOOK.md"
VARIABLE = {"type": "prometheus", "uid": "${datasource}"}


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed: make deps-lint")
@pytest.mark.parametrize("command", ["check config prometheus.yml", "check rules alerts.yml",
                                     "test rules alerts_test.yml"])
def test_promtool_accepts(command):
    *words, name = command.split()
    run("promtool", *words, str(DEPLOY / "prometheus" / name))


# ---- rules -----------------------------------------------------------------------------------------------------------


def test_every_alert_is_seen_to_fire_and_then_to_clear():
    fires = {sample["labels"][len('{alertname="'):-2] for test in RULE_TESTS for check in test["promql_expr_test"]
             for sample in check["exp_samples"]}
    clears = set()
    for test in RULE_TESTS:
        expected = [{sample["labels"][len('{alertname="'):-2] for sample in check["exp_samples"]}
                    for check in test["promql_expr_test"]]
        clears |= set().union(*(now - after for now, after in zip(expected, expected[1:])))
    assert fires == clears == ALERTS.keys()


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_to_do(name):
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in ("page", "ticket")
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
    assert page == RUNBOOK and anchor == name.lower()
    spec = importlib.util.spec_from_file_location("links", ROOT / "tests/lint/links.py")
    links = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(links)
    assert anchor in links.anchors((DEPLOY / "RUNBOOK.md").read_text()), f"RUNBOOK.md has no heading {name}"


def test_the_package_has_the_runbook_where_alerts_say():
    """As a browser opens it: not compressed."""
    assert "deploy/RUNBOOK.md" in (DEPLOY / "debian/aftd.docs").read_text().split()
    assert "-XRUNBOOK.md" in (DEPLOY / "debian/rules").read_text()


def test_comparisons_are_made_to_answer_for_every_series():
    assert without_filters('a{b!="c>d", e=~"f"} / (g > 0) >= 0.9') == \
        'a{b!="c>d", e=~"f"} / (g > bool 0) >= bool 0.9'
    assert without_filters("up == 0 or h <bool 3") == "up == bool 0 or h <bool 3"


# ---- metrics ---------------------------------------------------------------------------------------------------------


def test_rules_and_panels_ask_for_metrics_that_there_are():
    asked = set(re.findall(r"(?<![\w:])(?:aftd|process)_\w+", " ".join(
        [rule["expr"] for rule in RULES] + [query for _, query in panel_queries()])))
    assert asked <= known_metrics()


# ---- the dashboard ---------------------------------------------------------------------------------------------------


def test_panels_have_places_and_numbers_of_their_own():
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    taken = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] and place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken[x, y]}"
                taken[x, y] = panel["title"]


def test_rows_follow_one_another():
    rows = [panel for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert [row["title"] for row in rows] == [
        "Traffic", "Latency", "Saturation", "Shares and bounds", "Streams", "Models", "Keys", "Process"]
    order = [(panel["gridPos"]["y"], panel["gridPos"]["x"]) for panel in DASHBOARD["panels"]]
    assert order == sorted(order)


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_a_panel_is_whole(panel):
    assert panel["type"] in ("timeseries", "stat", "table") and panel["title"]
    assert panel["datasource"] == VARIABLE and panel["targets"]
    assert [target["refId"] for target in panel["targets"]] == [chr(ord("A") + i) for i in range(len(panel["targets"]))]
    for target in panel["targets"]:
        assert target["datasource"] == VARIABLE and target["expr"]
        assert panel["type"] != "timeseries" or target["legendFormat"]


def test_every_datasource_is_the_variable():
    def datasources(value):
        if isinstance(value, dict):
            yield from ([value["datasource"]] if "datasource" in value else [])
            value = value.values()
        for inner in value if not isinstance(value, (str, int, float, bool, type(None))) else ():
            yield from datasources(inner)

    assert all(found == VARIABLE for found in datasources(DASHBOARD))
    variables = {variable["name"]: variable["type"] for variable in DASHBOARD["templating"]["list"]}
    assert variables == {"datasource": "datasource", "instance": "query", "model": "query"}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))) - {"__rate_interval", "__all"}
    assert used == variables.keys()


def test_provisioning_names_what_there_is():
    folder = DEPLOY / "grafana/provisioning"
    source, = yaml.safe_load((folder / "datasources/prometheus.yml").read_text())["datasources"]
    provider, = yaml.safe_load((folder / "dashboards/aftd.yml").read_text())["providers"]
    prometheus = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    assert source["type"] == VARIABLE["type"] and provider["type"] == "file" and provider["options"]["path"]
    assert source["jsonData"]["timeInterval"] == prometheus["global"]["scrape_interval"]
