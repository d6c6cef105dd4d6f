"""The terms that metrics, spans, log lines and the dashboard share: how requests end, which APIs
there are, why sequences wait, why prompts were not in the prefix cache. Imports only the standard
library."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class OutcomeGroup(enum.StrEnum):
    """What a request's end means to an operator; the values are shown on the dashboard."""

    ANSWERED = "answered"  # completely
    LEFT = "client left"  # the client disconnected or did not keep up
    REFUSED = "refused"  # before any work; the client gets the reason
    FAILED = "failed"  # a failure of the server


@dataclass(frozen=True, slots=True)
class Outcome:
    name: str
    group: OutcomeGroup
    sentence: str


# Each request ends in exactly one of these; metrics, spans and log lines use the same word.
OUTCOMES = (
    Outcome(
        "stop", OutcomeGroup.ANSWERED, "The model, or a stop string or token, ended the answer."
    ),
    Outcome(
        "length", OutcomeGroup.ANSWERED, "The token limit or the model's context ended the answer."
    ),
    Outcome(
        "tool_calls", OutcomeGroup.ANSWERED, "The answer ended in calls of the client's tools."
    ),
    Outcome("client_gone", OutcomeGroup.LEFT, "The client disconnected before the end."),
    Outcome("client_slow", OutcomeGroup.LEFT, "Cut: the client read or sent too slowly."),
    Outcome("deadline", OutcomeGroup.LEFT, "The client's own deadline passed (gRPC)."),
    Outcome(
        "refused:invalid", OutcomeGroup.REFUSED, "A field or header is wrong, or not supported."
    ),
    Outcome("refused:unauthorized", OutcomeGroup.REFUSED, "The API key is missing or wrong."),
    Outcome("refused:not_found", OutcomeGroup.REFUSED, "No such route, model or stored object."),
    Outcome("refused:too_large", OutcomeGroup.REFUSED, "The body is larger than the limit."),
    Outcome("refused:loading", OutcomeGroup.REFUSED, "The model is still loading."),
    Outcome("refused:engine", OutcomeGroup.REFUSED, "The engine is not available."),
    Outcome(
        "refused:preparation",
        OutcomeGroup.REFUSED,
        "The process that prepares requests was killed.",
    ),
    Outcome("refused:draining", OutcomeGroup.REFUSED, "The server is shutting down."),
    Outcome("refused:store", OutcomeGroup.REFUSED, "The response store is unavailable."),
    Outcome("refused:overloaded", OutcomeGroup.REFUSED, "Too many requests are waiting."),
    Outcome("refused:crashing", OutcomeGroup.REFUSED, "Engines keep dying of this request."),
    Outcome("error:engine", OutcomeGroup.FAILED, "The engine failed while it ran the request."),
    Outcome("error:store", OutcomeGroup.FAILED, "The answer could not be stored."),
    Outcome(
        "error:shutdown",
        OutcomeGroup.FAILED,
        "Cut: it was still running when the drain time ended.",
    ),
    Outcome(
        "error:internal", OutcomeGroup.FAILED, "A defect of the server; the log has the traceback."
    ),
)
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

# Why the prefix cache did not have the rest of a prompt (``engine.messages.PrefixMissReason``).
PREFIX_MISS_REASONS = {
    "first_seen": "no request has computed these tokens before, as far as the cache remembers",
    "diverged": "another prompt has the same beginning and continues differently",
    "evicted": "its blocks were needed for other sequences",
    "salt": "the same tokens are cached under another cache_salt",
    "short": "all of it was found but for less than a block, or the last token",
    "whole_prompt": "the request needs every prompt token computed (prompt logprobs)",
    "off": "prefix caching is off",
}

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
