"""A real Prometheus scrapes the product, and PromQL over its data gives the right figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.e2e.prometheus_server import prometheus_scraping, query
from tests.e2e.quire_server import QuireServer, until


@pytest.fixture
def prometheus(server: QuireServer, tmp_path: Path) -> Iterator[str]:
    """The base URL of a Prometheus that scrapes the server each second."""
    with prometheus_scraping(server.port, tmp_path) as url:
        yield url


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
