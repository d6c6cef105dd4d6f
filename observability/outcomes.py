"""The terms that metrics, spans, log lines and the dashboard share: how requests end, which APIs
there are, why sequences wait, why prompts were not in the prefix cache, what limits the server.
Imports only the standard library."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class OutcomeGroup(enum.StrEnum):
    """What a request's end means to an operator; the values are shown on the dashboard."""

    ANSWERED = "answered"  # completely
    LEFT = "client left"  # it disconnected or did not keep up, or an operator cancelled
    REFUSED = "refused"  # before any work; the client gets the reason
    FAILED = "failed"  # a failure of the server


class Trait(enum.Flag):
    """What requests of a route do, and so how they can end."""

    NONE = 0
    BODY = enum.auto()  # send one
    PREPARED = enum.auto()  # are rendered and tokenized
    ENGINE = enum.auto()  # wait for the engine and run in it
    GENERATES = enum.auto()  # text
    TOOLS = enum.auto()  # may end in calls of tools
    POOLS = enum.auto()  # compute vectors or scores
    STORE = enum.auto()  # read or write stored responses
    RPC = enum.auto()  # come over gRPC


class NamesModel(enum.Enum):
    """Whether requests of a route name a model."""

    NEVER = enum.auto()
    SOMETIMES = enum.auto()
    ALWAYS = enum.auto()


@dataclass(frozen=True, slots=True)
class Route:
    name: str
    traits: Trait
    names_model: NamesModel = NamesModel.ALWAYS


_TEXT = Trait.BODY | Trait.PREPARED
_GENERATION = _TEXT | Trait.ENGINE | Trait.GENERATES
_POOLING = _TEXT | Trait.ENGINE | Trait.POOLS

NO_ROUTE = "none"
"""The route of requests whose path or method no route takes."""

ROUTE_TABLE = (
    Route("chat_completions", _GENERATION | Trait.TOOLS),
    Route("completions", _GENERATION),
    Route("messages", _GENERATION | Trait.TOOLS),
    Route("count_tokens", _TEXT),
    Route("responses", _GENERATION | Trait.TOOLS | Trait.STORE),
    Route("responses_stored", Trait.STORE, NamesModel.NEVER),
    Route("streams", Trait.NONE, NamesModel.NEVER),
    Route("embeddings", _POOLING),
    Route("rerank", _POOLING),
    Route("score", _POOLING),
    Route("tokenize", _TEXT),
    Route("detokenize", _TEXT),
    Route("models", Trait.NONE, NamesModel.SOMETIMES),
    Route("grpc_chat", _GENERATION | Trait.TOOLS | Trait.RPC),
    Route("grpc_generate", _GENERATION | Trait.RPC),
    Route("grpc_embed", _POOLING | Trait.RPC),
    Route("grpc_models", Trait.RPC, NamesModel.NEVER),
    Route("grpc_abort", Trait.RPC, NamesModel.NEVER),
    Route(NO_ROUTE, Trait.NONE, NamesModel.NEVER),
)
ROUTES = tuple(route.name for route in ROUTE_TABLE)


class ModelKnown(enum.Enum):
    """Whether the model that a request names is known when it ends, where a route has one."""

    NO = enum.auto()
    PERHAPS = enum.auto()
    YES = enum.auto()


@dataclass(frozen=True, slots=True)
class Outcome:
    """``needs``: traits of the routes whose requests can end so."""

    name: str
    group: OutcomeGroup
    sentence: str
    needs: Trait = Trait.NONE
    model_known: ModelKnown = ModelKnown.PERHAPS


# Each request ends in exactly one of these; metrics, spans and log lines use the same word.
OUTCOMES = (
    Outcome(
        "stop",
        OutcomeGroup.ANSWERED,
        "The model, or a stop string or token, ended the answer.",
        model_known=ModelKnown.YES,
    ),
    Outcome(
        "length",
        OutcomeGroup.ANSWERED,
        "The token limit or the model's context ended the answer.",
        Trait.GENERATES,
        ModelKnown.YES,
    ),
    Outcome(
        "tool_calls",
        OutcomeGroup.ANSWERED,
        "The answer ended with calls to the client's tools.",
        Trait.TOOLS,
        ModelKnown.YES,
    ),
    Outcome(
        "client_gone",
        OutcomeGroup.LEFT,
        "The client disconnected before the end, or gRPC itself refused its message (compressed, "
        "or far too large).",
    ),
    Outcome(
        "client_slow", OutcomeGroup.LEFT, "Cut off: the client read or sent too slowly.", Trait.BODY
    ),
    Outcome(
        "cancelled",
        OutcomeGroup.LEFT,
        "Cancelled by an operator.",
        Trait.ENGINE,
        ModelKnown.YES,
    ),
    Outcome("deadline", OutcomeGroup.LEFT, "The client's deadline passed (gRPC).", Trait.RPC),
    Outcome(
        "refused:invalid", OutcomeGroup.REFUSED, "A field or header is invalid or not supported."
    ),
    Outcome(
        "refused:unauthorized",
        OutcomeGroup.REFUSED,
        "The API key is missing or wrong, or may not use the route.",
        model_known=ModelKnown.NO,
    ),
    Outcome(
        "refused:not_found",
        OutcomeGroup.REFUSED,
        "No such route, model or stored object.",
        model_known=ModelKnown.NO,
    ),
    Outcome(
        "refused:too_large",
        OutcomeGroup.REFUSED,
        "The body is larger than the limit.",
        Trait.BODY,
        ModelKnown.NO,
    ),
    Outcome("refused:loading", OutcomeGroup.REFUSED, "The model is still loading.", Trait.PREPARED),
    Outcome("refused:engine", OutcomeGroup.REFUSED, "The engine is not available.", Trait.ENGINE),
    Outcome(
        "refused:preparation",
        OutcomeGroup.REFUSED,
        "The process that prepares requests was killed.",
        Trait.PREPARED,
    ),
    Outcome(
        "refused:draining",
        OutcomeGroup.REFUSED,
        "The server is draining and accepts no new requests.",
        Trait.ENGINE,
    ),
    Outcome(
        "refused:store",
        OutcomeGroup.REFUSED,
        "The response store is unavailable.",
        Trait.STORE,
    ),
    Outcome(
        "refused:overloaded",
        OutcomeGroup.REFUSED,
        "Too many requests are waiting.",
        Trait.BODY,
    ),
    Outcome(
        "refused:deadline",
        OutcomeGroup.REFUSED,
        "The answer would not have begun before the request's deadline.",
        Trait.ENGINE,
        ModelKnown.YES,
    ),
    Outcome(
        "refused:expired",
        OutcomeGroup.REFUSED,
        "The request's deadline passed before its answer began.",
        Trait.ENGINE,
        ModelKnown.YES,
    ),
    Outcome(
        "refused:limit",
        OutcomeGroup.REFUSED,
        "The API key's limit of requests or tokens is reached, or too low for this request.",
        Trait.ENGINE,
    ),
    Outcome(
        "refused:crashing",
        OutcomeGroup.REFUSED,
        "The request has crashed several engines.",
        Trait.ENGINE,
        ModelKnown.YES,
    ),
    Outcome(
        "error:engine",
        OutcomeGroup.FAILED,
        "The engine failed while running the request.",
        Trait.ENGINE,
        ModelKnown.YES,
    ),
    Outcome(
        "error:store",
        OutcomeGroup.FAILED,
        "The answer could not be stored.",
        Trait.STORE | Trait.ENGINE,
        ModelKnown.YES,
    ),
    Outcome(
        "error:shutdown",
        OutcomeGroup.FAILED,
        "Cut off: still running when the drain time ended.",
        Trait.ENGINE,
        ModelKnown.YES,
    ),
    Outcome(
        "error:internal", OutcomeGroup.FAILED, "A bug in the server; the log has the traceback."
    ),
    Outcome(
        "error:worker",
        OutcomeGroup.FAILED,
        "The server's API worker died while serving the request.",
    ),
)


def can_end(route: Route, outcome: Outcome, *, named: bool) -> bool:
    """True if a request of this route can end so, its model being known (``named``) or not.

    Such series exist at 0 from the start. The table does not decide what is counted: a request
    that ends in a way that it does not have gets another series.
    """
    if outcome.needs not in route.traits:
        return False
    if named:
        return route.names_model is not NamesModel.NEVER and (
            outcome.model_known is not ModelKnown.NO
        )
    return route.names_model is not NamesModel.ALWAYS or (outcome.model_known is not ModelKnown.YES)


_GROUPS = {outcome.name: outcome.group for outcome in OUTCOMES}


def is_outcome(name: str) -> bool:
    return name in _GROUPS


def group_of(name: str) -> OutcomeGroup:
    """Return the group of an outcome. An undeclared one, which another version of the server may
    report, never counts as answered."""
    return _GROUPS.get(name, OutcomeGroup.FAILED)


# Why the head of the engine's queue does not run yet (``engine.messages.WaitingReason``).
WAITING_REASONS = {
    "slots": "all batch slots are taken",
    "kv_blocks": "the KV cache is full",
    "budget": "this step's token budget is spent",
    "constraint": "grammars are being compiled",
}

# Why the engine's queue has no place for a sequence (``engine.queueing.RefusalReason``).
QUEUE_REFUSALS = {
    "queue_requests": "as many sequences wait as may",
    "queue_tokens": "what waits has as many tokens as it may",
    "tenant_share": "so many of the key's own wait, and the rest of the places is for other keys",
    "deadline_unreachable": "at the measured pace its first token would come after its deadline",
    "deadline_passed": "its deadline passed while it waited",
}

# The most urgent first (``engine.queueing.ServiceClass``).
SERVICE_CLASSES = ("interactive", "standard", "batch")

# Why the prefix cache did not have the rest of a prompt (``engine.messages.PrefixMissReason``).
PREFIX_MISS_REASONS = {
    "first_seen": "as far as the cache knows, these tokens have not been computed before",
    "diverged": "another prompt begins the same and then differs",
    "evicted": "the blocks were evicted because other sequences needed them",
    "salt": "the same tokens are cached for another API key or cache_salt only",
    "state": "the blocks are cached, but not the state after them, which this model needs too",
    "short": "what is left is less than a block, or is the last token, which is always computed",
    "whole_prompt": "the request needs every prompt token computed (prompt logprobs)",
    "off": "prefix caching is off",
}

# What limits the server (``observability.admin_api.Condition``), the most urgent first.
CONDITIONS = {
    "down": "no engine is running and none is expected, or engines keep failing",
    "silent": "the engine sends no messages",
    "loading": "the engine is loading its model, or being replaced",
    "draining": "the server accepts no new requests",
    "engines": "one of several engines is silent, gone or loading",
    "connections": "all connections are in use, and new ones wait",
    "kv": "sequences wait for KV cache blocks, or are preempted for lack of them",
    "slots": "sequences wait because all slots are taken",
    "prefill": "prompts take up the engine's steps",
    "constraint": "sequences wait for their grammars",
    "frontend": "the API worker's event loop is late",
    "clients": "writes wait for clients that do not read",
    "idle": "there is nothing to do",
    "healthy": "nothing limits the server",
}
