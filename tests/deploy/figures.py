"""What stands in the files of deploy/prometheus and deploy/grafana."""
import json
import re

import yaml
from conftest import DEPLOY, ROOT

DASHBOARD = json.loads((DEPLOY / "grafana/dashboard.json").read_text())
RULES = [rule for group in yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"]
         for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RULE_TESTS = yaml.safe_load((DEPLOY / "prometheus/alerts_test.yml").read_text())["tests"]
# As Grafana fills them in when all is chosen; the interval is four scrapes of the test's, and some to be sure.
VARIABLES = {"$instance": ".*", "$model": ".*", "$__rate_interval": "10s"}


def known_metrics():
    """The names of the table METRICS, and those of the series of its histograms."""
    names = set(re.findall(r'"((?:aftd|process)_\w+)"', (ROOT / "server/core/metrics.h").read_text()))
    return names | {name + suffix for name in names for suffix in ("_bucket", "_sum", "_count")}


def panels():
    """All but the rows."""
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def filled(query):
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


def panel_queries():
    return [(f"{panel['title']} {target['refId']}", filled(target["expr"]))
            for panel in panels() for target in panel["targets"]]


def without_filters(expression):
    """An expression whose comparisons answer 0 or 1 for every series instead of leaving out those that do not meet
    them, so that it has data exactly if what it compares has. Selectors and strings are left as they are."""
    return re.sub(r'\{[^{}]*\}|"[^"]*"|(==|!=|<=|>=|<|>)(?!\s*bool)', lambda m: m[1] + " bool" if m[1] else m[0],
                  expression)
