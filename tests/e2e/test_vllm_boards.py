"""vLLM's boards on a Quire server under load: each metric that they name answers, or is listed here
with the reason why Quire has no such fact.

The names are those of the boards in vLLM's ``examples/observability``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from observability.aliases import VLLM_ALIASES
from tests.e2e.loaded import loaded
from tests.e2e.prometheus_server import prometheus_scraping, query, results
from tests.e2e.quire_server import QuireServer, free_port, until

pytestmark = [pytest.mark.debian, pytest.mark.integration]

# Room enough that a prefix is still there when the next prompt begins with it.
MODEL = "simulated:fast,step=5ms,kv_tokens=4096,context=1024,output=50-100"
ADMIN_PORT = free_port()  # with API keys, only it has /metrics
ARGUMENTS = (
    *("--max-num-seqs", "6", "--max-waiting-requests", "8", "--api-key", "a=sk-a"),
    *("--metrics-aliases", "vllm", "--admin-port", str(ADMIN_PORT)),
)

# The labels that the boards read, besides job and instance.
OF_ENGINE = ("model_name", "engine")
OF_API = ("handler", "method")
# Without the suffixes of samples.
HISTOGRAMS = {
    **dict.fromkeys(
        (
            *("vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds"),
            *("vllm:request_time_per_output_token_seconds", "vllm:e2e_request_latency_seconds"),
            *("vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds"),
            *("vllm:request_decode_time_seconds", "vllm:request_prompt_tokens"),
            *("vllm:request_generation_tokens", "vllm:request_max_num_generation_tokens"),
            *("vllm:request_prefill_kv_computed_tokens", "vllm:iteration_tokens_total"),
        ),
        OF_ENGINE,
    ),
    "http_request_duration_seconds": OF_API,
}
COUNTERS = {
    **dict.fromkeys(
        (
            *("vllm:prompt_tokens", "vllm:prompt_tokens_cached", "vllm:generation_tokens"),
            *("vllm:num_preemptions", "vllm:prefix_cache_queries", "vllm:prefix_cache_hits"),
        ),
        OF_ENGINE,
    ),
    "vllm:request_success": (*OF_ENGINE, "finished_reason"),
    "vllm:prompt_tokens_by_source": (*OF_ENGINE, "source"),
    "vllm:prompt_tokens_cached_by_source": (*OF_ENGINE, "source"),
    "http_requests": (*OF_API, "status"),
    "process_cpu_seconds": (),
}
GAUGES: dict[str, tuple[str, ...]] = {
    "vllm:num_requests_running": OF_ENGINE,
    "vllm:num_requests_waiting": OF_ENGINE,
    "vllm:num_requests_waiting_by_reason": (*OF_ENGINE, "reason"),
    "vllm:kv_cache_usage_perc": OF_ENGINE,
    "vllm:engine_sleep_state": (*OF_ENGINE, "sleep_state"),
    "vllm:cache_config_info": ("engine", "num_gpu_blocks", "block_size"),
    **dict.fromkeys(
        (
            *("process_start_time_seconds", "process_resident_memory_bytes"),
            *("process_open_fds", "process_max_fds"),
        ),
        (),
    ),
}

_DRAFTS = "Quire has no speculative decoding"
_TRANSFER = "Quire loads no KV cache from elsewhere"
_OFFLOAD = "Quire's KV cache has one tier"
_RESIDENCY = "Quire does not time the life of a KV-cache block"
_SLEEP = "Quire has no sleep mode, and takes no weights while it runs"
_ESTIMATES = "Quire does not estimate operations or memory traffic"
ABSENT = {
    **dict.fromkeys(
        (
            *("vllm:spec_decode_num_drafts", "vllm:spec_decode_num_draft_tokens"),
            *("vllm:spec_decode_num_accepted_tokens",),
            *("vllm:spec_decode_num_accepted_tokens_per_pos",),
        ),
        _DRAFTS,
    ),
    **dict.fromkeys(
        (
            *("vllm:external_prefix_cache_queries", "vllm:external_prefix_cache_hits"),
            *("vllm:num_requests_kv_fetch_by_stage", "vllm:nixl_xfer_time_seconds"),
            *("vllm:nixl_bytes_transferred", "vllm:nixl_post_time_seconds"),
            *("vllm:nixl_num_descriptors", "vllm:nixl_num_failed_transfers"),
            *("vllm:nixl_num_failed_notifications", "vllm:nixl_num_kv_expired_reqs"),
            *("vllm:nixl_num_notifications_after_expiry",),
        ),
        _TRANSFER,
    ),
    **dict.fromkeys(
        (
            *("vllm:kv_offload_load_bytes", "vllm:kv_offload_load_time"),
            *("vllm:kv_offload_load_size", "vllm:kv_offload_store_bytes"),
            *("vllm:kv_offload_store_time", "vllm:kv_offload_store_size"),
            *("vllm:kv_offload_lookup_sync_delay_seconds",),
            *("vllm:kv_offload_lookup_async_delay_seconds",),
            *("vllm:kv_offload_cpu_cache_usage_perc", "vllm:kv_offload_cpu_cache_read_usage_perc"),
            *("vllm:kv_offload_cpu_cache_write_usage_perc",),
            *("vllm:kv_offload_allocation_failure", "vllm:kv_offload_stores_skipped"),
            *("vllm:simple_kv_offload_save_outcomes", "vllm:simple_kv_offload_load_blocks"),
            *("vllm:simple_kv_offload_used_blocks", "vllm:simple_kv_offload_pending_store_blocks"),
        ),
        _OFFLOAD,
    ),
    **dict.fromkeys(
        (
            *("vllm:kv_block_lifetime_seconds", "vllm:kv_block_idle_before_evict_seconds"),
            *("vllm:kv_block_reuse_gap_seconds",),
        ),
        _RESIDENCY,
    ),
    **dict.fromkeys(
        (
            *("vllm:sleep_mode_operation_duration_seconds",),
            *("vllm:rl_weight_update_operation_duration_seconds",),
        ),
        _SLEEP,
    ),
    **dict.fromkeys(
        (
            *("vllm:estimated_flops_per_gpu", "vllm:estimated_read_bytes_per_gpu"),
            *("vllm:estimated_write_bytes_per_gpu",),
        ),
        _ESTIMATES,
    ),
    "vllm:mm_cache_queries": "Quire takes no images or sound",
    "vllm:mm_cache_hits": "Quire takes no images or sound",
    "vllm:lora_requests_info": "Quire serves no LoRA adapters",
}
# The label values that the boards name.
VALUES = (
    *(("vllm:num_requests_waiting_by_reason", "reason", each) for each in ("capacity", "deferred")),
    ("vllm:prompt_tokens_by_source_total", "source", "local_compute"),
    ("vllm:prompt_tokens_by_source_total", "source", "local_cache_hit"),
    ("vllm:request_success_total", "finished_reason", "error"),
    ("vllm:engine_sleep_state", "sleep_state", "awake"),
    ("vllm:engine_sleep_state", "sleep_state", "discard_all"),
    ("http_requests_total", "status", "5xx"),
)
ABSENT_VALUES = (("vllm:prompt_tokens_by_source_total", "source", "external_kv_transfer"),)
# The objectives that the boards offer must be bounds.
OBJECTIVES = {
    "vllm:time_to_first_token_seconds": (
        *("0.1", "0.25", "0.5", "0.75", "1.0", "2.5", "5.0", "10.0"),
    ),
    "vllm:request_time_per_output_token_seconds": (
        *("0.025", "0.05", "0.075", "0.1", "0.15", "0.2", "0.3", "0.5"),
    ),
}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with (
        QuireServer(MODEL, *ARGUMENTS) as server,
        loaded(server, streams=8),
        prometheus_scraping(ADMIN_PORT, tmp_path_factory.mktemp("prometheus")) as url,
    ):
        hits = "vllm:prompt_tokens_cached_by_source_total > 0"
        until(lambda: results(url, hits), 60, "a prefix found in the cache")
        yield url


def answers(url: str, expr: str) -> Callable[[], bool]:
    return lambda: any(each["value"][1] != "NaN" for each in results(url, expr))


def rate(sample: str, by: str = "", **labels: str) -> str:
    has_model = sample.startswith("vllm:")
    matchers = ['job=~".*"', 'instance=~".*"', *(['model_name=~".*"'] if has_model else [])]
    matchers += [f'{name}="{value}"' for name, value in labels.items()]
    return f"sum {by} (rate({sample}{{{', '.join(matchers)}}}[40s]))"


def mean(name: str, by: str = "") -> str:
    return f"{rate(f'{name}_sum', by)} / ({rate(f'{name}_count', by)} > 0)"


def by_labels(name: str, labels: tuple[str, ...]) -> Iterator[str]:
    """Yield the ways in which boards read a metric."""
    by = f"by ({', '.join((*labels, 'instance'))})"
    if name in HISTOGRAMS:
        yield f"histogram_quantile(0.95, {rate(f'{name}_bucket', 'by (le, instance)')})"
        yield f"sum by (le) (increase({name}_bucket[40s]))"
        yield mean(name, by)
    elif name in COUNTERS:
        yield rate(f"{name}_total", by)
        yield f"increase({name}_total[40s])"
    else:
        yield f"max {by} ({name})"
        yield f"sum {by} (last_over_time({name}[40s]))"


PRESENT = {**HISTOGRAMS, **COUNTERS, **GAUGES}


@pytest.mark.parametrize("name", PRESENT)
def test_a_metric_that_quire_has_answers(name: str, prometheus: str) -> None:
    for expr in by_labels(name, PRESENT[name]):
        until(answers(prometheus, expr), 30, expr)


@pytest.mark.parametrize("name", PRESENT)
def test_its_series_have_the_labels_that_the_boards_read(name: str, prometheus: str) -> None:
    suffix = "_count" if name in HISTOGRAMS else "_total" if name in COUNTERS else ""
    series = [each["metric"] for each in results(prometheus, name + suffix)]
    assert series
    assert all(set(PRESENT[name]) <= set(labels) for labels in series)


@pytest.mark.parametrize("name", ABSENT)
def test_what_quire_has_no_fact_for_is_absent(name: str, prometheus: str) -> None:
    assert results(prometheus, f'{{__name__=~"{name}(_total|_bucket|_sum|_count)?"}}') == []


@pytest.mark.parametrize(("sample", "label", "value"), VALUES)
def test_label_values_are_vllms(sample: str, label: str, value: str, prometheus: str) -> None:
    until(answers(prometheus, f'sum({sample}{{{label}="{value}"}})'), 30, value)


@pytest.mark.parametrize(("sample", "label", "value"), ABSENT_VALUES)
def test_what_quire_does_not_do_has_no_value(
    sample: str, label: str, value: str, prometheus: str
) -> None:
    assert results(prometheus, f'{sample}{{{label}="{value}"}}') == []


@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives_are_bounds(name: str, prometheus: str) -> None:
    for bound in OBJECTIVES[name]:
        share = f"{rate(f'{name}_bucket', le=bound)} / ({rate(f'{name}_count')} > 0)"
        until(answers(prometheus, share), 30, share)


# Queries that join metrics.
JOINED = (
    f"({rate('http_requests_total', status='5xx')} or vector(0))"
    f" / ({rate('http_requests_total')} > 0)",
    f"{rate('vllm:request_success_total', 'by (finished_reason)')}"
    f" / ignoring (finished_reason) group_left () ({rate('vllm:request_success_total')} > 0)",
    f"{rate('vllm:prefix_cache_hits_total')} / ({rate('vllm:prefix_cache_queries_total')} > 0)",
    f"{rate('vllm:prompt_tokens_cached_total')} / ({rate('vllm:prompt_tokens_total')} > 0)",
    f"{rate('vllm:generation_tokens_total')}"
    " / (sum(avg_over_time(vllm:num_requests_running[40s])) > 0)"
    " and on () count(vllm:num_requests_running)",
    "max by (model_name, instance) ((time() - process_start_time_seconds) * on (job, instance)"
    " group_left (model_name) group by (job, instance, model_name) (vllm:num_requests_running))",
    'sum by (instance) (process_open_fds{job="quire"}) / sum by (instance) (process_max_fds)',
)


@pytest.mark.parametrize("expr", JOINED)
def test_metrics_can_be_joined(expr: str, prometheus: str) -> None:
    until(answers(prometheus, expr), 30, expr)


def test_a_ready_server_is_awake_and_none_has_more_than_one_answer(prometheus: str) -> None:
    """The status board shows a server that has no such series as down."""
    (series,) = results(prometheus, 'vllm:engine_sleep_state{sleep_state="awake"}')
    assert float(series["value"][1]) == 1
    assert query(prometheus, 'sum(vllm:engine_sleep_state{sleep_state!="awake"})') == 0


def test_figures_of_both_names_are_equal(prometheus: str) -> None:
    """An alias reads the metric that it should."""
    for theirs, ours in (
        ("vllm:prompt_tokens_cached_by_source_total", 'quire_prompt_tokens_total{source="cached"}'),
        (
            "vllm:request_time_per_output_token_seconds_count",
            "quire_time_per_output_token_seconds_count",
        ),
        ("vllm:request_max_num_generation_tokens_sum", "quire_request_longest_choice_tokens_sum"),
        ("vllm:request_prefill_kv_computed_tokens_sum", "quire_request_uncached_tokens_sum"),
    ):
        until(equal(prometheus, f"sum({theirs})", f"sum({ours})"), 30, theirs)


def equal(url: str, first: str, second: str) -> Callable[[], bool]:
    """A request may end between two pieces of a page."""
    return lambda: bool(results(url, f"({first} > 0) == {second}"))


def test_every_alias_is_in_the_table_once() -> None:
    listed = [*HISTOGRAMS, *(f"{name}_total" for name in COUNTERS), *GAUGES]
    names = {alias.name for alias in VLLM_ALIASES}
    ours = {name for name in listed if not name.startswith("process_")}
    # Not on vLLM's boards, but of use to others.
    assert names - ours == {"vllm:request_num_preemptions"}
    assert ours <= names
    assert not set(ABSENT) & set(PRESENT)
    assert all(re.fullmatch(r"vllm:\w+", name) and reason for name, reason in ABSENT.items())
