"""Every metric of Quire, declared once.

Code, the docs table (docs/metrics.md), the dashboard and the chart's rules all read this module;
a test fails when one of them drifts. ``observability.outcomes`` has the words that metrics, spans
and log lines share, ``observability.schema`` the spans and the request's log line. All three import
nothing outside the standard library, so that any room may read them.

Label values are closed sets wherever they can be: such series exist at 0 from the start, so that
``increase()`` sees the first event. ``model`` only ever holds names the server itself serves.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from observability.outcomes import OUTCOMES, PREFIX_MISS_REASONS, ROUTES, WAITING_REASONS


class MetricKind(enum.StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


class Scope(enum.StrEnum):
    """Whose numbers a metric holds, and so which values its label ``model`` takes."""

    PROCESS = "process"  # the API worker's: there is no such label
    ENGINE = "engine"  # the one model's, under its first name, whatever clients call it
    MODEL = "model"  # requests', under the name that each asked for
    REQUEST = "request"  # likewise, and under ``OTHER_MODEL`` where that is no name we serve


OTHER_MODEL = "other"
"""The ``model`` label of requests that name no model this server serves."""


@dataclass(frozen=True, slots=True)
class Label:
    """``values``: the closed set of values, or None for an open (but bounded) one."""

    name: str
    values: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Total:
    """A series of a counter that the engine keeps: ``field`` of ``engine.messages.EngineCounters``,
    under ``value`` of the label besides ``model``, where there is one."""

    field: str
    value: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """``name`` is complete, with unit and ``_total`` where Prometheus' naming asks for them.
    ``bulk``: observed at least at each engine step, so that one observation must cost little.
    ``totals``: where a counter's series come from, if from the engine's own."""

    name: str
    kind: MetricKind
    scope: Scope
    help: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()
    bulk: bool = False
    totals: tuple[Total, ...] = ()


MODEL = Label("model")
ROUTE = Label("route", ROUTES)
OUTCOME = Label("outcome", tuple(outcome.name for outcome in OUTCOMES))

# Every bound that an operator is likely to set as an objective is an exact bucket bound.
_LATENCY = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75),
    *(1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
_INTER_TOKEN = (
    *(0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03),
    *(0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0),
)
_STEP = (
    *(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
)
_TOKENS = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
_SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_PREEMPTIONS = (0, 1, 2, 3, 5, 10, 20)


# --- engine: state and work -------------------------------------------------------------------

SEQUENCES_RUNNING = Metric(
    "quire_sequences_running",
    MetricKind.GAUGE,
    Scope.ENGINE,
    "Sequences in the running batch after the last engine step.",
    (MODEL,),
)
SEQUENCES_WAITING = Metric(
    "quire_sequences_waiting",
    MetricKind.GAUGE,
    Scope.ENGINE,
    "Sequences in the engine's queue, by what keeps its head from running.",
    (MODEL, Label("reason", tuple(WAITING_REASONS))),
)
KV_BLOCKS = Metric(
    "quire_kv_blocks",
    MetricKind.GAUGE,
    Scope.ENGINE,
    "KV-cache blocks by state: free, cached (reusable prefix, held by none), active (in use).",
    (MODEL, Label("state", ("free", "cached", "active"))),
)
KV_USAGE_RATIO = Metric(
    "quire_kv_usage_ratio",
    MetricKind.GAUGE,
    Scope.ENGINE,
    "Share of KV-cache blocks held by running sequences, 0 to 1.",
    (MODEL,),
)
PROMPT_TOKENS = Metric(
    "quire_prompt_tokens_total",
    MetricKind.COUNTER,
    Scope.ENGINE,
    "Prompt tokens admitted, by source: computed by the model, or cached (prefix reuse). "
    "Moves during a request.",
    (MODEL, Label("source", ("computed", "cached"))),
    totals=(Total("prompt_tokens_computed", "computed"), Total("prompt_tokens_cached", "cached")),
)
PREFIX_MISS_TOKENS = Metric(
    "quire_prefix_miss_tokens_total",
    MetricKind.COUNTER,
    Scope.ENGINE,
    "Prompt tokens that the prefix cache lacked when their sequence was first admitted, by reason.",
    (MODEL, Label("reason", tuple(PREFIX_MISS_REASONS))),
    totals=tuple(Total(f"prefix_missed_{reason}", reason) for reason in PREFIX_MISS_REASONS),
)
RECOMPUTED_TOKENS = Metric(
    "quire_recomputed_tokens_total",
    MetricKind.COUNTER,
    Scope.ENGINE,
    "Tokens computed again after a preemption.",
    (MODEL,),
    totals=(Total("tokens_recomputed"),),
)
GENERATED_TOKENS = Metric(
    "quire_generated_tokens_total",
    MetricKind.COUNTER,
    Scope.ENGINE,
    "Tokens sampled. Moves during a request.",
    (MODEL,),
    totals=(Total("tokens_generated"),),
)
PREEMPTIONS = Metric(
    "quire_preemptions_total",
    MetricKind.COUNTER,
    Scope.ENGINE,
    "Running sequences sent back to the queue for lack of KV-cache blocks.",
    (MODEL,),
    totals=(Total("preemptions"),),
)
HANDOVERS = Metric(
    "quire_handovers_total",
    MetricKind.COUNTER,
    Scope.MODEL,
    "Sequences that continued in the next engine when theirs died. Counted when the request ends.",
    (MODEL,),
)
GRAMMARS = Metric(
    "quire_grammars_total",
    MetricKind.COUNTER,
    Scope.ENGINE,
    "Grammars of constrained sequences: compiled, found compiled (cached), or failed, which ends "
    "the sequence with an error.",
    (MODEL, Label("result", ("compiled", "cached", "failed"))),
    totals=(
        Total("grammars_compiled", "compiled"),
        Total("grammars_cached", "cached"),
        Total("grammars_failed", "failed"),
    ),
)
GRAMMAR_SECONDS = Metric(
    "quire_grammar_seconds_total",
    MetricKind.COUNTER,
    Scope.ENGINE,
    "Time spent on grammars, parallel to engine steps: compiling them, and working out which "
    "tokens they allow next (mask).",
    (MODEL, Label("work", ("compile", "mask"))),
    totals=(Total("grammar_compile_seconds", "compile"), Total("grammar_mask_seconds", "mask")),
)
STEP_SECONDS = Metric(
    "quire_step_seconds",
    MetricKind.HISTOGRAM,
    Scope.ENGINE,
    "Duration of one engine step (schedule, forward, sample), by what it computed.",
    (MODEL, Label("phase", ("prefill", "decode", "mixed"))),
    _STEP,
    bulk=True,
)
STEP_TOKENS = Metric(
    "quire_step_tokens",
    MetricKind.HISTOGRAM,
    Scope.ENGINE,
    "Tokens computed in one step.",
    (MODEL,),
    _TOKENS,
    bulk=True,
)
STEP_SEQUENCES = Metric(
    "quire_step_sequences",
    MetricKind.HISTOGRAM,
    Scope.ENGINE,
    "Sequences in one step.",
    (MODEL,),
    _SEQUENCES,
    bulk=True,
)
ENGINE_LAST_MESSAGE = Metric(
    "quire_engine_last_message_timestamp_seconds",
    MetricKind.GAUGE,
    Scope.ENGINE,
    "Unix time of the engine's last step or heartbeat.",
    (MODEL,),
)
ENGINE_READY = Metric(
    "quire_engine_ready",
    MetricKind.GAUGE,
    Scope.ENGINE,
    "1 while the engine has its model loaded and answers, else 0.",
    (MODEL,),
)
ENGINE_LOAD_SECONDS = Metric(
    "quire_engine_load_seconds",
    MetricKind.GAUGE,
    Scope.ENGINE,
    "Time the engine took to load its model.",
    (MODEL,),
)

# --- requests: seen from the HTTP side ----------------------------------------------------------

REQUESTS = Metric(
    "quire_requests_total",
    MetricKind.COUNTER,
    Scope.REQUEST,
    "Requests by how they ended; each request is counted exactly once.",
    (MODEL, ROUTE, OUTCOME),
)
REQUESTS_IN_PROGRESS = Metric(
    "quire_requests_in_progress",
    MetricKind.GAUGE,
    Scope.PROCESS,
    "Requests received and not yet ended.",
    (ROUTE,),
)
TIME_TO_FIRST_TOKEN = Metric(
    "quire_time_to_first_token_seconds",
    MetricKind.HISTOGRAM,
    Scope.MODEL,
    "From receipt of the request by the HTTP server to its first generated token reaching "
    "the response.",
    (MODEL,),
    _LATENCY,
)
INTER_TOKEN_LATENCY = Metric(
    "quire_inter_token_latency_seconds",
    MetricKind.HISTOGRAM,
    Scope.ENGINE,
    "Gap between consecutive tokens of a sequence; every gap is an observation.",
    (MODEL,),
    _INTER_TOKEN,
    bulk=True,
)
QUEUE_SECONDS = Metric(
    "quire_queue_seconds",
    MetricKind.HISTOGRAM,
    Scope.MODEL,
    "From receipt of the request to its first scheduling by the engine.",
    (MODEL,),
    _LATENCY,
)
PREFILL_SECONDS = Metric(
    "quire_prefill_seconds",
    MetricKind.HISTOGRAM,
    Scope.MODEL,
    "From first scheduling to first token.",
    (MODEL,),
    _LATENCY,
)
DECODE_SECONDS = Metric(
    "quire_decode_seconds",
    MetricKind.HISTOGRAM,
    Scope.MODEL,
    "From first to last token.",
    (MODEL,),
    _LATENCY,
)
E2E_SECONDS = Metric(
    "quire_request_seconds",
    MetricKind.HISTOGRAM,
    Scope.REQUEST,
    "From receipt of the request to its end, whatever the outcome.",
    (MODEL,),
    _LATENCY,
)
REQUEST_PROMPT_TOKENS = Metric(
    "quire_request_prompt_tokens",
    MetricKind.HISTOGRAM,
    Scope.MODEL,
    "Prompt tokens of a request.",
    (MODEL,),
    _TOKENS,
)
REQUEST_GENERATED_TOKENS = Metric(
    "quire_request_generated_tokens",
    MetricKind.HISTOGRAM,
    Scope.MODEL,
    "Generated tokens of a request, all its choices together.",
    (MODEL,),
    _TOKENS,
)
REQUEST_PREEMPTIONS = Metric(
    "quire_request_preemptions",
    MetricKind.HISTOGRAM,
    Scope.MODEL,
    "Preemptions a request went through.",
    (MODEL,),
    _PREEMPTIONS,
)

# --- the server itself --------------------------------------------------------------------------

EVENT_LOOP_LAG_SECONDS = Metric(
    "quire_event_loop_lag_seconds",
    MetricKind.HISTOGRAM,
    Scope.PROCESS,
    "How late the API worker's event loop woke up, sampled.",
    (),
    (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
    bulk=True,
)
EVENT_LOOP_HOLD_SECONDS = Metric(
    "quire_event_loop_hold_seconds",
    MetricKind.HISTOGRAM,
    Scope.PROCESS,
    "CPU time that the event loop's thread used between two looks at it, which it takes about every"
    " 20 ms while requests run.",
    (),
    (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
    bulk=True,
)
TELEMETRY_DROPPED = Metric(
    "quire_telemetry_dropped_total",
    MetricKind.COUNTER,
    Scope.PROCESS,
    "Spans and log lines lost because their reader could not keep up or be reached.",
    (Label("signal", ("spans", "log_lines")),),
)
BUILD_INFO = Metric(
    "quire_build_info",
    MetricKind.INFO,
    Scope.PROCESS,
    "Version of Quire.",
    (Label("version"), Label("python")),
)
ENGINE_INFO = Metric(
    "quire_engine_info",
    MetricKind.INFO,
    Scope.ENGINE,
    "What the engine runs: shape of the KV cache, limits, device.",
    (
        MODEL,
        Label("dtype"),
        Label("device"),
        Label("block_size"),
        Label("num_kv_blocks"),
        Label("max_model_len"),
        Label("max_num_seqs"),
    ),
)

METRICS: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
