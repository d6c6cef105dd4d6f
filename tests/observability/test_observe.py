"""``make observe`` starts real programs against a server, or says what to install."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from observability import observe
from observability.observe import (
    Addresses,
    NotStartedError,
    alertmanager_config,
    metrics_problem,
    missing_programs,
    observing,
    prometheus_config,
)


def test_prometheus_scrapes_the_target_with_the_rules(tmp_path: Path) -> None:
    config = prometheus_config("gpu-1:8000", Path("/r.yaml"), "127.0.0.1:9093", 0.5)
    assert config["rule_files"] == ["/r.yaml"]
    (job,) = config["scrape_configs"]  # type: ignore[misc]
    assert job == {"job_name": "quire", "static_configs": [{"targets": ["gpu-1:8000"]}]}
    assert config["global"]["scrape_interval"] == "500ms"  # type: ignore[index]
    key = tmp_path / "key"
    config = prometheus_config("gpu-1:8001", Path("/r.yaml"), "127.0.0.1:9093", 5, key)
    (job,) = config["scrape_configs"]  # type: ignore[misc]
    assert job["authorization"] == {"credentials_file": str(key)}


def test_alertmanager_sends_to_the_webhook_if_there_is_one() -> None:
    assert "webhook_configs" not in json.dumps(alertmanager_config(None))
    config = json.dumps(alertmanager_config("http://127.0.0.1:1/hook"))
    assert "http://127.0.0.1:1/hook" in config
    assert '"group_wait": "1s"' in config


def test_what_is_missing_is_named_with_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(observe.shutil, "which", lambda program: None)
    with (
        pytest.raises(NotStartedError, match="apt-get install prometheus prometheus-alertmanager"),
        observing("127.0.0.1:1", tmp_path),
    ):
        pass
    assert observe.main(["--target", "127.0.0.1:1"]) == 1
    assert "apt-get install" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpu-1:8000", "gpu-1:8000"),
        ("http://127.0.0.1:8000", "127.0.0.1:8000"),
        ("http://[::1]:8000/", "[::1]:8000"),
    ],
)
def test_a_target_may_be_written_as_the_url_that_the_server_prints(text: str, found: str) -> None:
    assert observe.target(text) == found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--target", "https://gpu-1:8000"), "must be HOST:PORT, or http://HOST:PORT (got"),
        (("--target", "gpu-1"), "must be HOST:PORT"),
        (("--target", "gpu-1:80000"), "must be HOST:PORT"),
        (("--target", "[::1:8000"), "must be HOST:PORT"),
        (("--target", "gpu-1:8000/metrics"), "must be HOST:PORT"),
        (("--interval", "0"), "must be 0.1 to 3600 seconds (got '0')"),
        (("--interval", "often"), "must be 0.1 to 3600 seconds"),
        (("--rules", "/no/such/rules.yaml"), "no such file: /no/such/rules.yaml"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_starts(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        observe.main([*arguments])
    assert said in capsys.readouterr().err


class _NeedsKey(BaseHTTPRequestHandler):
    """As the admin port of a server with keys."""

    def do_GET(self) -> None:
        has_key = self.headers["authorization"] == "Bearer right"
        self.send_response(200 if has_key else 401)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        return


def test_why_metrics_cannot_be_read_is_said_in_a_sentence(tmp_path: Path) -> None:
    right, wrong, missing = (tmp_path / name for name in ("right", "wrong", "missing"))
    right.write_text("right\n")
    wrong.write_text("wrong\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), _NeedsKey) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        target = f"127.0.0.1:{server.server_port}"
        url = f"http://{target}/metrics"
        assert metrics_problem(target, right) is None
        assert metrics_problem(target, wrong) == f"{url} refuses the key in {wrong}"
        needed = f"{url} needs a key with the scope read: --key-file FILE"
        assert metrics_problem(target, None) == needed
        said = f"cannot read {missing}: No such file or directory"
        assert metrics_problem(target, missing) == said
        server.shutdown()
    assert "does not answer (yet)" in str(metrics_problem(target, right))


@pytest.mark.debian
@pytest.mark.skipif(bool(missing_programs()), reason="needs prometheus and alertmanager (Debian)")
def test_it_prints_addresses_that_answer_and_ends_at_a_signal() -> None:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "observability.observe", "--target", "127.0.0.1:1"),
            *("--port", "0", "--alertmanager-port", "0", "--interval", "1"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline() for _ in range(4)]
        found = Addresses(lines[0].split()[-1], lines[2].split()[-1])
        with urllib.request.urlopen(f"{found.prometheus}/api/v1/rules", timeout=10) as reply:
            groups = json.load(reply)["data"]["groups"]
        assert {group["name"] for group in groups} == {"quire", "quire-objectives"}
        with urllib.request.urlopen(f"{found.alertmanager}/api/v2/status", timeout=10) as reply:
            assert reply.status == 200
        assert "Ctrl-C" in lines[3]
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert "does not answer (yet)" in errors


@pytest.mark.debian
@pytest.mark.skipif(bool(missing_programs()), reason="needs prometheus and alertmanager (Debian)")
def test_a_program_that_refuses_its_configuration_is_reported(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("groups: [{name: x, rules: [{alert: X, expr: 'sum('}]}]")
    with (
        pytest.raises(NotStartedError, match="prometheus ended with status"),
        observing("127.0.0.1:1", tmp_path, rules=rules),
    ):
        pass
