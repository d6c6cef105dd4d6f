"""``POST /v1/rerank`` and ``/v2/rerank`` (Cohere's and Jina's), ``POST /v1/score`` (vLLM's)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from service.errors import InvalidRequestError
from service.wire.decode import Ignored, decode
from service.wire.sampling import Name
from service.wire.texts.embeddings import MAX_INPUTS, PoolingUsage, TokenLimit, check_truncation

Texts = Annotated[list[str], Meta(min_length=1, max_length=MAX_INPUTS)]
Priority = Annotated[int, Meta(ge=-1000, le=1000)]
TextLimit = Annotated[int, Meta(ge=0, le=2**31)]


# The pairs of fields in which a ScoreRequest may have its texts.
PAIRS = (
    ("text_1", "text_2"),
    ("queries", "documents"),
    ("queries", "items"),
    ("data_1", "data_2"),
)


class RerankDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str


class RerankRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``top_n``: return only this many of the best; 0 or absent: all. ``return_documents``: true if
    absent, except in version 2 of Cohere's API, which has no such field. ``max_tokens_per_doc``
    (Cohere's and vLLM's), ``max_tokens_per_query`` (vLLM's): keep only so many tokens of each,
    special ones not counted; 0 or absent: all, or as many as Cohere's API keeps by default.
    ``use_activation``: apply a cross-encoder's output function to its scores; by default as the
    checkpoint says."""

    model: Name | None = None
    query: str
    documents: Annotated[list[str | RerankDocument], Meta(min_length=1, max_length=MAX_INPUTS)]
    top_n: Annotated[int, Meta(ge=0, le=2**31)] | None = None
    return_documents: bool | None = None
    max_tokens_per_doc: TextLimit | None = None
    max_tokens_per_query: TextLimit | None = None
    truncate_prompt_tokens: TokenLimit | None = None
    use_activation: bool | None = None
    user: Name | None = None
    priority: Priority = 0

    @property
    def texts(self) -> list[str]:
        return [d if isinstance(d, str) else d.text for d in self.documents]


class RerankResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``index``: the document's position in the request."""

    index: int
    relevance_score: float
    document: RerankDocument | None = None


class RerankAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Best first."""

    id: str
    model: str
    results: list[RerankResult]
    usage: PoolingUsage


class ScoreRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Each of ``text_1`` against the text of ``text_2`` at the same position; a single ``text_1``
    against all of ``text_2``. Exactly one of ``PAIRS`` is set: the others are vLLM's other names
    for the two. ``max_tokens_per_query`` applies to the first texts, ``max_tokens_per_doc`` to the
    second; these and ``use_activation`` as in RerankRequest."""

    model: Name | None = None
    text_1: str | Texts | None = None
    text_2: str | Texts | None = None
    queries: str | Texts | None = None
    documents: str | Texts | None = None
    items: str | Texts | None = None
    data_1: str | Texts | None = None
    data_2: str | Texts | None = None
    max_tokens_per_doc: TextLimit | None = None
    max_tokens_per_query: TextLimit | None = None
    truncate_prompt_tokens: TokenLimit | None = None
    use_activation: bool | None = None
    user: Name | None = None
    priority: Priority = 0

    @property
    def text_fields(self) -> tuple[str, str]:
        """The two fields that hold the texts. Raises InvalidRequestError unless one pair is set."""
        names = dict.fromkeys(name for pair in PAIRS for name in pair)
        found = [name for name in names if getattr(self, name) is not None]
        for pair in PAIRS:
            if set(found) == set(pair):
                return pair
        allowed = ", or ".join(f"'{first}' and '{second}'" for first, second in PAIRS)
        given = " and ".join(f"'{name}'" for name in found) or "none of them"
        raise InvalidRequestError(
            f"Send the texts in one pair of fields: {allowed}. This request has {given}.",
            param=found[0] if found else PAIRS[0][0],
        )

    @property
    def firsts(self) -> list[str]:
        return self._texts(self.text_fields[0])

    @property
    def seconds(self) -> list[str]:
        return self._texts(self.text_fields[1])

    def _texts(self, field: str) -> list[str]:
        given: str | list[str] = getattr(self, field)
        return [given] if isinstance(given, str) else given


class Score(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    object: Literal["score"] = "score"
    score: float


class ScoreList(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[Score]
    usage: PoolingUsage


_rerank = msgspec.json.Decoder(RerankRequest, strict=True)
_score = msgspec.json.Decoder(ScoreRequest, strict=True)


def decode_rerank(body: bytes, ignored: Ignored | None = None) -> RerankRequest:
    """Raises InvalidRequestError."""
    request = decode(_rerank, body, ignored)
    check_truncation(request.truncate_prompt_tokens)
    return request


def decode_score(body: bytes, ignored: Ignored | None = None) -> ScoreRequest:
    """Raises InvalidRequestError."""
    request = decode(_score, body, ignored)
    check_truncation(request.truncate_prompt_tokens)
    first, second = request.text_fields
    num_firsts, num_seconds = len(request.firsts), len(request.seconds)
    if num_firsts not in (1, num_seconds):
        raise InvalidRequestError(
            f"'{first}' holds {num_firsts} texts and '{second}' {num_seconds}; '{first}' must be "
            "one text, or as many.",
            param=first,
        )
    return request


def ranked(request: RerankRequest, scores: list[float]) -> list[RerankResult]:
    """Return the documents by decreasing score, equal ones in the request's order."""
    texts = request.texts
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    return [
        RerankResult(
            index=index,
            relevance_score=scores[index],
            document=RerankDocument(texts[index])
            if request.return_documents is not False
            else None,
        )
        for index in order[: request.top_n or None]
    ]
