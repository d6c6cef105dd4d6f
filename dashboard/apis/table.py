"""The APIs that the playground speaks, and what each has a field for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dashboard.answer import Answer
from dashboard.apis import chat, completions, messages, responses, texts
from dashboard.apis.ask import Ask

_SAMPLING = frozenset({"temperature", "top_p", "max_tokens", "stop", "schema"})
_CHAT = _SAMPLING | {"conversation", "system", "thinking", "tools"}


@dataclass(frozen=True, slots=True)
class Api:
    """``uses``: the settings that a request of this API has. ``read`` takes one event of a stream,
    or the whole body of an answer that is not a stream. ``asks_for``: what the field at the
    page's foot takes."""

    name: str
    path: str
    body: Callable[[Ask], dict[str, Any]]
    read: Callable[[Answer, str], None]
    uses: frozenset[str]
    streams: bool = True
    asks_for: str = "Ask something"


APIS = (
    Api(
        "Chat completions",
        "/v1/chat/completions",
        chat.body,
        chat.read,
        _CHAT | {"seed", "logprobs"},
    ),
    Api("Responses", "/v1/responses", responses.body, responses.read, _CHAT | {"seed", "logprobs"}),
    Api("Messages", "/v1/messages", messages.body, messages.read, _CHAT),
    Api(
        "Completions",
        "/v1/completions",
        completions.body,
        completions.read,
        _SAMPLING | {"seed", "logprobs"},
        asks_for="A text for the model to continue",
    ),
    Api(
        "Embeddings",
        "/v1/embeddings",
        texts.embeddings_body,
        texts.read_embeddings,
        frozenset(),
        streams=False,
        asks_for="Texts, one per line",
    ),
    Api(
        "Rerank",
        "/v1/rerank",
        texts.rerank_body,
        texts.read_rerank,
        frozenset({"documents"}),
        streams=False,
        asks_for="A query to rank the documents by",
    ),
    Api(
        "Score",
        "/v1/score",
        texts.score_body,
        texts.read_score,
        frozenset({"documents"}),
        streams=False,
        asks_for="A text to compare the documents with",
    ),
)
BY_NAME = {api.name: api for api in APIS}
