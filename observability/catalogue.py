"""Every metric of Quire, declared once.

Code, the docs table (docs/metrics.md), the dashboard and the chart's rules all read this module.
``observability.outcomes`` has the words that metrics, spans and log lines share, ``schema`` the
spans and the request's log line. All three import only the standard library.

Label values are closed sets wherever they can be: such series exist at 0 from the start, so that
``increase()`` sees the first event. A label without values here gets them at run time. ``model``
only ever holds names the server itself serves.
"""

from __future__ import annotations

from observability.buckets import (
    INTER_TOKEN_SECONDS,
    LATENCY_SECONDS,
    PHASE_SECONDS_BOUNDS,
    PREEMPTION_COUNTS,
    ROUTE_SECONDS_BOUNDS,
    SEQUENCE_COUNTS,
    STEP_SECONDS_BOUNDS,
    TOKEN_COUNTS,
)
from observability.connection_metrics import CONNECTION_METRICS
from observability.metric_kinds import Combined, Label, Metric, MetricKind, Scope, Total
from observability.outcomes import (
    CONDITIONS,
    OUTCOMES,
    PREFIX_MISS_REASONS,
    ROUTES,
    WAITING_REASONS,
)
from observability.phases import PHASES
from observability.queue_metrics import QUEUE_METRICS
from observability.store_metrics import STORE_METRICS

OTHER_MODEL = "other"
"""The ``model`` label of requests that name no model this server serves."""

OTHER_KEY = "other"
"""The ``key`` label of requests without an API key."""

LOAD_TEST_KEY = "loadtest"
"""The ``key`` label of requests that the server sends to itself in a load run."""

MODEL = Label("model")
KEY = Label("key", rest=OTHER_KEY)  # the aliases of the configured keys, and LOAD_TEST_KEY
ROUTE = Label("route", ROUTES)
OUTCOME = Label("outcome", tuple(outcome.name for outcome in OUTCOMES))

# --- engine: state and work -------------------------------------------------------------------

SEQUENCES_RUNNING = Metric(
    "quire_sequences_running",
    MetricKind.GAUGE,
    Scope.ENGINE,
    "Sequences in the running batch after the last engine step.",
    (MODEL,),
    combined=Combined.ANY,
)
SEQUENCES_WAITING = Metric(
    "quire_sequences_waiting",
    MetricKind.GAUGE,
    Scope.ENGINE,
    "Sequences in the engine's queue, by what keeps its head from running.",
    (MODEL, Label("reason", tuple(WAITING_REASONS))),
    combined=Combined.ANY,
)
KV_BLOCKS = Metric(
    "quire_kv_blocks",
    MetricKind.GAUGE,
    Scope.ENGINE,
    "KV-cache blocks by state: free, cached (reusable prefix, not in use), active (in use).",
    (MODEL, Label("state", ("free", "cached", "active"))),
    combined=Combined.ANY,
)
KV_USAGE_RATIO = Metric(
    "quire_kv_usage_ratio",
    MetricKind.GAUGE,
    Scope.ENGINE,
    "Share of KV-cache blocks held by running sequences, 0 to 1.",
    (MODEL,),
    combined=Combined.ANY,
)
PROMPT_TOKENS = Metric(
    "quire_prompt_tokens_total",
    MetricKind.COUNTER,
    Scope.ENGINE,
    "Prompt tokens admitted, by source: computed by the model, or cached (prefix reuse). "
    "Moves during a request.",
    (MODEL, Label("source", ("computed", "cached"))),
    totals=(Total("prompt_tokens_computed", "computed"), Total("prompt_tokens_cached", "cached")),
    combined=Combined.ANY,
)
PREFIX_MISS_TOKENS = Metric(
    "quire_prefix_miss_tokens_total",
    MetricKind.COUNTER,
    Scope.ENGINE,
    "Prompt tokens not found in the prefix cache at their sequence's first admission, by reason.",
    (MODEL, Label("reason", tuple(PREFIX_MISS_REASONS))),
    totals=tuple(Total(f"prefix_missed_{reason}", reason) for reason in PREFIX_MISS_REASONS),
    combined=Combined.ANY,
)
RECOMPUTED_TOKENS = Metric(
    "quire_recomputed_tokens_total",
    MetricKind.COUNTER,
    Scope.ENGINE,
    "Tokens computed again after a preemption.",
    (MODEL,),
    totals=(Total("tokens_recomputed"),),
    combined=Combined.ANY,
)
GENERATED_TOKENS = Metric(
    "quire_generated_tokens_total",
    MetricKind.COUNTER,
    Scope.ENGINE,
    "Tokens sampled. Moves during a request.",
    (MODEL,),
    totals=(Total("tokens_generated"),),
    combined=Combined.ANY,
)
PREEMPTIONS = Metric(
    "quire_preemptions_total",
    MetricKind.COUNTER,
    Scope.ENGINE,
    "Running sequences sent back to the queue for lack of KV-cache blocks.",
    (MODEL,),
    totals=(Total("preemptions"),),
    combined=Combined.ANY,
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
    "Grammars of constrained sequences: compiled, cached, or failed (the sequence's error).",
    (MODEL, Label("result", ("compiled", "cached", "failed"))),
    totals=(
        Total("grammars_compiled", "compiled"),
        Total("grammars_cached", "cached"),
        Total("grammars_failed", "failed"),
    ),
    combined=Combined.ANY,
)
GRAMMAR_SECONDS = Metric(
    "quire_grammar_seconds_total",
    MetricKind.COUNTER,
    Scope.ENGINE,
    "Time spent on grammars, in parallel with engine steps: compiling them, and computing which "
    "tokens they allow next (mask).",
    (MODEL, Label("work", ("compile", "mask"))),
    totals=(Total("grammar_compile_seconds", "compile"), Total("grammar_mask_seconds", "mask")),
    combined=Combined.ANY,
)
STEP_SECONDS = Metric(
    "quire_step_seconds",
    MetricKind.HISTOGRAM,
    Scope.ENGINE,
    "Duration of one engine step (schedule, forward, sample), by what it computed.",
    (MODEL, Label("phase", ("prefill", "decode", "mixed"))),
    STEP_SECONDS_BOUNDS,
    bulk=True,
)
STEP_TOKENS = Metric(
    "quire_step_tokens",
    MetricKind.HISTOGRAM,
    Scope.ENGINE,
    "Tokens computed in one step.",
    (MODEL,),
    TOKEN_COUNTS,
    bulk=True,
)
STEP_SEQUENCES = Metric(
    "quire_step_sequences",
    MetricKind.HISTOGRAM,
    Scope.ENGINE,
    "Sequences in one step.",
    (MODEL,),
    SEQUENCE_COUNTS,
    bulk=True,
)
ENGINE_LAST_MESSAGE = Metric(
    "quire_engine_last_message_timestamp_seconds",
    MetricKind.GAUGE,
    Scope.ENGINE,
    "Unix time of the engine's last message.",
    (MODEL,),
    combined=Combined.ANY,
)
ENGINE_READY = Metric(
    "quire_engine_ready",
    MetricKind.GAUGE,
    Scope.ENGINE,
    "1 while /health reports the engine as ok (whether or not the server is draining), else 0.",
    (MODEL,),
    combined=Combined.ANY,
)
ENGINES = Metric(
    "quire_engines",
    MetricKind.GAUGE,
    Scope.ENGINE,
    "Engines by their state. One that is ok is loaded and not silent, see /health.",
    (MODEL, Label("state", ("ok", "silent", "loading", "lost", "failing"))),
    combined=Combined.ANY,
)
ENGINE_SILENCE_SECONDS = Metric(
    "quire_engine_silence_seconds",
    MetricKind.GAUGE,
    Scope.ENGINE,
    "Time since the engine's last message. A healthy engine sends one at least every two seconds, "
    "also during a long step. No series before the first.",
    (MODEL,),
    combined=Combined.ANY,
)
OLDEST_WAITING_SECONDS = Metric(
    "quire_oldest_waiting_seconds",
    MetricKind.GAUGE,
    Scope.ENGINE,
    "How long the oldest waiting sequence has waited for an engine to run it; 0 if none is "
    "waiting.",
    (MODEL,),
    combined=Combined.MAX,
)
LONGEST_GAP_SECONDS = Metric(
    "quire_longest_gap_seconds",
    MetricKind.GAUGE,
    Scope.ENGINE,
    "The longest time since the last token, over sequences that have begun to generate and have "
    "not ended; 0 if there are no such sequences.",
    (MODEL,),
    combined=Combined.MAX,
)
PREDICTED_WAIT_SECONDS = Metric(
    "quire_predicted_wait_seconds",
    MetricKind.GAUGE,
    Scope.ENGINE,
    "Time until the sequences now waiting have started, at the pace at which others that had to "
    "wait have started in the last 30 seconds. No series while some wait and fewer than two have "
    "started in that time.",
    (MODEL,),
    combined=Combined.MAX,
)
ENGINE_LOAD_SECONDS = Metric(
    "quire_engine_load_seconds",
    MetricKind.GAUGE,
    Scope.ENGINE,
    "Time the engine took to load its model.",
    (MODEL,),
    combined=Combined.ANY,
)

# --- requests: seen from the HTTP side ----------------------------------------------------------

REQUESTS_RECEIVED = Metric(
    "quire_requests_received_total",
    MetricKind.COUNTER,
    Scope.PROCESS,
    "Requests whose headers were read. Route none: no route matches the path or method.",
    (ROUTE,),
)
REQUESTS = Metric(
    "quire_requests_total",
    MetricKind.COUNTER,
    Scope.REQUEST,
    "Requests by how they ended; each request is counted exactly once.",
    (MODEL, ROUTE, OUTCOME),
    on_use=True,
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
    "From receipt of the request to its first generated token reaching the response.",
    (MODEL,),
    LATENCY_SECONDS,
)
INTER_TOKEN_LATENCY = Metric(
    "quire_inter_token_latency_seconds",
    MetricKind.HISTOGRAM,
    Scope.ENGINE,
    "Gap between consecutive tokens of a sequence; every gap is an observation.",
    (MODEL,),
    INTER_TOKEN_SECONDS,
    bulk=True,
)
TIME_PER_OUTPUT_TOKEN = Metric(
    "quire_time_per_output_token_seconds",
    MetricKind.HISTOGRAM,
    Scope.ENGINE,
    "Mean time between the tokens of a request (TPOT), of requests with a choice of two or more.",
    (MODEL,),
    INTER_TOKEN_SECONDS,
)
PHASE_SECONDS = Metric(
    "quire_phase_seconds",
    MetricKind.HISTOGRAM,
    Scope.MODEL,
    "Time a request spent in each phase that it reached; see the table of phases. A phase that was "
    "cut short counts up to the cut.",
    (MODEL, Label("phase", tuple(phase.name for phase in PHASES))),
    PHASE_SECONDS_BOUNDS,
)
E2E_SECONDS = Metric(
    "quire_request_seconds",
    MetricKind.HISTOGRAM,
    Scope.REQUEST,
    "From receipt of the request to its end, whatever the outcome.",
    (MODEL,),
    LATENCY_SECONDS,
)
ROUTE_SECONDS = Metric(
    "quire_route_seconds",
    MetricKind.HISTOGRAM,
    Scope.PROCESS,
    "From receipt of the request to its end, whatever the outcome, by API.",
    (ROUTE,),
    ROUTE_SECONDS_BOUNDS,
    on_use=True,
)
REQUEST_PROMPT_TOKENS = Metric(
    "quire_request_prompt_tokens",
    MetricKind.HISTOGRAM,
    Scope.MODEL,
    "Prompt tokens of a request.",
    (MODEL,),
    TOKEN_COUNTS,
)
REQUEST_UNCACHED_TOKENS = Metric(
    "quire_request_uncached_tokens",
    MetricKind.HISTOGRAM,
    Scope.ENGINE,
    "Prompt tokens of a request that were not in the prefix cache. Only if the engine ran it.",
    (MODEL,),
    TOKEN_COUNTS,
)
REQUEST_GENERATED_TOKENS = Metric(
    "quire_request_generated_tokens",
    MetricKind.HISTOGRAM,
    Scope.MODEL,
    "Generated tokens of a request, all its choices together.",
    (MODEL,),
    TOKEN_COUNTS,
)
REQUEST_LONGEST_CHOICE = Metric(
    "quire_request_longest_choice_tokens",
    MetricKind.HISTOGRAM,
    Scope.ENGINE,
    "Generated tokens of a request's longest choice.",
    (MODEL,),
    TOKEN_COUNTS,
)
KEY_TOKENS = Metric(
    "quire_key_tokens_total",
    MetricKind.COUNTER,
    Scope.PROCESS,
    "Tokens of ended and aborted requests by API key (its alias; other: no key, or one of the "
    "store or the keys file; loadtest: load runs): prompt tokens that were computed, prompt "
    "tokens that were cached, and generated ones.",
    (KEY, Label("kind", ("prompt", "cached", "output"))),
)
REQUEST_PREEMPTIONS = Metric(
    "quire_request_preemptions",
    MetricKind.HISTOGRAM,
    Scope.MODEL,
    "Preemptions of a request, all its sequences together.",
    (MODEL,),
    PREEMPTION_COUNTS,
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
    "CPU time that the event loop's thread used between two samples, taken about every 20 ms while "
    "requests are running.",
    (),
    (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
    bulk=True,
)
LIMITED_SECONDS = Metric(
    "quire_limited_seconds_total",
    MetricKind.COUNTER,
    Scope.PROCESS,
    "Time by what limited the server, according to the admin API's verdict; the values add up to "
    "the time that an API worker was running.",
    (Label("by", tuple(CONDITIONS)),),
)
TELEMETRY_DROPPED = Metric(
    "quire_telemetry_dropped_total",
    MetricKind.COUNTER,
    Scope.PROCESS,
    "Spans, log lines and stored records lost because their reader was too slow or unreachable.",
    (Label("signal", ("spans", "log_lines", "records")),),
)
ADMIN_REQUESTS = Metric(
    "quire_admin_requests_total",
    MetricKind.COUNTER,
    Scope.PROCESS,
    "Requests to the admin API, by required scope and how they ended. No other metric counts them.",
    (
        Label("scope", ("read", "operate")),
        Label("result", ("done", "refused", "failed", "client_gone")),
    ),
)
BUILD_INFO = Metric(
    "quire_build_info",
    MetricKind.INFO,
    Scope.PROCESS,
    "Version of Quire, and the server's host name (of a pod, its name) and port.",
    (Label("version"), Label("python"), Label("server")),
)
ENGINE_INFO = Metric(
    "quire_engine_info",
    MetricKind.INFO,
    Scope.ENGINE,
    "What the engine runs: shape of the KV cache, limits, device, and how weights are quantized.",
    (
        *(MODEL, Label("dtype"), Label("device"), Label("block_size"), Label("num_kv_blocks")),
        *(Label("max_model_len"), Label("max_num_seqs"), Label("quantization")),
    ),
)

METRICS: tuple[Metric, ...] = (
    *(value for value in list(globals().values()) if isinstance(value, Metric)),
    *(*QUEUE_METRICS, *STORE_METRICS, *CONNECTION_METRICS),
)
