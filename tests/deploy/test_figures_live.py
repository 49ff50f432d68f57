"""Prometheus and the daemon together: nothing fails, and every query of the dashboard and of the rules has data."""
import math
import os
import urllib.parse

import pytest
from conftest import BUILD, HANG_S, OVERFLOWS, PICTURES, TEXT
from figures import ALERTS, RULES, panel_queries, without_filters

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
DRAWN = ["Requests by status A", "Time to first byte B", "Stream slots in use A", "Bytes generated A",
         "Engine utilisation A", "Requests by key A"]


def test_no_scrape_fails(prometheus):
    targets = prometheus.get("targets")["activeTargets"]
    assert len(targets) == 3
    assert {target["lastError"] for target in targets} == {""}
    assert set(prometheus.values('up{job="aftd"}')) == {1}
    for refused in ("sample_duplicate_timestamp", "sample_out_of_order", "sample_out_of_bounds"):
        assert set(prometheus.values(f"prometheus_target_scrapes_{refused}_total")) == {0}


def test_a_scrape_stays_small(prometheus):
    assert max(prometheus.values('scrape_samples_scraped{job="aftd"}')) < 2000


def test_no_rule_fails(prometheus):
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert len(rules) == len(RULES)
    assert {(rule["health"], rule.get("lastError", "")) for rule in rules} == {("ok", "")}
    assert set(prometheus.values("prometheus_rule_evaluation_failures_total")) == {0}


@pytest.mark.parametrize("name, query", panel_queries(), ids=[name for name, _ in panel_queries()])
def test_a_panel_has_data(prometheus, name, query):
    values = prometheus.values(query)
    assert values, query
    assert all(math.isfinite(value) and value >= 0 for value in values)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_has_data(prometheus, rule):
    assert prometheus.values(without_filters(rule["expr"])), rule["expr"]


def test_what_happened_is_told(prometheus):
    """The load was what it was meant to be."""
    for series in [f'aftd_requests_total{{model="{OVERFLOWS}", status="500"}}',
                   f'aftd_requests_total{{model="{TEXT}", status="200"}}', 'aftd_requests_total{status="503"}',
                   f'aftd_requests_total{{model="{PICTURES}", endpoint="/classify", status="200"}}',
                   'aftd_requests_total{status="401"}', 'aftd_requests_total{status="429"}',
                   'aftd_requests_rejected_total{reason="queue_full"}', 'aftd_key_requests_total{key="alice"}',
                   'aftd_key_limited_total{key="bob"}', f'aftd_requests_cancelled_total{{model="{TEXT}"}}',
                   f'aftd_requests_timed_out_total{{model="{TEXT}"}}', "aftd_sessions",
                   f'aftd_prefix_cache_hits_total{{model="{TEXT}"}}']:
        assert max(prometheus.values(series), default=0) > 0, series
    reloads = prometheus.values("aftd_config_last_reload_success_timestamp_seconds")
    assert len(set(reloads)) == 3  # two starts, one reload
    assert set(prometheus.values("aftd_config_last_reload_successful")) == {1}
    assert max(prometheus.values("aftd_tls_certificate_expiry_timestamp_seconds - time()")) == \
        pytest.approx(30 * 86400, abs=600)


def test_the_alert_about_internal_errors_fires_and_no_other_of_what_did_not_happen(prometheus):
    firing = {alert["labels"]["alertname"] for alert in prometheus.get("alerts")["alerts"]
              if alert["state"] == "firing"}
    assert "AftdInternalErrors" in firing
    assert not firing & {"AftdDown", "AftdCrashLooping", "AftdEngineStuck", "AftdConfigReloadFailed",
                         "AftdModelLoadFailed", "AftdCertificateExpiring", "AftdLogLinesDropped", "AftdMemoryHigh",
                         "AftdMemoryReservedHigh", "AftdFileDescriptorsLow"}
    assert firing <= ALERTS.keys()


def test_prometheus_draws_them(prometheus):
    """Screenshots of its own page in build/figures/, for people to look at."""
    if not os.path.exists(CHROMIUM):
        pytest.skip("there is no Chromium: make deps-page")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make deps-page")
    queries = dict(panel_queries())
    query = {}
    for i, name in enumerate(DRAWN):
        query |= {f"g{i}.expr": queries[name], f"g{i}.tab": "0", f"g{i}.range_input": "2m"}
    shots = BUILD / "figures"
    shots.mkdir(parents=True, exist_ok=True)
    with sync_api.sync_playwright() as p:
        root = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's sandbox refuses root
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--disable-gpu", *root])
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.goto(f"{prometheus.url}/classic/graph?{urllib.parse.urlencode(query)}")
        for i in range(len(DRAWN)):
            # Attached: a line that is level has no height, and what has none counts as hidden.
            page.locator("svg path").nth(i).wait_for(state="attached", timeout=1000 * HANG_S)
        page.add_style_tag(content=".navbar { position: static !important }")  # else it lies across the picture
        page.wait_for_timeout(2000)
        page.screenshot(path=shots / "graphs.png", full_page=True)
        for path in ("targets", "alerts"):
            page.goto(f"{prometheus.url}/classic/{path}")
            page.screenshot(path=shots / f"{path}.png", full_page=True)
        browser.close()
