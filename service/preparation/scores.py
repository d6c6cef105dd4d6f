"""``/v1/rerank``, ``/v2/rerank`` and ``/v1/score``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import msgspec

from observability.phases import TOKENIZING
from service.errors import InvalidRequestError, WrongTaskError
from service.pooling.inputs import Input, encode_texts, truncation
from service.preparation.jobs import Limits, PreparedRerank, PreparedScore
from service.preparation.prompts import check_inputs
from service.preparation.work import Step, Work
from service.wire.decode import Ignored
from service.wire.texts.rerank import RerankRequest, ScoreRequest, decode_rerank, decode_score

# A body of a few megabytes may request that one long text be combined with each of thousands.
MAX_JOINED_CHARS = 1 << 24


def _decode_rerank(body: bytes, _limits: Limits, ignored: Ignored) -> RerankRequest:
    request = decode_rerank(body, ignored)
    if request.max_tokens_per_doc is not None:
        ignored.add("max_tokens_per_doc")
    return request


def _decode_score(body: bytes, _limits: Limits, ignored: Ignored) -> ScoreRequest:
    return decode_score(body, ignored)


def _finish_rerank(
    request: RerankRequest, work: Work, *, returns_documents: bool
) -> PreparedRerank:
    if request.return_documents is None:
        request = msgspec.structs.replace(request, return_documents=returns_documents)
    pairs = _Pairs([request.query], request.texts, "query", "documents")
    inputs, num_firsts = _scored_inputs(pairs, request, work)
    return PreparedRerank(noted=work.noted, request=request, inputs=inputs, num_firsts=num_firsts)


def _finish_score(request: ScoreRequest, work: Work) -> PreparedScore:
    pairs = _Pairs(request.firsts, request.seconds, "text_1", "text_2")
    inputs, num_firsts = _scored_inputs(pairs, request, work)
    return PreparedScore(noted=work.noted, request=request, inputs=inputs, num_firsts=num_firsts)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """One first text for all second texts, or one for each; and the request's fields."""

    firsts: list[str]
    seconds: list[str]
    first_field: str
    second_field: str

    def joined(self) -> Iterable[tuple[str, str]]:
        """Return the pairs. Raises InvalidRequestError if a text is too long to be combined with
        all others."""
        if len(self.firsts) > 1:
            return zip(self.firsts, self.seconds, strict=True)
        [first] = self.firsts
        if len(first) * len(self.seconds) > MAX_JOINED_CHARS:
            raise InvalidRequestError(
                f"'{self.first_field}' is too long to be combined with {len(self.seconds)} texts.",
                param=self.first_field,
            )
        return self._with_all(first)

    def _with_all(self, first: str) -> Iterator[tuple[str, str]]:
        return ((first, second) for second in self.seconds)


def _scored_inputs(
    pairs: _Pairs, request: RerankRequest | ScoreRequest, work: Work
) -> tuple[list[Input], int]:
    """Return the inputs, and the number of them that precede those they are compared with; 0 if the
    model reads both texts of a pair together."""
    engine = work.job.engine
    if not (engine.num_scores or engine.embedding_size):
        raise WrongTaskError(f"This model ({engine.architecture}) does not support scoring.")
    if engine.embedding_size and request.use_activation is False:
        raise WrongTaskError(
            "Only cross-encoders support 'use_activation'; this model's scores are cosines.",
            param="use_activation",
        )
    across = bool(engine.num_scores)
    seconds = [f"{pairs.second_field}[{i}]" for i in range(len(pairs.seconds))]
    if across:
        texts: list[str | tuple[str, str]] = list(pairs.joined())
        names = seconds
    else:
        texts = [*pairs.firsts, *pairs.seconds]
        names = [f"{pairs.first_field}[{i}]" for i in range(len(pairs.firsts))] + seconds
    with work.noted.timing(TOKENIZING):
        inputs = encode_texts(
            texts,
            work.checkpoint.tokenizer,
            names=names,
            longest=work.context,
            truncated=truncation(request.truncate_prompt_tokens, None, longest=work.context),
        )
    work.noted.prompt_tokens = sum(len(one.token_ids) for one in inputs)
    check_inputs(inputs, names, work.context, pairs.second_field)
    return inputs, 0 if across else len(pairs.firsts)


# Documents are returned by default, except in Cohere's second version.
RERANK, RERANK_V2 = (
    Step(name, _decode_rerank, partial(_finish_rerank, returns_documents=returns), PreparedRerank)
    for name, returns in (("rerank", True), ("rerank_v2", False))
)
SCORE = Step("score", _decode_score, _finish_score, PreparedScore)
