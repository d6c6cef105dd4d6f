"""A real Prometheus that scrapes one server, or several replicas of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.quire_server import free_port, until

CONFIG = """
global: {{scrape_interval: {seconds}s, scrape_timeout: {seconds}s}}
scrape_configs:
  - job_name: quire
    static_configs: [{{targets: [{targets}]}}]
"""
OTHER = """\
  - job_name: {job}
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


NO_OTHERS: Mapping[str, int] = {}


@contextmanager
def prometheus_scraping(
    port: int,
    directory: Path,
    *,
    seconds: int = 1,
    others: Mapping[str, int] = NO_OTHERS,
    replicas: Sequence[int] = (),
) -> Iterator[str]:
    """Yield the base URL of a Prometheus that has scraped the port, and does so every ``seconds``.
    ``others``: further ports to scrape, by job. ``replicas``: likewise, of the same job.
    Skips the test where there is no Prometheus."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed (Debian package: prometheus)")
    config = directory / "prometheus.yml"
    further = "".join(OTHER.format(job=job, port=other) for job, other in others.items())
    targets = ", ".join(f'"127.0.0.1:{each}"' for each in (port, *replicas))
    config.write_text(CONFIG.format(targets=targets, seconds=seconds) + further)
    own_port = free_port()
    process = subprocess.Popen(
        [
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{own_port}",
            "--log.level=error",
            "--enable-feature=exemplar-storage",
        ]
    )
    url = f"http://127.0.0.1:{own_port}"

    def up() -> bool:
        with suppress(OSError):
            return query(url, 'sum(up{job="quire"})') == 1 + len(replicas)
        return False

    try:
        until(up, 30, "prometheus to have scraped")
        yield url
    finally:
        process.terminate()
        process.wait()


def results(url: str, expression: str) -> list[Any]:
    """All series of an expression, as Prometheus returns them."""
    parameters = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"{url}/api/v1/query?{parameters}", timeout=10) as reply:
        found: list[Any] = json.load(reply)["data"]["result"]
    return found


def query(url: str, expression: str) -> float | None:
    """The value of an expression with one series, None while it has none."""
    result = results(url, expression)
    return float(result[0]["value"][1]) if result else None


def exact_increase(url: str, series: str) -> float:
    """What ``increase(series[1h])`` would be without extrapolation: a fall is taken for a restart
    from 0, as there. The first sample counts as 0 to its value for a series that came later than
    the scrapes began."""
    began = min(float(each["values"][0][0]) for each in results(url, 'up{job="quire"}[1h]'))
    total = 0.0
    for each in results(url, f"{series}[1h]"):
        values = [float(value) for _, value in each["values"]]
        before = values[0] if float(each["values"][0][0]) - began < 0.5 else 0.0
        for value in values:
            total += value if value < before else value - before
            before = value
    return total
