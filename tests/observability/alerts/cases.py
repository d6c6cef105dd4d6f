"""For each alert a state of the world in which it fires, and one in which it stays silent.

Values are in promtool's notation: ``1+2x3`` is 1, 3, 5, 7. Samples are 15 s apart unless ``every``
says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Series = Mapping[str, str]


@dataclass(frozen=True)
class Case:
    """``labels`` and ``summary``: of the alert that fires at ``at``."""

    firing: Series
    silent: Series
    at: str
    labels: Mapping[str, str]
    summary: str
    every: str = "15s"


ON = 'job="quire",instance="a",model="m"'
SERVER = {"job": "quire", "instance": "a"}
ENGINE = {**SERVER, "model": "m"}

_TTFT = "quire_time_to_first_token_seconds"
_ITL = "quire_inter_token_latency_seconds"


def _missed(metric: str, le: str, within: str, count: str) -> Series:
    return {f'{metric}_bucket{{{ON},le="{le}"}}': within, f"{metric}_count{{{ON}}}": count}


def _ended(stop: str, error: str) -> Series:
    route = 'route="chat_completions"'
    return {
        f'quire_requests_total{{{ON},{route},outcome="stop"}}': stop,
        f'quire_requests_total{{{ON},{route},outcome="error:engine"}}': error,
        # Neither counts for availability.
        f'quire_requests_total{{{ON},{route},outcome="refused:invalid"}}': "0+90x400",
        f'quire_requests_total{{{ON},{route},outcome="client_gone"}}': "0+90x400",
    }


def missed(indicator: str, misses: int, of: int) -> Series:
    """So many of all requests, or gaps between tokens, just missed their objective. ``indicator``:
    as in the alert's name."""
    within, count = f"0x20 {of - misses}", f"0x20 {of}"
    if indicator == "Ttft":
        return _missed(_TTFT, "2.0", within, count)
    if indicator == "Itl":
        return _missed(_ITL, "0.1", within, count)
    return _ended(within, f"0x20 {misses}")


def _pending(running: int, waiting: int) -> Series:
    return {
        f"quire_sequences_running{{{ON}}}": f"{running}x60",
        f'quire_sequences_waiting{{{ON},reason="slots"}}': f"{waiting}x60",
        f'quire_sequences_waiting{{{ON},reason="kv_blocks"}}': "0x60",
    }


def _budget(pace: str, share: str, window: str, hours: str, every: str) -> dict[str, Case]:
    """A fifth of requests and gaps miss their objective; a hundredth of them is within the budget
    of the first two."""
    job = {"job": "quire"}
    return {
        f"QuireTtftBudget{pace}": Case(
            _missed(_TTFT, "2.0", "0+80x400", "0+100x400"),
            _missed(_TTFT, "2.0", "0+99x400", "0+100x400"),
            hours,
            job,
            f"quire: {share} of requests got their first token later than 2 s in the last {window}",
            every,
        ),
        f"QuireItlBudget{pace}": Case(
            _missed(_ITL, "0.1", "0+80x400", "0+100x400"),
            _missed(_ITL, "0.1", "0+99x400", "0+100x400"),
            hours,
            job,
            f"quire: {share} of gaps between tokens were longer than 0.1 s in the last {window}",
            every,
        ),
        f"QuireAvailabilityBudget{pace}": Case(
            _ended("0+80x400", "0+20x400"),
            _ended("0+100x400", "0x400"),
            hours,
            job,
            f"quire: {share} of requests failed or were refused through no fault of theirs in the "
            f"last {window}",
            every,
        ),
    }


_GPU_ON = 'Hostname="n1",gpu="0"'
_XID = f"DCGM_FI_DEV_XID_ERRORS{{{_GPU_ON}}}"
_GPU_LABELS = {"Hostname": "n1", "gpu": "0"}

CASES: Mapping[str, Case] = {
    "QuireDown": Case(
        {'up{job="my-quire",instance="a"}': "0x60"},
        {'up{job="my-quire",instance="a"}': "1x60", 'up{job="nodes",instance="b"}': "0x60"},
        "5m",
        {"job": "my-quire", "instance": "a"},
        "a has not answered scrapes for 2 minutes",
    ),
    "QuireAbsent": Case(
        {'up{job="nodes",instance="b"}': "1x60"},
        {'quire_build_info{job="quire",instance="a",version="1"}': "1x60"},
        "10m",
        {},
        "no Quire server has been scraped for 5 minutes",
    ),
    "QuireNotReady": Case(
        {
            f"quire_engine_ready{{{ON}}}": "1x4 0x60",
            # It dies a few times, loading in between, before it counts as failing.
            f'quire_engines{{{ON},state="lost"}}': "0x4 1x4 0 1x4 0x60",
            f'quire_engines{{{ON},state="loading"}}': "0x9 1 0x60",
            f'quire_engines{{{ON},state="failing"}}': "0x14 1x60",
        },
        # A restart, and a load of a quarter of an hour.
        {
            f"quire_engine_ready{{{ON}}}": "1x4 0x60",
            f'quire_engines{{{ON},state="lost"}}': "0x4 1x4 0x60",
            f'quire_engines{{{ON},state="loading"}}': "0x9 1x60",
            f'quire_engines{{{ON},state="failing"}}': "0x70",
        },
        "10m",
        ENGINE,
        "a has had no engine that is ready or loading for 5 minutes",
    ),
    "QuireLoadingLong": Case(
        # Engines die while they load.
        {f"quire_engine_ready{{{ON}}}": "0x60"},
        {f"quire_engine_ready{{{ON}}}": "0x40 1 0x20"},
        "50m",
        ENGINE,
        "a has had no engine that is ready for 45 minutes",
        "1m",
    ),
    "QuireEngineSilent": Case(
        {**_pending(4, 0), f"quire_engine_silence_seconds{{{ON}}}": "0+15x60"},
        {**_pending(0, 0), f"quire_engine_silence_seconds{{{ON}}}": "0+15x60"},
        "30s",
        ENGINE,
        "no message from the engine of a for 30s with requests in flight",
    ),
    "QuireEngineStuck": Case(
        {**_pending(4, 3), f'quire_step_seconds_count{{{ON},phase="decode"}}': "100x60"},
        {**_pending(4, 3), f'quire_step_seconds_count{{{ON},phase="decode"}}': "0+100x60"},
        "5m",
        ENGINE,
        "a holds 7 sequences and has run no step for 2 minutes",
    ),
    "QuireEngineMissing": Case(
        {
            f'quire_engines{{{ON},state="ok"}}': "1x80",
            # The one that is missing is replaced now and then.
            f'quire_engines{{{ON},state="lost"}}': "1x30 0 1x50",
            f'quire_engines{{{ON},state="loading"}}': "0x30 1 0x50",
        },
        # Two shorter outages; then no engine is left, which other alerts say.
        {
            f'quire_engines{{{ON},state="ok"}}': "1x35 2 1x20 0x30",
            f'quire_engines{{{ON},state="lost"}}': "1x35 0 1x20 2x30",
        },
        "15m",
        ENGINE,
        "a has had 1 of its engines not ready for 10 minutes",
    ),
    **_budget("Fast", "20%", "1h", "65m", "1m"),
    **_budget("Medium", "20%", "6h", "7h", "5m"),
    **_budget("Slow", "20%", "1d", "25h", "5m"),
    "QuireQueueOld": Case(
        {f"quire_oldest_waiting_seconds{{{ON}}}": "0 3.5x60"},
        # Long waits, but not for two minutes without a pause.
        {f"quire_oldest_waiting_seconds{{{ON}}}": "9 9 9 9 0 9 9 9 9 0 9 9 9 9 0 9 9 9 9 0 9"},
        "5m",
        ENGINE,
        "the oldest sequence on a has waited 3.5s",
    ),
    "QuireKvSaturated": Case(
        {
            f"quire_kv_usage_ratio{{{ON}}}": "0.97 0.91x60",
            f'quire_sequences_waiting{{{ON},reason="kv_blocks"}}': "3 0x60",
            f"quire_preemptions_total{{{ON}}}": "0+2x60",
        },
        # Full, but nothing waits for it.
        {
            f"quire_kv_usage_ratio{{{ON}}}": "0.99x60",
            f'quire_sequences_waiting{{{ON},reason="kv_blocks"}}': "0x60",
            f"quire_preemptions_total{{{ON}}}": "7x60",
        },
        "5m",
        ENGINE,
        "the KV cache of a has been at least 91% full for 2 minutes, and sequences wait for it",
    ),
    "QuireShedding": Case(
        {
            f'quire_requests_total{{{ON},outcome="refused:overloaded"}}': "0+30x60",
            'quire_requests_received_total{job="quire",instance="a",route="messages"}': "0+60x60",
        },
        {
            f'quire_requests_total{{{ON},outcome="refused:overloaded"}}': "5x60",
            'quire_requests_received_total{job="quire",instance="a",route="messages"}': "0+60x60",
        },
        "10m",
        SERVER,
        "a is overloaded and refuses 50% of requests",
    ),
    "QuirePreemptionWaste": Case(
        {
            f'quire_prompt_tokens_total{{{ON},source="computed"}}': "0+60x120",
            f"quire_generated_tokens_total{{{ON}}}": "0+20x120",
            f"quire_recomputed_tokens_total{{{ON}}}": "0+20x120",
        },
        {
            f'quire_prompt_tokens_total{{{ON},source="computed"}}': "0+60x120",
            f"quire_generated_tokens_total{{{ON}}}": "0+38x120",
            f"quire_recomputed_tokens_total{{{ON}}}": "0+2x120",
        },
        "25m",
        ENGINE,
        "a computes 20% of its tokens a second time",
    ),
    "QuireHitRateDrop": Case(
        {
            f'quire_prompt_tokens_total{{{ON},source="computed"}}': "0+1000x300 300000+4000x200",
            f'quire_prompt_tokens_total{{{ON},source="cached"}}': "0+3000x300 900000+0x200",
        },
        {
            f'quire_prompt_tokens_total{{{ON},source="computed"}}': "0+1000x500",
            f'quire_prompt_tokens_total{{{ON},source="cached"}}': "0+3000x500",
        },
        "7h",
        {"job": "quire", "model": "m"},
        "quire: only 0% of prompt tokens are cached, less than half of the day's mean",
        "1m",
    ),
    "QuireStreamsStalled": Case(
        {f"quire_longest_gap_seconds{{{ON}}}": "0 20x60"},
        {f"quire_longest_gap_seconds{{{ON}}}": "0 20 20 0.1 20 20 0.1x60"},
        "5m",
        ENGINE,
        "a stream on a has had no token for 20s",
    ),
    "QuireLoopLag": Case(
        {
            'quire_event_loop_lag_seconds_bucket{job="quire",instance="a",le="0.1"}': "0x120",
            'quire_event_loop_lag_seconds_bucket{job="quire",instance="a",le="0.25"}': "0+60x120",
            'quire_event_loop_lag_seconds_bucket{job="quire",instance="a",le="+Inf"}': "0+60x120",
        },
        {
            'quire_event_loop_lag_seconds_bucket{job="quire",instance="a",le="0.001"}': "0+60x120",
            'quire_event_loop_lag_seconds_bucket{job="quire",instance="a",le="+Inf"}': "0+60x120",
        },
        "20m",
        SERVER,
        "the event loop of a wakes up 248.5ms late (99th percentile)",
    ),
    "QuireTelemetryDropped": Case(
        {'quire_telemetry_dropped_total{job="quire",instance="a",signal="spans"}': "0x20 40x60"},
        {'quire_telemetry_dropped_total{job="quire",instance="a",signal="spans"}': "40x80"},
        "10m",
        {**SERVER, "signal": "spans"},
        "a lost 40 spans in 10 minutes",
    ),
    "QuireWorkerRestarts": Case(
        {
            'process_start_time_seconds{job="quire",instance="a"}': "1x10 2x10 3x10 4x60",
            'quire_build_info{job="quire",instance="a"}': "1x90",
        },
        # Another program restarts, this one once.
        {
            'process_start_time_seconds{job="nodes",instance="a"}': "1x10 2x10 3x10 4x60",
            'process_start_time_seconds{job="quire",instance="a"}': "1x10 2x80",
            'quire_build_info{job="quire",instance="a"}': "1x90",
        },
        "15m",
        SERVER,
        "the API worker of a started 3 times in 30 minutes",
    ),
    "QuireStoreUnavailable": Case(
        {
            'quire_store_unavailable{job="quire",instance="a",use="read"}': "0x80",
            'quire_store_unavailable{job="quire",instance="a",use="write"}': "0x10 1x70",
            'quire_requests_total{job="quire",instance="a",outcome="stop"}': "0+15x80",
        },
        {
            # Unavailable for a moment, and long ago.
            'quire_store_unavailable{job="quire",instance="a",use="write"}': "0 1x5 0x60",
            'quire_responses_not_stored_total{job="quire",instance="a"}': "3x60",
            'quire_requests_total{job="quire",instance="a",outcome="refused:store"}': "3x60",
            'quire_requests_total{job="quire",instance="a",outcome="stop"}': "0+15x60",
        },
        "10m",
        SERVER,
        "a cannot use its store, or has failed to store responses",
    ),
    "QuireGpuXid": Case(
        {_XID: "0x20 79x20"},
        {_XID: "79x60"},  # of long ago
        "8m",
        _GPU_LABELS,
        "GPU 0 of n1 reports Xid 79",
    ),
    "QuireGpuXidKernel": Case(
        {_XID: "0x20 31x20"},
        {_XID: "0x20 79x20"},
        "8m",
        _GPU_LABELS,
        "GPU 0 of n1 reports Xid 31: a kernel failed",
    ),
}
