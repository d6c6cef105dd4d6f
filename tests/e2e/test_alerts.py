"""Alerts fire through a real Prometheus and alertmanager when their faults are injected.

All durations of the rules are divided by 30, and a sample is taken every half a second; conditions
and thresholds are those of the file.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from observability.alerts.files import rules_text
from observability.objectives import Objectives
from observability.observe import missing_programs, observing
from tests.e2e.loaded import loaded
from tests.e2e.quire_server import QuireServer, engine_of, free_port, stopped, until

pytestmark = [
    pytest.mark.one_process,
    pytest.mark.debian,
    pytest.mark.integration,
    pytest.mark.skipif(
        bool(missing_programs()), reason="needs Debian's prometheus and prometheus-alertmanager"
    ),
]

FASTER = 30
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
DURATION = re.compile(r"(?<=\[)(\d+)([smhd])(?=\])|(?<=for: )(\d+)([smhd])")


def faster(rules: str) -> str:
    def scaled(found: re.Match[str]) -> str:
        number, unit = found[1] or found[3], found[2] or found[4]
        return f"{int(number) * SECONDS[unit] * 1000 // FASTER}ms"

    return DURATION.sub(scaled, rules)


class Webhook:
    """Receives what alertmanager sends; ``firing``: the names of alerts that fired so far."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, dict[str, str]]] = []
        alerts = self.alerts

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                alerts.extend(json.loads(body)["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def firing(self) -> set[str]:
        return {
            alert["labels"]["alertname"] for alert in self.alerts if alert["status"] == "firing"
        }

    def wait_for(self, *names: str) -> None:
        until(lambda: set(names) <= self.firing(), 90, f"{names} among {self.firing()}")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    receiver = Webhook()
    yield receiver
    receiver.close()


def test_injected_faults_reach_the_webhook(webhook: Webhook, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(faster(rules_text(Objectives())))
    model = "simulated:fast,step=20ms,kv_tokens=4096,context=1024,output=150-200"
    port = str(free_port())  # with API keys, only the admin port has /metrics
    arguments = (
        *("--max-num-seqs", "64", "--max-waiting-requests", "24"),
        *("--api-key", "a=sk-a", "--admin-port", port),
    )
    with ExitStack() as stack:
        server = stack.enter_context(QuireServer(model, *arguments))
        watching = observing(
            f"127.0.0.1:{port}", tmp_path, rules=rules, webhook=webhook.url, seconds=0.5
        )
        stack.enter_context(watching)
        with loaded(server, streams=56):
            webhook.wait_for("QuireQueueOld", "QuireShedding", "QuireKvSaturated")
            webhook.wait_for("QuireTtftBudgetFast", "QuireAvailabilityBudgetFast")
            with stopped(engine_of(server)):
                webhook.wait_for("QuireEngineSilent", "QuireEngineStuck")
        server.terminate()
        webhook.wait_for("QuireDown")
    names = {"QuireEngineSilent", "QuireShedding"}
    for alert in webhook.alerts:
        if alert["labels"]["alertname"] in names:
            assert f"127.0.0.1:{port}" in alert["annotations"]["summary"]
            assert alert["annotations"]["runbook_url"].startswith("docs/alerts.md#quire")


def test_durations_are_scaled_in_ranges_and_holds_only() -> None:
    rules = 'expr: "rate(x{le=\\"5m\\"}[5m]) > 2"\nfor: 1h\nsummary: "in 5m"'
    assert faster(rules) == (
        'expr: "rate(x{le=\\"5m\\"}[10000ms]) > 2"\nfor: 120000ms\nsummary: "in 5m"'
    )
