"""Every span, event and field of the request log line, declared once."""

from __future__ import annotations

from dataclasses import dataclass, field

from observability import phases
from observability.admin_api import EventKind
from observability.phases import PHASES, RequestPhase


@dataclass(frozen=True, slots=True, eq=False)
class Attribute:
    name: str
    help: str


@dataclass(frozen=True, slots=True, eq=False)
class SpanEvent:
    """Something that happens while a request is decoded."""

    name: str
    help: str
    attributes: tuple[Attribute, ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """``name`` may contain ``{model}``. Spans are created at the end from the request's record."""

    name: str
    help: str
    attributes: tuple[Attribute, ...] = field(default=())


ATTR_OPERATION = Attribute("gen_ai.operation.name", "chat, text_completion or embeddings")
ATTR_PROVIDER = Attribute("gen_ai.provider.name", "quire")
ATTR_REQUEST_MODEL = Attribute("gen_ai.request.model", "model as served")
ATTR_MAX_TOKENS = Attribute("gen_ai.request.max_tokens", "token limit in force")
ATTR_TEMPERATURE = Attribute("gen_ai.request.temperature", "sampling temperature in force")
ATTR_TOP_P = Attribute("gen_ai.request.top_p", "top_p in force")
ATTR_STREAM = Attribute("gen_ai.request.stream", "whether the answer was streamed")
ATTR_CHOICES = Attribute("gen_ai.request.choice.count", "n")
ATTR_RESPONSE_ID = Attribute("gen_ai.response.id", "id in the response")
ATTR_FINISH_REASONS = Attribute("gen_ai.response.finish_reasons", "one per choice")
ATTR_INPUT_TOKENS = Attribute("gen_ai.usage.input_tokens", "prompt tokens")
ATTR_OUTPUT_TOKENS = Attribute("gen_ai.usage.output_tokens", "generated tokens, aborted ones too")
ATTR_CACHED_TOKENS = Attribute(
    "gen_ai.usage.cache_read.input_tokens", "prompt tokens found in the prefix cache"
)
ATTR_KEY = Attribute("quire.key", "alias of the caller's API key; absent without keys")
ATTR_OUTCOME = Attribute("quire.outcome", "how the request ended, one of the outcomes")
ATTR_REQUEST_ID = Attribute("quire.request_id", "the server's own request id")
ATTR_CHOICE = Attribute("quire.choice", "index of the choice a phase belongs to")
ATTR_PREEMPTIONS = Attribute("quire.preemptions", "times the sequence was preempted")
ATTR_HANDOVERS = Attribute(
    "quire.handovers", "times the sequence continued in the next engine because its own died"
)
ATTR_ERROR_TYPE = Attribute("error.type", "outcome, when the request was refused or failed")
ATTR_ERROR_CODE = Attribute("quire.error.code", "code of the error that the client received")
ATTR_ERROR_FIELD = Attribute(
    "quire.error.field", "path of the field at fault, with * for names chosen by the client"
)
ATTR_RETRY_AFTER = Attribute(
    "quire.retry_after", "seconds after which the client may retry, as sent to it"
)
ATTR_WAITING = Attribute(
    "quire.waiting", "sequences that were waiting when the request was admitted or refused"
)
# What the conventions call so since their latest, unreleased versions; written on request only.
ATTR_RESPONSE_MODEL = Attribute(
    "gen_ai.response.model", "model as served; with `gen_ai_latest_experimental`"
)
ATTR_FIRST_CHUNK = Attribute(
    "gen_ai.response.time_to_first_chunk", "in seconds; with `gen_ai_latest_experimental`"
)
ATTR_REASONING_TOKENS = Attribute(
    "gen_ai.usage.reasoning.output_tokens",
    "output tokens of reasoning; with `gen_ai_latest_experimental`",
)
NEWEST_ATTRIBUTES = (ATTR_RESPONSE_MODEL, ATTR_FIRST_CHUNK, ATTR_REASONING_TOKENS)
ATTR_KEPT = Attribute(
    "quire.kept",
    "why the trace was exported although the sampler had not chosen it: error, refused, preempted, "
    "handed_over or slow",
)
ATTR_EVENT_TOKEN = Attribute("quire.token", "the token's position in the answer, from 1")
ATTR_EVENT_SECONDS = Attribute("quire.seconds", "how long it took")
ATTR_STEP_TOKENS = Attribute("quire.step.tokens", "tokens computed")
ATTR_STEP_SEQUENCES = Attribute("quire.step.sequences", "sequences that took part")
ATTR_STEP_PREFILLED = Attribute(
    "quire.step.prefill.requests", "ids of requests whose prompts were computed in it"
)
ATTR_STEP_PREFILL_TOKENS = Attribute(
    "quire.step.prefill.tokens", "tokens of each of these prompts that were computed in it"
)
ATTR_FLUSH_SECONDS = Attribute("quire.flush.seconds", "total time that writes waited")
ATTR_HTTP_METHOD = Attribute("http.request.method", "GET, POST")
ATTR_HTTP_ROUTE = Attribute("http.route", "path template")
ATTR_HTTP_STATUS = Attribute("http.response.status_code", "status sent")
ATTR_RPC_SYSTEM = Attribute("rpc.system", "grpc; the three http attributes are then absent")
ATTR_RPC_SERVICE = Attribute("rpc.service", "quire.v1.Quire")
ATTR_RPC_METHOD = Attribute("rpc.method", "Chat, Generate, …")
ATTR_RPC_STATUS = Attribute("rpc.grpc.status_code", "status sent, as a number")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


SPAN_REQUEST = Span(
    "{operation} {model}",
    "One request, from receipt to end (kind SERVER).",
    (
        *(ATTR_OPERATION, ATTR_PROVIDER, ATTR_REQUEST_MODEL, ATTR_MAX_TOKENS, ATTR_TEMPERATURE),
        *(ATTR_TOP_P, ATTR_STREAM, ATTR_CHOICES, ATTR_RESPONSE_ID, ATTR_FINISH_REASONS),
        *(ATTR_INPUT_TOKENS, ATTR_OUTPUT_TOKENS, ATTR_CACHED_TOKENS, ATTR_OUTCOME),
        *(ATTR_REQUEST_ID, ATTR_KEY, ATTR_PREEMPTIONS, ATTR_HANDOVERS, ATTR_ERROR_TYPE),
        *(ATTR_ERROR_CODE, ATTR_ERROR_FIELD, ATTR_RETRY_AFTER, ATTR_WAITING, ATTR_KEPT),
        *(ATTR_HTTP_METHOD, ATTR_HTTP_ROUTE, ATTR_HTTP_STATUS),
        *(ATTR_RPC_SYSTEM, ATTR_RPC_SERVICE, ATTR_RPC_METHOD, ATTR_RPC_STATUS),
        *NEWEST_ATTRIBUTES,
    ),
)
_PHASE_ATTRIBUTES: dict[RequestPhase, tuple[Attribute, ...]] = {
    phases.QUEUEING: (ATTR_CHOICE,),
    phases.PREFILLING: (ATTR_CHOICE, ATTR_INPUT_TOKENS, ATTR_CACHED_TOKENS),
    phases.DECODING: (ATTR_CHOICE, ATTR_OUTPUT_TOKENS, ATTR_PREEMPTIONS, ATTR_HANDOVERS),
    phases.FLUSHING: (ATTR_FLUSH_SECONDS,),
}
PHASE_SPANS: dict[str, Span] = {
    phase.name: Span(phase.name, _sentence(phase.help), _PHASE_ATTRIBUTES.get(phase, ()))
    for phase in PHASES
}

SPAN_STEP = Span(
    "step",
    "One engine step that was among the longest of a traced request, which links to it. Steps are "
    "in separate traces, a new one every ten minutes.",
    (ATTR_STEP_TOKENS, ATTR_STEP_SEQUENCES, ATTR_STEP_PREFILLED, ATTR_STEP_PREFILL_TOKENS),
)

SPANS: tuple[Span, ...] = (SPAN_REQUEST, *PHASE_SPANS.values(), SPAN_STEP)

# On the decode span of their choice, stalls on the flush span, the rest on the request's.
EVENTS: dict[EventKind, SpanEvent] = {
    kind: SpanEvent(kind.value, help_text, attributes)
    for kind, help_text, attributes in (
        (
            EventKind.OUTPUT,
            "the first, second, fourth, eighth … token",
            (ATTR_CHOICE, ATTR_EVENT_TOKEN),
        ),
        (
            EventKind.GAP,
            "two tokens were further apart than five times the median so far",
            (ATTR_CHOICE, ATTR_EVENT_SECONDS),
        ),
        (
            EventKind.PREEMPTED,
            "its KV cache blocks were needed for other sequences",
            (ATTR_CHOICE,),
        ),
        (EventKind.RESUMED, "it is running again", (ATTR_CHOICE,)),
        (
            EventKind.HANDED_OVER,
            "its engine died, and the next one continued it",
            (ATTR_CHOICE,),
        ),
        (EventKind.STALLED, "a write waited for the client", (ATTR_EVENT_SECONDS,)),
        (EventKind.CANCELLED, "an operator cancelled the request", ()),
    )
}


# --- the request log line: one per request, no content --------------------------------------------


@dataclass(frozen=True, slots=True)
class LogField:
    name: str
    help: str


REQUEST_LOG_EVENT = "request"

REQUEST_LOG_FIELDS: tuple[LogField, ...] = (
    LogField("request_id", "the server's own id, also in the x-request-id response header"),
    LogField("client_request_id", "the caller's x-request-id, if it is valid"),
    LogField("key", "alias of the caller's API key"),
    LogField("client_address", "as the listener saw it; absent with --no-log-clients"),
    LogField(
        "user_agent",
        "likewise; at most 128 characters, with ? for any that are not printable ASCII",
    ),
    LogField("trace_id", "W3C trace id, also in the x-trace-id response header"),
    LogField("span_id", "the server span"),
    LogField("route", "which API"),
    LogField("status", "HTTP status; for gRPC the one that HTTP would have sent"),
    LogField("outcome", "how it ended"),
    LogField("error", "what went wrong, without content"),
    LogField("error_code", "code of the error that the client received"),
    LogField("error_field", "path of the field at fault, with * for names chosen by the client"),
    LogField("retry_after", "seconds after which the client may retry, as sent to it"),
    LogField("method", "of a request that matches no route"),
    LogField("path", "likewise; at most 128 characters, with * for unusual ones"),
    LogField("model", "model as served"),
    LogField("stream", "whether the answer was streamed"),
    LogField("choices", "n"),
    LogField("waiting", "sequences that were waiting when the request was admitted or refused"),
    LogField(
        "prompt_tokens",
        "each prompt once, however many choices continue it; of a prompt refused as too long, the "
        "tokens counted by then",
    ),
    LogField("cached_tokens", "prompt tokens found in the prefix cache"),
    LogField("prefix_miss", "why not more were found: one of the reasons above"),
    LogField("prefix_diverged_from", "id of a request whose prompt diverges from there on"),
    LogField("prefix_evicted_s", "seconds since the missing blocks were evicted"),
    LogField("output_tokens", "all choices, aborted ones too"),
    *(LogField(phase.log_field, phase.help) for phase in PHASES),
    LogField(
        "other_ms",
        "the rest of total_ms: reading headers, encoding the answer, switching tasks",
    ),
    LogField("ttft_ms", "receipt to first token"),
    LogField("itl_mean_ms", "mean gap between tokens"),
    LogField("total_ms", "receipt to end"),
    LogField("preemptions", "times its sequences were preempted, in total"),
    LogField("handovers", "times its sequences continued in the next engine, in total"),
    LogField("ignored", "names of request fields that were ignored"),
)
