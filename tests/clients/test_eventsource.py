"""EventSource against GET /generate: npm's package, as it is (eventsource_client.mjs), and a browser's."""

import json
import re
import shutil
import subprocess

import browser
import pytest
from conftest import ROOT, SLOW

MODULES = ROOT / "build" / "clients"
NODE = shutil.which("node")
# It never closes its source.
PAGE = """<p id="told"></p><script>
const source = new EventSource("%s/generate?prompt=x&max_tokens=30");
const told = { opened: 0, ends: 0, errors: 0 };
const tell = () => {
  document.getElementById("told").textContent = JSON.stringify({ ...told, state: source.readyState });
};
source.onopen = () => { told.opened++; tell(); };
source.onmessage = (event) => { told.ends += JSON.parse(event.data).finish_reason ? 1 : 0; tell(); };
source.onerror = () => { told.errors++; tell(); };
</script>"""


@pytest.mark.skipif(NODE is None, reason="node is not installed: make deps-clients")
@pytest.mark.skipif(
    not (MODULES / "node_modules" / "eventsource").exists(),
    reason="npm's eventsource is not installed: make deps-clients",
)
def test_an_event_source_reads_a_text_and_gives_up_at_its_end(daemon):
    done = subprocess.run(
        [NODE, ROOT / "tests" / "clients" / "eventsource_client.mjs", daemon.url, MODULES],
        capture_output=True, text=True, timeout=120 * SLOW,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == 4


@pytest.mark.skipif(browser.CHROMIUM is None, reason="Chromium is not installed: make deps-page")
def test_a_browser_gives_up_at_the_end_of_a_text(start_daemon, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    with browser.served(site) as origin:
        (site / "index.html").write_text(PAGE % start_daemon(f"--cors-origins={origin}").url)
        html = browser.look(origin, tmp_path / "profile")
    told = json.loads(re.search(r'<p id="told">(.*?)</p>', html)[1].replace("&quot;", '"'))
    # One error is the stream's end, the other the 204 to the next request, at which it is closed.
    assert told == {"opened": 1, "ends": 1, "errors": 2, "state": 2}
