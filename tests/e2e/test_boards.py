"""Every query of every board returns data on a server under load, or is listed as silent."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from observability.aliases import VLLM_ALIASES
from observability.boards.model import Board
from observability.boards.table import BOARDS
from tests.e2e.loaded import loaded
from tests.e2e.prometheus_server import prometheus_scraping, results
from tests.e2e.quire_server import QuireServer, free_port, until
from tests.observability.boards.test_table import filled

pytestmark = [pytest.mark.debian, pytest.mark.integration]

# A small KV cache and few slots, so that sequences wait and are preempted.
MODEL = "simulated:fast,step=5ms,kv_tokens=1024,context=1024,output=150-200"
ADMIN_PORT = free_port()  # with API keys, only it has /metrics
ARGUMENTS = (
    *("--max-num-seqs", "6", "--max-waiting-requests", "8"),
    *("--api-key", "a=sk-a", "--metrics-aliases", "vllm", "--admin-port", str(ADMIN_PORT)),
)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with (
        QuireServer(MODEL, *ARGUMENTS) as server,
        exporter() as gpu_port,
        loaded(server, streams=12),
        prometheus_scraping(
            ADMIN_PORT, tmp_path_factory.mktemp("prometheus"), others={"dcgm": gpu_port}
        ) as url,
    ):
        until(lambda: results(url, "quire_preemptions_total > 0"), 60, "preemptions")
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


NAME = 'job=~".*", model_name=~".*", instance=~".*"'


def rate(metric: str, by: str = "", **labels: str) -> str:
    further = "".join(f', {name}="{value}"' for name, value in labels.items())
    names_model = metric.startswith("vllm:")
    matchers = NAME if names_model else 'job=~".*", instance=~".*"'
    return f"sum {by} (rate({metric}{{{matchers}{further}}}[40s]))"


# What vLLM's boards ask of its metrics, by name: all that Quire measures.
HISTOGRAMS = (
    *("time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds"),
    *("request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds"),
    *("request_prompt_tokens", "request_generation_tokens", "request_num_preemptions"),
    "iteration_tokens_total",
)
COUNTERS = (
    *("prompt_tokens_total", "prompt_tokens_cached_total", "generation_tokens_total"),
    *("num_preemptions_total", "request_success_total", "prefix_cache_queries_total"),
    *("prefix_cache_hits_total", "prompt_tokens_by_source_total"),
)
GAUGES = (
    *("num_requests_running", "num_requests_waiting", "num_requests_waiting_by_reason"),
    *("kv_cache_usage_perc",),
)
QUERIES = (
    *(f"histogram_quantile(0.95, {rate(f'vllm:{name}_bucket', 'by (le)')})" for name in HISTOGRAMS),
    *(f"{rate(f'vllm:{name}_sum')} / ({rate(f'vllm:{name}_count')} > 0)" for name in HISTOGRAMS),
    *(rate(f"vllm:{name}", "by (model_name, engine, instance)") for name in COUNTERS),
    *(f'sum by (instance, engine) (vllm:{name}{{{NAME}, engine=~"0"}})' for name in GAUGES),
    rate("vllm:request_success_total", "by (finished_reason)"),
    rate("vllm:prompt_tokens_by_source_total", "by (source)", source="local_cache_hit"),
    f'sum(vllm:num_requests_waiting_by_reason{{{NAME}, reason="capacity"}})',
    f'sum(vllm:num_requests_waiting_by_reason{{{NAME}, reason="deferred"}})',
    f"{rate('vllm:prefix_cache_hits_total')} / ({rate('vllm:prefix_cache_queries_total')} > 0)",
    *(
        f"{rate('vllm:time_to_first_token_seconds_bucket', le=bound)}"
        f" / ({rate('vllm:time_to_first_token_seconds_count')} > 0)"
        for bound in ("0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0")
    ),
    f"({rate('http_requests_total', status='5xx')} or vector(0))"
    f" / ({rate('http_requests_total')} > 0)",
    rate("http_requests_total", "by (handler, method)"),
    'vllm:cache_config_info{job=~".*", instance=~".*", engine=~"0"}',
    "time() - process_start_time_seconds",
    "max by (model_name, instance) ((time() - process_start_time_seconds) * on (job, instance)"
    " group_left (model_name) group by (job, instance, model_name) (vllm:num_requests_running))",
    'sum by (instance) (process_open_fds{job="quire"}) / sum by (instance) (process_max_fds)',
)


def test_vllms_boards_answer_wherever_the_fact_exists(prometheus: str) -> None:
    for expr in QUERIES:
        until(ready(prometheus, expr), 30, expr)


def test_no_alias_is_untested() -> None:
    shown = " ".join(QUERIES)
    names = {alias.name for alias in VLLM_ALIASES}
    assert {name for name in names if not re.search(rf"{name}(?:_bucket)?\b", shown)} == set()
