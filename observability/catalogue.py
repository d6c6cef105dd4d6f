"""Every metric, span and log field of Quire, declared once.

Code, the docs table (docs/metrics.md), the dashboard and the chart's rules all read this module;
a test fails when one of them drifts. It imports nothing outside the standard library, so that any
room may read it.

Label values are closed sets wherever they can be: such series exist at 0 from the start, so that
``increase()`` sees the first event. ``model`` only ever holds names the server itself serves.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Kind(enum.StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Label:
    """``values``: the closed set of values, or None for an open (but bounded) one."""

    name: str
    values: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Metric:
    """``name`` is complete, with unit and ``_total`` where Prometheus' naming asks for them."""

    name: str
    kind: Kind
    help: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()


# Outcomes: each request ends in exactly one of these; the same word in metric, span and log line.
OUTCOMES = (
    "stop",
    "length",
    "tool_calls",
    "client_gone",
    "client_slow",
    "deadline",
    "refused:invalid",
    "refused:unauthorized",
    "refused:not_found",
    "refused:too_large",
    "refused:loading",
    "refused:engine",
    "refused:preparation",
    "refused:draining",
    "refused:store",
    "refused:overloaded",
    "refused:crashing",
    "error:engine",
    "error:store",
    "error:shutdown",
    "error:internal",
)

ROUTES = (
    "chat_completions",
    "completions",
    "messages",
    "count_tokens",
    "responses",
    "responses_stored",
    "streams",
    "embeddings",
    "rerank",
    "score",
    "tokenize",
    "detokenize",
    "models",
    "grpc_chat",
    "grpc_generate",
    "grpc_embed",
    "grpc_models",
    "grpc_abort",
)

MODEL = Label("model")
ROUTE = Label("route", ROUTES)

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
    Kind.GAUGE,
    "Sequences in the running batch after the last engine step.",
    (MODEL,),
)
SEQUENCES_WAITING = Metric(
    "quire_sequences_waiting",
    Kind.GAUGE,
    "Sequences in the engine's queue, by what keeps its head from running.",
    (MODEL, Label("reason", ("slots", "kv_blocks", "budget", "constraint"))),
)
KV_BLOCKS = Metric(
    "quire_kv_blocks",
    Kind.GAUGE,
    "KV-cache blocks by state: free, cached (reusable prefix, held by none), active (in use).",
    (MODEL, Label("state", ("free", "cached", "active"))),
)
KV_USAGE_RATIO = Metric(
    "quire_kv_usage_ratio",
    Kind.GAUGE,
    "Share of KV-cache blocks held by running sequences, 0 to 1.",
    (MODEL,),
)
PROMPT_TOKENS = Metric(
    "quire_prompt_tokens_total",
    Kind.COUNTER,
    "Prompt tokens admitted, by source: computed by the model, or cached (prefix reuse). "
    "Moves during a request.",
    (MODEL, Label("source", ("computed", "cached"))),
)
RECOMPUTED_TOKENS = Metric(
    "quire_recomputed_tokens_total",
    Kind.COUNTER,
    "Tokens computed again after a preemption.",
    (MODEL,),
)
GENERATED_TOKENS = Metric(
    "quire_generated_tokens_total",
    Kind.COUNTER,
    "Tokens sampled. Moves during a request.",
    (MODEL,),
)
PREEMPTIONS = Metric(
    "quire_preemptions_total",
    Kind.COUNTER,
    "Running sequences sent back to the queue for lack of KV-cache blocks.",
    (MODEL,),
)
HANDOVERS = Metric(
    "quire_handovers_total",
    Kind.COUNTER,
    "Sequences that continued in the next engine when theirs died. Counted when the request ends.",
    (MODEL,),
)
GRAMMARS = Metric(
    "quire_grammars_total",
    Kind.COUNTER,
    "Grammars of constrained sequences: compiled, found compiled (cached), or failed, which ends "
    "the sequence with an error.",
    (MODEL, Label("result", ("compiled", "cached", "failed"))),
)
GRAMMAR_SECONDS = Metric(
    "quire_grammar_seconds_total",
    Kind.COUNTER,
    "Time spent on grammars, parallel to engine steps: compiling them, and working out which "
    "tokens they allow next (mask).",
    (MODEL, Label("work", ("compile", "mask"))),
)
STEP_SECONDS = Metric(
    "quire_step_seconds",
    Kind.HISTOGRAM,
    "Duration of one engine step (schedule, forward, sample), by what it computed.",
    (MODEL, Label("phase", ("prefill", "decode", "mixed"))),
    _STEP,
)
STEP_TOKENS = Metric(
    "quire_step_tokens", Kind.HISTOGRAM, "Tokens computed in one step.", (MODEL,), _TOKENS
)
STEP_SEQUENCES = Metric(
    "quire_step_sequences", Kind.HISTOGRAM, "Sequences in one step.", (MODEL,), _SEQUENCES
)
ENGINE_LAST_MESSAGE = Metric(
    "quire_engine_last_message_timestamp_seconds",
    Kind.GAUGE,
    "Unix time of the engine's last step or heartbeat.",
    (MODEL,),
)
ENGINE_READY = Metric(
    "quire_engine_ready",
    Kind.GAUGE,
    "1 while the engine has its model loaded and answers, else 0.",
    (MODEL,),
)
ENGINE_LOAD_SECONDS = Metric(
    "quire_engine_load_seconds", Kind.GAUGE, "Time the engine took to load its model.", (MODEL,)
)

# --- requests: seen from the HTTP side ----------------------------------------------------------

REQUESTS = Metric(
    "quire_requests_total",
    Kind.COUNTER,
    "Requests by how they ended; each request is counted exactly once.",
    (MODEL, ROUTE, Label("outcome", OUTCOMES)),
)
REQUESTS_IN_PROGRESS = Metric(
    "quire_requests_in_progress",
    Kind.GAUGE,
    "Requests received and not yet ended.",
    (ROUTE,),
)
TIME_TO_FIRST_TOKEN = Metric(
    "quire_time_to_first_token_seconds",
    Kind.HISTOGRAM,
    "From receipt of the request by the HTTP server to its first generated token reaching "
    "the response.",
    (MODEL,),
    _LATENCY,
)
INTER_TOKEN_LATENCY = Metric(
    "quire_inter_token_latency_seconds",
    Kind.HISTOGRAM,
    "Gap between consecutive tokens of a sequence; every gap is an observation.",
    (MODEL,),
    _INTER_TOKEN,
)
QUEUE_SECONDS = Metric(
    "quire_queue_seconds",
    Kind.HISTOGRAM,
    "From receipt of the request to its first scheduling by the engine.",
    (MODEL,),
    _LATENCY,
)
PREFILL_SECONDS = Metric(
    "quire_prefill_seconds",
    Kind.HISTOGRAM,
    "From first scheduling to first token.",
    (MODEL,),
    _LATENCY,
)
DECODE_SECONDS = Metric(
    "quire_decode_seconds", Kind.HISTOGRAM, "From first to last token.", (MODEL,), _LATENCY
)
E2E_SECONDS = Metric(
    "quire_request_seconds",
    Kind.HISTOGRAM,
    "From receipt of the request to its end, whatever the outcome.",
    (MODEL,),
    _LATENCY,
)
REQUEST_PROMPT_TOKENS = Metric(
    "quire_request_prompt_tokens", Kind.HISTOGRAM, "Prompt tokens of a request.", (MODEL,), _TOKENS
)
REQUEST_GENERATED_TOKENS = Metric(
    "quire_request_generated_tokens",
    Kind.HISTOGRAM,
    "Generated tokens of a request, all its choices together.",
    (MODEL,),
    _TOKENS,
)
REQUEST_PREEMPTIONS = Metric(
    "quire_request_preemptions",
    Kind.HISTOGRAM,
    "Preemptions a request went through.",
    (MODEL,),
    _PREEMPTIONS,
)

# --- the server itself --------------------------------------------------------------------------

EVENT_LOOP_LAG_SECONDS = Metric(
    "quire_event_loop_lag_seconds",
    Kind.HISTOGRAM,
    "How late the API worker's event loop woke up, sampled.",
    (),
    (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)
EVENT_LOOP_HOLD_SECONDS = Metric(
    "quire_event_loop_hold_seconds",
    Kind.HISTOGRAM,
    "CPU time the event loop's thread used before a timer of 20 ms fired, while requests run.",
    (),
    (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
)
TELEMETRY_DROPPED = Metric(
    "quire_telemetry_dropped_total",
    Kind.COUNTER,
    "Spans and log lines lost because their reader could not keep up or be reached.",
    (Label("signal", ("spans", "log_lines")),),
)
BUILD_INFO = Metric(
    "quire_build_info", Kind.INFO, "Version of Quire.", (Label("version"), Label("python"))
)
ENGINE_INFO = Metric(
    "quire_engine_info",
    Kind.INFO,
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


# --- spans ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Attribute:
    name: str
    help: str


@dataclass(frozen=True, slots=True)
class Span:
    """``name`` may hold ``{model}``. Spans are written after the fact from the request's record."""

    name: str
    help: str
    attributes: tuple[Attribute, ...] = field(default=())


ATTR_OPERATION = Attribute("gen_ai.operation.name", "chat, text_completion or embeddings")
ATTR_PROVIDER = Attribute("gen_ai.provider.name", "quire")
ATTR_REQUEST_MODEL = Attribute("gen_ai.request.model", "model as served")
ATTR_MAX_TOKENS = Attribute("gen_ai.request.max_tokens", "token limit in force")
ATTR_TEMPERATURE = Attribute("gen_ai.request.temperature", "sampling temperature in force")
ATTR_TOP_P = Attribute("gen_ai.request.top_p", "nucleus in force")
ATTR_STREAM = Attribute("gen_ai.request.stream", "whether the answer was streamed")
ATTR_CHOICES = Attribute("gen_ai.request.choice.count", "n")
ATTR_RESPONSE_ID = Attribute("gen_ai.response.id", "identifier in the reply")
ATTR_FINISH_REASONS = Attribute("gen_ai.response.finish_reasons", "one per choice")
ATTR_INPUT_TOKENS = Attribute("gen_ai.usage.input_tokens", "prompt tokens")
ATTR_OUTPUT_TOKENS = Attribute("gen_ai.usage.output_tokens", "generated tokens, aborted ones too")
ATTR_CACHED_TOKENS = Attribute(
    "gen_ai.usage.cache_read.input_tokens", "prompt tokens found in the prefix cache"
)
ATTR_OUTCOME = Attribute("quire.outcome", "how the request ended, one of the outcomes")
ATTR_REQUEST_ID = Attribute("quire.request_id", "the server's own request id")
ATTR_CHOICE = Attribute("quire.choice", "index of the choice a phase belongs to")
ATTR_PREEMPTIONS = Attribute("quire.preemptions", "times the sequence was preempted")
ATTR_HANDOVERS = Attribute(
    "quire.handovers", "engines that died while they had the sequence, and were outlived"
)
ATTR_ERROR_TYPE = Attribute("error.type", "outcome, when the request failed")
ATTR_HTTP_METHOD = Attribute("http.request.method", "GET, POST")
ATTR_HTTP_ROUTE = Attribute("http.route", "path template")
ATTR_HTTP_STATUS = Attribute("http.response.status_code", "status sent")
ATTR_RPC_SYSTEM = Attribute("rpc.system", "grpc; the three http attributes are then absent")
ATTR_RPC_SERVICE = Attribute("rpc.service", "quire.v1.Quire")
ATTR_RPC_METHOD = Attribute("rpc.method", "Chat, Generate, …")
ATTR_RPC_STATUS = Attribute("rpc.grpc.status_code", "status sent, as a number")

SPAN_REQUEST = Span(
    "{operation} {model}",
    "One request, from receipt to end (kind SERVER).",
    (
        *(ATTR_OPERATION, ATTR_PROVIDER, ATTR_REQUEST_MODEL, ATTR_MAX_TOKENS, ATTR_TEMPERATURE),
        *(ATTR_TOP_P, ATTR_STREAM, ATTR_CHOICES, ATTR_RESPONSE_ID, ATTR_FINISH_REASONS),
        *(ATTR_INPUT_TOKENS, ATTR_OUTPUT_TOKENS, ATTR_CACHED_TOKENS, ATTR_OUTCOME),
        *(ATTR_REQUEST_ID, ATTR_PREEMPTIONS, ATTR_HANDOVERS, ATTR_ERROR_TYPE),
        *(ATTR_HTTP_METHOD, ATTR_HTTP_ROUTE, ATTR_HTTP_STATUS),
        *(ATTR_RPC_SYSTEM, ATTR_RPC_SERVICE, ATTR_RPC_METHOD, ATTR_RPC_STATUS),
    ),
)
SPAN_QUEUE = Span("queue", "From receipt to first scheduling.", (ATTR_CHOICE,))
SPAN_PREFILL = Span(
    "prefill",
    "From first scheduling to first token.",
    (ATTR_CHOICE, ATTR_INPUT_TOKENS, ATTR_CACHED_TOKENS),
)
SPAN_DECODE = Span(
    "decode",
    "From first to last token.",
    (ATTR_CHOICE, ATTR_OUTPUT_TOKENS, ATTR_PREEMPTIONS, ATTR_HANDOVERS),
)

SPANS: tuple[Span, ...] = (SPAN_REQUEST, SPAN_QUEUE, SPAN_PREFILL, SPAN_DECODE)


# --- the canonical log line: one per request, no content ------------------------------------------


@dataclass(frozen=True, slots=True)
class LogField:
    name: str
    help: str


REQUEST_LOG_EVENT = "request"

REQUEST_LOG_FIELDS: tuple[LogField, ...] = (
    LogField("request_id", "the server's own id, also in the x-request-id response header"),
    LogField("client_request_id", "the caller's x-request-id, if it sent a sound one"),
    LogField("trace_id", "W3C trace id, also in the x-trace-id response header"),
    LogField("span_id", "the server span"),
    LogField("route", "which API"),
    LogField("status", "HTTP status; for gRPC the one that HTTP would have sent"),
    LogField("outcome", "how it ended"),
    LogField("error", "what went wrong, without content"),
    LogField("model", "model as served"),
    LogField("stream", "whether the answer was streamed"),
    LogField("choices", "n"),
    LogField("prompt_tokens", "each prompt once, however many choices continue it"),
    LogField("cached_tokens", "prompt tokens found in the prefix cache"),
    LogField("output_tokens", "all choices, aborted ones too"),
    LogField("queue_ms", "receipt to first scheduling"),
    LogField("ttft_ms", "receipt to first token"),
    LogField("itl_mean_ms", "mean gap between tokens"),
    LogField("total_ms", "receipt to end"),
    LogField("preemptions", "times its sequences were preempted, together"),
    LogField("handovers", "times its sequences continued in a restarted engine, together"),
    LogField("ignored", "names of request fields that were ignored"),
)
