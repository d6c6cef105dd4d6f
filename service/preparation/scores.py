"""``/v1/rerank``, ``/v2/rerank`` and ``/v1/score``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from service.checkpoint.tokenizer import UntokenizableError
from service.errors import ContextTooLongError, InvalidRequestError, WrongTaskError
from service.pooling.inputs import (
    SHORTEN_OR_TRUNCATE,
    Input,
    Truncation,
    check_lengths,
    encode_texts,
    truncation,
)
from service.preparation.jobs import Limits, PreparedRerank, PreparedScore
from service.preparation.prompts import check_together, tokenizing
from service.preparation.work import Step, Work, ignored_of
from service.wire.decode import Ignored
from service.wire.texts.rerank import RerankRequest, ScoreRequest, decode_rerank, decode_score

# A body of a few megabytes may request that one long text be combined with each of thousands.
MAX_JOINED_CHARS = 1 << 24
# Cohere's default for ``max_tokens_per_doc``.
COHERE_TOKENS_PER_DOC = 4096


def _decode_rerank(body: bytes, _limits: Limits, ignored: Ignored) -> RerankRequest:
    return decode_rerank(body, ignored)


def _decode_score(body: bytes, _limits: Limits, ignored: Ignored) -> ScoreRequest:
    return decode_score(body, ignored)


def _finish_rerank(request: RerankRequest, work: Work, *, as_cohere: bool) -> PreparedRerank:
    """``as_cohere``: documents are cut to fit, and returned only on request."""
    if request.return_documents is None:
        request = msgspec.structs.replace(request, return_documents=not as_cohere)
    documents = request.texts
    pairs = _Pairs([request.query], documents, ["query"], _names("documents", documents))
    cut = _cut(request, work, to_fit=as_cohere)
    inputs, num_firsts = _scored_inputs(pairs, request, cut, work)
    return PreparedRerank(noted=work.noted, request=request, inputs=inputs, num_firsts=num_firsts)


def _finish_score(request: ScoreRequest, work: Work) -> PreparedScore:
    first, second = (_names(name, getattr(request, name)) for name in request.text_fields)
    pairs = _Pairs(request.firsts, request.seconds, first, second)
    cut = _cut(request, work, to_fit=False)
    inputs, num_firsts = _scored_inputs(pairs, request, cut, work)
    return PreparedScore(noted=work.noted, request=request, inputs=inputs, num_firsts=num_firsts)


def _names(field: str, texts: str | list[str]) -> list[str]:
    """Return the texts' names in errors."""
    if isinstance(texts, str):
        return [field]
    return [f"{field}[{index}]" for index in range(len(texts))]


@dataclass(frozen=True, slots=True)
class _Pairs:
    """One first text for all second texts, or one for each; and their names in the request."""

    firsts: list[str]
    seconds: list[str]
    first_names: list[str]
    second_names: list[str]

    def joined(self) -> Iterable[tuple[str, str]]:
        """Return the pairs. Raises InvalidRequestError if a text is too long to be combined with
        all others."""
        if len(self.firsts) > 1:
            return zip(self.firsts, self.seconds, strict=True)
        [first], [name] = self.firsts, self.first_names
        if len(first) * len(self.seconds) > MAX_JOINED_CHARS:
            raise InvalidRequestError(
                f"'{name}' is too long to be combined with {len(self.seconds)} texts.", param=name
            )
        return self._with_all(first)

    def _with_all(self, first: str) -> Iterator[tuple[str, str]]:
        return ((first, second) for second in self.seconds)


@dataclass(frozen=True, slots=True)
class _Cut:
    """How long texts are cut. ``whole``: what is kept of an input; ``first``, ``second``: the
    maximum for each text of a pair, without special tokens. ``to_fit``: second texts are cut to fit
    without being asked to, which is reported."""

    whole: Truncation | None
    first: int | None
    second: int | None
    to_fit: bool

    @property
    def advice(self) -> str:
        """What to do about a text that is too long. Cohere's clients cannot truncate a query."""
        return "Shorten it." if self.to_fit else SHORTEN_OR_TRUNCATE

    @property
    def of_firsts(self) -> Truncation | None:
        return _truncation_of(None if self.to_fit else self.whole, self.first)

    @property
    def of_seconds(self) -> Truncation | None:
        return _truncation_of(self.whole, self.second)

    @property
    def of_pairs(self) -> Truncation | None:
        return _truncation_of(self.whole, self.first, self.second)


def _truncation_of(whole: Truncation | None, *of_texts: int | None) -> Truncation | None:
    if whole is None and of_texts.count(None) == len(of_texts):
        return None
    return Truncation(None if whole is None else whole.limit, of_texts=of_texts)


def _cut(request: RerankRequest | ScoreRequest, work: Work, *, to_fit: bool) -> _Cut:
    """Raises InvalidRequestError for a limit beyond the model's."""
    asked = request.truncate_prompt_tokens
    to_fit = to_fit and asked is None
    second = request.max_tokens_per_doc or (COHERE_TOKENS_PER_DOC if to_fit else None)
    whole = truncation(-1 if to_fit else asked, None, longest=work.context)
    return _Cut(whole, request.max_tokens_per_query or None, second, to_fit)


def _scored_inputs(
    pairs: _Pairs, request: RerankRequest | ScoreRequest, cut: _Cut, work: Work
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
    encode = partial(
        encode_texts,
        tokenizer=work.checkpoint.tokenizer,
        longest=work.context,
        advice=cut.advice,
    )
    firsts: list[Input] = []
    param = pairs.second_names[0].partition("[")[0]
    with tokenizing(work, param):
        if across:
            joined = list(_shortened(pairs, cut.first, work).joined())
            seconds = encode(joined, names=pairs.second_names, truncated=cut.of_pairs)
        else:
            firsts = encode(pairs.firsts, names=pairs.first_names, truncated=cut.of_firsts)
            seconds = encode(pairs.seconds, names=pairs.second_names, truncated=cut.of_seconds)
    work.noted.prompt_tokens = sum(len(one.token_ids) for one in (*firsts, *seconds))
    if cut.to_fit:
        _report_cut(seconds, pairs, request.max_tokens_per_doc or None, work)
    check_lengths(firsts, pairs.first_names[: len(firsts)], longest=work.context, advice=cut.advice)
    check_lengths(seconds, pairs.second_names, longest=work.context, advice=cut.advice)
    check_together(work.noted.prompt_tokens, param)
    return firsts + seconds, len(firsts)


def _shortened(pairs: _Pairs, most: int | None, work: Work) -> _Pairs:
    """Return the pairs with no more of the first texts than their ``most`` tokens may be of."""
    if most is None:
        return pairs
    part = work.checkpoint.tokenizer.part_with
    try:
        firsts = [part(first, most, from_end=False) for first in pairs.firsts]
    except (UnicodeEncodeError, UntokenizableError):
        return pairs  # encoding them names the field
    return replace(pairs, firsts=firsts)


def _report_cut(seconds: list[Input], pairs: _Pairs, asked: int | None, work: Work) -> None:
    """Report the texts of which less is kept than ``asked``. Raises ContextTooLongError if the
    first text leaves no room for one."""
    ignored = ignored_of(work.job.limits, work.noted)
    for one, name in zip(seconds, pairs.second_names, strict=True):
        if one.cut_to == 0:
            [first] = pairs.first_names
            raise ContextTooLongError(
                f"This model takes at most {work.context} tokens at once, and '{first}' leaves no "
                "room for a document. Shorten it.",
                param=first,
            )
        if one.cut_to is not None and (asked is None or one.cut_to < asked):
            ignored.add(name)


# Documents are returned by default, except in Cohere's second version, which cuts long ones.
RERANK, RERANK_V2 = (
    Step(name, _decode_rerank, partial(_finish_rerank, as_cohere=as_cohere), PreparedRerank)
    for name, as_cohere in (("rerank", False), ("rerank_v2", True))
)
SCORE = Step("score", _decode_score, _finish_score, PreparedScore)
