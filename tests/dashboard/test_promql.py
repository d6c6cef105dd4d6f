"""Our rates and quantiles are those that a real Prometheus computes from the same samples."""

from __future__ import annotations

import json
import math
import random
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dashboard.exposition import Page, Series
from dashboard.quantile import histogram_quantile
from dashboard.series import History
from tests.e2e.quire_server import until

pytestmark = [
    pytest.mark.debian,
    pytest.mark.skipif(
        not (shutil.which("prometheus") and shutil.which("promtool")),
        reason="needs Debian's package prometheus",
    ),
]

Query = Callable[[str], float]

START = 1_700_000_000
SCRAPES = 61
WINDOW = 50
BOUNDS = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5)
QUANTILES = (0.0, 0.01, 0.25, 0.5, 0.9, 0.95, 0.99, 1.0)
# A millisecond more than the window, so that its first sample counts whether ranges include
# their start (Prometheus 2) or not (3). It shifts a rate by less than this.
RANGE, TOLERANCE = "50001ms", 1e-4

ODD_HISTOGRAMS: dict[str, list[tuple[float, float]]] = {
    "plain": [(0.1, 3), (1, 17), (2.5, 20), (math.inf, 21)],
    "all_in_one": [(0.1, 0), (1, 9), (2.5, 9), (math.inf, 9)],
    "beyond": [(0.1, 0), (1, 0), (math.inf, 4)],
    "empty": [(0.1, 0), (1, 0), (math.inf, 0)],
    "below_zero": [(-2, 4), (-1, 6), (3, 10), (math.inf, 10)],
    "no_infinity": [(0.1, 3), (1, 17)],
    "only_infinity": [(math.inf, 17)],
    "torn": [(0.1, 5), (1, 4), (2.5, 9), (math.inf, 9)],
}


def scrapes() -> list[dict[Series, float]]:
    """A counter of two models and a histogram over a minute; the server restarts in it once."""
    dice = random.Random(7)
    counters = {Series("tokens_total", (("model", model),)): 0.0 for model in "ab"}
    buckets = {Series("ttft_bucket", (), str(bound)): 0.0 for bound in (*BOUNDS, "+Inf")}
    pages = []
    for second in range(SCRAPES):
        if second == 33:
            counters, buckets = dict.fromkeys(counters, 0.0), dict.fromkeys(buckets, 0.0)
        for series in counters:
            counters[series] += dice.randrange(1, 500)
        for _ in range(dice.randrange(1, 9)):
            observed = dice.lognormvariate(-2, 1.5)
            for series in buckets:
                buckets[series] += observed <= float(series.bound)
        pages.append(counters | buckets)
    return pages


def openmetrics() -> str:
    lines = ["# TYPE tokens counter"]
    pages = scrapes()
    for name in ("tokens_total", "ttft_bucket"):
        if name == "ttft_bucket":
            lines.append("# TYPE ttft histogram")
        for series in [series for series in pages[0] if series.name == name]:
            labels = [*series.labels, *([("le", series.bound)] if series.bound else [])]
            text = ",".join(f'{label}="{value}"' for label, value in labels)
            lines += [
                f"{name}{{{text}}} {page[series]} {START + t}" for t, page in enumerate(pages)
            ]
    # As gauges: OpenMetrics itself forbids some of these shapes.
    for name, buckets in ODD_HISTOGRAMS.items():
        lines.append(f"# TYPE {name} gauge")
        lines += [
            f'{name}{{le="{"+Inf" if bound == math.inf else bound}"}} {count} {START + SCRAPES - 1}'
            for bound, count in buckets
        ]
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture(scope="module")
def promql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Query]:
    """Evaluates an expression at the time of the last scrape."""
    folder: Path = tmp_path_factory.mktemp("prometheus")
    (folder / "samples").write_text(openmetrics())
    (folder / "prometheus.yml").write_text("{}")
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", "samples", "data"],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=60,
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    process = subprocess.Popen(
        [
            "prometheus",
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            "--storage.tsdb.retention.time=100y",
            f"--web.listen-address={address}",
        ],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=(folder / "log").open("wb"),
    )
    try:
        _wait_until_ready(address, process, folder / "log")

        def query(expression: str) -> float:
            parameters = urllib.parse.urlencode({"query": expression, "time": START + SCRAPES - 1})
            url = f"http://{address}/api/v1/query?{parameters}"
            with urllib.request.urlopen(url, timeout=10) as response:
                result = json.load(response)["data"]["result"]
            assert len(result) <= 1
            return float(result[0]["value"][1]) if result else math.nan

        yield query
    finally:
        process.terminate()
        process.wait(30)


def _wait_until_ready(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    def ready() -> bool:
        assert process.poll() is None, log.read_text()
        with suppress(OSError):
            urllib.request.urlopen(f"http://{address}/-/ready", timeout=1).close()
            return True
        return False

    until(ready, 60, f"Prometheus to be ready; its log is {log}")


@pytest.fixture(scope="module")
def history() -> History:
    scraped = History(300)
    for second, totals in enumerate(scrapes()):
        scraped.append(START + second, Page({}, totals))
    return scraped


@pytest.mark.parametrize("model", ["a", "b"])
def test_increase_and_rate_agree_across_a_restart(
    promql: Query, history: History, model: str
) -> None:
    selector = f'tokens_total{{model="{model}"}}[{RANGE}]'
    ours = {"model": model}
    assert history.increase("tokens_total", WINDOW, ours) == pytest.approx(
        promql(f"increase({selector})"), rel=TOLERANCE
    )
    assert history.rate("tokens_total", WINDOW, ours) == pytest.approx(
        promql(f"rate({selector})"), rel=TOLERANCE
    )


@pytest.mark.parametrize("quantile", QUANTILES)
def test_quantiles_of_a_window_agree_across_a_restart(
    promql: Query, history: History, quantile: float
) -> None:
    theirs = promql(f"histogram_quantile({quantile}, sum by (le) (increase(ttft_bucket[{RANGE}])))")
    assert history.quantile(quantile, "ttft", WINDOW) == pytest.approx(theirs, rel=TOLERANCE)


@pytest.mark.parametrize("name", ODD_HISTOGRAMS)
@pytest.mark.parametrize("quantile", [-1.0, *QUANTILES, 2.0])
def test_odd_histograms_give_the_same_quantile(promql: Query, name: str, quantile: float) -> None:
    theirs = promql(f"histogram_quantile({quantile}, {name})")
    ours = histogram_quantile(quantile, ODD_HISTOGRAMS[name])
    assert ours == pytest.approx(theirs, rel=1e-12, nan_ok=True)
