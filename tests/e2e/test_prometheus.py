"""A real Prometheus scrapes the product, and PromQL over its data gives the right figures."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import openai
import pytest

from tests.e2e.quire_server import QuireServer, free_port, until

CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: quire
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


@pytest.fixture
def prometheus(server: QuireServer, tmp_path: Path) -> Iterator[str]:
    """The base URL of a Prometheus that scrapes the server each second."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed (Debian package: prometheus)")
    config = tmp_path / "prometheus.yml"
    config.write_text(CONFIG.format(port=server.port))
    port = free_port()
    process = subprocess.Popen(
        [
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=error",
        ]
    )
    url = f"http://127.0.0.1:{port}"

    def up() -> bool:
        with suppress(OSError):
            return query(url, 'up{job="quire"}') == 1
        return False

    try:
        until(up, 30, "prometheus to have scraped")
        yield url
    finally:
        process.terminate()
        process.wait()


def query(url: str, expression: str) -> float | None:
    """The value of an expression with one series, None while it has none."""
    parameters = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"{url}/api/v1/query?{parameters}", timeout=10) as reply:
        result = json.load(reply)["data"]["result"]
    return float(result[0]["value"][1]) if result else None


@pytest.mark.debian
def test_prometheus_counts_what_the_client_received(
    prometheus: str, server: QuireServer, client: openai.OpenAI
) -> None:
    generated = "sum(quire_generated_tokens_total)"
    before = query(prometheus, generated)
    assert before is not None
    told = 0
    for prompt in ("Hello!", "Who are you?", "Tell me a story."):
        reply = client.chat.completions.create(
            model="pocket", messages=[{"role": "user", "content": prompt}]
        )
        assert reply.usage is not None
        told += reply.usage.completion_tokens
    until(
        lambda: query(prometheus, generated) == before + told,
        15,
        f"prometheus to count {told} more generated tokens",
    )
    quantile = "histogram_quantile(0.95, sum by (le) (quire_inter_token_latency_seconds_bucket))"
    p95 = query(prometheus, quantile)
    assert p95 is not None
    assert 0 < p95 < 10
    assert query(prometheus, 'sum(quire_requests_total{outcome="stop"})') is not None
