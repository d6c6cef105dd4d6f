"""Every query of every board returns data on a server under load, or is listed as silent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from observability.boards.model import Board
from observability.boards.table import BOARDS
from tests.e2e.loaded import loaded
from tests.e2e.prometheus_server import prometheus_scraping, results
from tests.e2e.quire_server import QuireServer, free_port, until
from tests.observability.boards.test_table import filled

pytestmark = [pytest.mark.debian, pytest.mark.integration]

# A small KV cache, few slots and places, so that sequences wait, are preempted and refused.
MODEL = "simulated:fast,step=5ms,kv_tokens=1024,context=1024,output=150-200"
ADMIN_PORT = free_port()  # with API keys, only it has /metrics
ARGUMENTS = (
    *("--max-num-seqs", "6", "--max-waiting-requests", "8"),
    *("--api-key", "a=sk-a", "--admin-port", str(ADMIN_PORT)),
)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with (
        QuireServer(MODEL, *ARGUMENTS) as server,
        exporter() as gpu_port,
        loaded(server, streams=20),
        prometheus_scraping(
            ADMIN_PORT, tmp_path_factory.mktemp("prometheus"), others={"dcgm": gpu_port}
        ) as url,
    ):
        until(lambda: results(url, "quire_preemptions_total > 0"), 60, "preemptions")
        until(lambda: results(url, "DCGM_FI_DEV_GPU_TEMP"), 60, "a scrape of the GPU's exporter")
        yield url


# As dcgm-exporter writes it: there is no GPU here.
DCGM = (
    *("PROF_PIPE_TENSOR_ACTIVE", "PROF_DRAM_ACTIVE", "DEV_GPU_UTIL", "DEV_FB_USED", "DEV_FB_FREE"),
    *("DEV_NVLINK_BANDWIDTH_TOTAL", "DEV_POWER_USAGE", "DEV_GPU_TEMP", "DEV_SM_CLOCK"),
    *("DEV_XID_ERRORS", "DEV_UNCORRECTABLE_REMAPPED_ROWS"),
)


class exporter:  # noqa: N801 - a context manager
    """A page in the format of NVIDIA's exporter, on a free port."""

    def __enter__(self) -> int:
        labels = 'gpu="0",UUID="GPU-1",device="nvidia0",modelName="H100",Hostname="n1"'
        page = "".join(f"DCGM_FI_{name}{{{labels}}} 1\n" for name in DCGM).encode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self._server.server_address[1]

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def instant(expr: str) -> str:
    return filled(expr).replace("[1m]", "[40s]")


def has_number(url: str, expr: str) -> bool:
    return any(each["value"][1] != "NaN" for each in results(url, expr))


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_every_query_returns_data_or_is_proven_silent(board: Board, prometheus: str) -> None:
    for panel in board.panels:
        for query in panel.queries:
            found = ready(prometheus, instant(query.expr))
            proven = ready(prometheus, instant(query.proof)) if query.proof else never
            until(either(found, proven), 30, f"data for {panel.title}: {instant(query.expr)}")


def never() -> bool:
    return False


def either(first: Callable[[], bool], second: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: first() or second()


def ready(url: str, expr: str) -> Callable[[], bool]:
    return lambda: has_number(url, expr)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_variables_have_values(board: Board, prometheus: str) -> None:
    for choice in board.choices:
        series = results(prometheus, filled(choice.series))
        assert any(choice.name in each["metric"] for each in series), choice


def test_only_a_slow_reader_is_missing_here(prometheus: str) -> None:
    """Sequences wait on this server and enough of them start, and there is a GPU's exporter."""
    silent = [
        query
        for board in BOARDS
        for panel in board.panels
        for query in panel.queries
        if query.silent and "slow to read" not in query.silent
    ]
    assert len(silent) == 2 + len(DCGM)
    for query in silent:
        until(ready(prometheus, instant(query.expr)), 30, query.expr)
