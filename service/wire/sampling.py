"""The fields that chat and completion requests share, and their conversion to engine parameters.

Everything that could cost memory or time has a limit here, checked while the body is decoded.
Fields of OpenAI's that do not change the answer of a local model are accepted and ignored
(``IgnoredFields``); fields that would change it and are not supported are rejected by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from engine.messages import MAX_BAD_WORD_TOKENS, SamplingParams, token_mask
from service.checkpoint.checkpoint import Checkpoint, SamplingDefaults
from service.errors import InvalidRequestError
from service.generation.choice import StopRules

MAX_TOP_LOGPROBS = 20
# Numbers kept for one request until its answer is sent, at 8 bytes each: 128 MiB. A token counts as
# this many in addition to its alternatives.
MAX_LOGPROBS = 1 << 24
TOKEN_LOGPROBS = 25
MAX_BAD_WORDS_TOKENS = 2048  # of all bad words, each in both its spellings
MAX_BEAMS = 10  # each beam's step requests the likeliest tokens, twice as many as there are beams
_INT63 = 2**63 - 1

Name = Annotated[str, Meta(max_length=512)]
StopString = Annotated[str, Meta(min_length=1, max_length=1024)]
TokenId = Annotated[int, Meta(ge=0, lt=2**31)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
TokenLimit = Annotated[int, Meta(ge=1, le=2**31)]


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class IgnoredFields(msgspec.Struct, frozen=True, kw_only=True):
    """Accepted because they do not change a local model's answer."""

    user: Name | None = None
    metadata: Annotated[dict[str, Name], Meta(max_length=64)] | None = None
    store: bool | None = None
    service_tier: Name | None = None
    safety_identifier: Name | None = None
    prompt_cache_key: Name | None = None
    prompt_cache_retention: Name | None = None


class SamplingFields(IgnoredFields, frozen=True, kw_only=True):
    """Fields from which SamplingParams are made. None: not set."""

    model: Name | None = None
    n: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: StopString | Annotated[list[StopString], Meta(max_length=16)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=_INT63)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, lt=2**31)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=10)] | None = None
    logit_bias: (
        Annotated[
            dict[Name, Annotated[float, Meta(ge=-100, le=100)]],
            Meta(max_length=1024),
        ]
        | None
    ) = None
    min_tokens: Annotated[int, Meta(ge=0, le=2**31)] | None = None
    ignore_eos: bool = False
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=256)] | None = None
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    allowed_token_ids: Annotated[list[TokenId], Meta(min_length=1, max_length=1_000_000)] | None = (
        None
    )
    bad_words: Annotated[list[StopString], Meta(max_length=128)] | None = None
    prompt_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    return_token_ids: bool = False
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1, le=2**31)] | None = None
    truncation_side: Literal["left", "right"] = "left"
    use_beam_search: bool = False
    length_penalty: Annotated[float, Meta(ge=-10, le=10)] = 1.0
    timings: bool = False
    request_id: Name | None = None
    priority: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    cache_salt: Name | None = None
    return_tokens_as_token_ids: bool = False

    other_names: ClassVar[dict[str, str]] = {"repeat_penalty": "repetition_penalty"}

    @property
    def most_logprobs(self) -> int:
        """How many numbers an answer's logprobs may have; see ``output_room``."""
        return MAX_LOGPROBS

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.continuous_usage_stats)


def refuse_unserved(request: msgspec.Struct, served: Mapping[str, Callable[[Any], bool]]) -> None:
    """``served`` maps partly supported fields to a test for supported values; null always is.
    Raises InvalidRequestError naming the field."""
    for name, is_served in served.items():
        value = getattr(request, name)
        if value is not None and not is_served(value):
            raise InvalidRequestError(
                f"'{name}' is not supported by this server with the value given.", param=name
            )


def check_limits(request: SamplingFields, *, max_choices: int) -> None:
    """Check constraints between the request's fields. Raises InvalidRequestError."""
    if request.n is not None and request.n > max_choices:
        raise InvalidRequestError(f"'n' may be at most {max_choices} on this server.", param="n")
    if request.stream_options is not None and not request.stream:
        raise InvalidRequestError(
            "'stream_options' is only allowed when 'stream' is true.", param="stream_options"
        )
    if request.prompt_logprobs is not None and request.stream:
        raise InvalidRequestError(
            "'prompt_logprobs' is only supported when 'stream' is false.", param="prompt_logprobs"
        )
    if request.use_beam_search:
        _check_beam_search(request)


# Options that change how likely an output is; a beam search compares outputs by the model alone.
_NOT_WITH_BEAMS = (
    *("logit_bias", "allowed_token_ids", "bad_words", "presence_penalty", "frequency_penalty"),
    *("min_tokens", "prompt_logprobs", "ignore_eos"),
)


def _check_beam_search(request: SamplingFields) -> None:
    if (request.n or 1) > MAX_BEAMS:
        raise InvalidRequestError(f"A beam search keeps at most {MAX_BEAMS} beams.", param="n")
    for name in _NOT_WITH_BEAMS:
        if getattr(request, name):
            raise InvalidRequestError(
                f"'{name}' is not supported with 'use_beam_search'.", param=name
            )
    if request.repetition_penalty not in (None, 1.0):
        raise InvalidRequestError(
            "'repetition_penalty' is not supported with 'use_beam_search'.",
            param="repetition_penalty",
        )


def stop_rules(request: SamplingFields) -> StopRules:
    stop = request.stop
    strings = (stop,) if isinstance(stop, str) else tuple(stop or ())
    return StopRules(
        strings=strings,
        token_ids=tuple(request.stop_token_ids or ()),
        min_tokens=request.min_tokens or 0,
        show=request.include_stop_str_in_output,
    )


def sampling_params(
    request: SamplingFields,
    checkpoint: Checkpoint,
    *,
    vocab_size: int,
    max_tokens: int,
    logprobs: int | None,
    prompt_logprobs: int | None = None,
) -> SamplingParams:
    """Return the engine's parameters: the request's, else the checkpoint's defaults, else the
    API's.

    Raises InvalidRequestError for token ids outside the vocabulary.
    """
    defaults = checkpoint.defaults
    _check_ids(request.stop_token_ids, vocab_size, "stop_token_ids")
    _check_ids(request.allowed_token_ids, vocab_size, "allowed_token_ids")
    top_p = _first(request.top_p, defaults.top_p, 1.0)
    top_k = _first(request.top_k, defaults.top_k, 0)
    if top_p <= 0:
        # An empty nucleus still contains the most likely token.
        top_p, top_k = 1.0, 1
    if request.min_tokens is not None and request.min_tokens > max_tokens:
        raise InvalidRequestError(
            f"'min_tokens' exceeds the token limit of {max_tokens}.", param="min_tokens"
        )
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=_first(
            request.temperature, 0.0 if defaults.do_sample is False else defaults.temperature, 1.0
        ),
        top_k=max(top_k, 0),
        top_p=top_p,
        min_p=_first(request.min_p, defaults.min_p, 0.0),
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        repetition_penalty=_first(request.repetition_penalty, defaults.repetition_penalty, 1.0),
        logit_bias=_logit_bias(request.logit_bias or {}, vocab_size),
        min_tokens=request.min_tokens or 0,
        ignore_eos=request.ignore_eos,
        stop_token_ids=frozenset(request.stop_token_ids or ()),
        allowed_tokens=(
            None if request.allowed_token_ids is None else token_mask(request.allowed_token_ids)
        ),
        bad_words_token_ids=_bad_words(request.bad_words or [], checkpoint),
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
    )


def output_room(
    request: SamplingFields,
    room: int,
    *,
    wanted: int | None,
    choices: int,
    logprobs: int | None,
) -> int:
    """Return how many tokens each choice may have, of the ``room`` left in the context: fewer if
    the logprobs of more could not be kept. ``wanted``: the limit set in the request.

    Raises InvalidRequestError if the request sets a higher limit.
    """
    if logprobs is None:
        return room
    most = request.most_logprobs // (choices * (TOKEN_LOGPROBS + logprobs))
    if most == 0 or (wanted is not None and min(wanted, room) > most):
        raise InvalidRequestError(
            f"This request wants the logprobs of up to {min(wanted or room, room)} tokens, with "
            f"{logprobs} alternatives each, in each of {choices} choices: too many for one answer. "
            f"Ask for at most {most} tokens, or for fewer choices or alternatives.",
            param="logprobs",
        )
    return min(room, most)


def check_prompt_logprobs(request: SamplingFields, tokens: int, logprobs: int | None) -> None:
    """``tokens``: of the prompts of all choices. Raises InvalidRequestError for more than can be
    kept."""
    if logprobs is not None and tokens * (TOKEN_LOGPROBS + logprobs) > request.most_logprobs:
        raise InvalidRequestError(
            f"The logprobs of the prompts' tokens with {logprobs} alternatives each, {tokens} "
            "tokens counting every choice, are too many for one answer: shorten the prompts, or "
            "ask for fewer choices or alternatives.",
            param="prompt_logprobs",
        )


def truncated(ids: list[int], request: SamplingFields, context: int) -> list[int]:
    """Cut the prompt to ``truncate_prompt_tokens``; -1 means the whole context minus one token for
    the answer."""
    wanted = request.truncate_prompt_tokens
    if wanted is None:
        return ids
    size = context - 1 if wanted == -1 else wanted
    if size >= len(ids):
        return ids
    if size == 0:
        raise InvalidRequestError(
            "'truncate_prompt_tokens' leaves nothing of the prompt.",
            param="truncate_prompt_tokens",
        )
    return ids[-size:] if request.truncation_side == "left" else ids[:size]


def default_max_tokens(defaults: SamplingDefaults, room: int, fallback: int | None = None) -> int:
    """Return the limit for a request without one: the checkpoint's, else the API's, else all of the
    remaining context."""
    return max(1, min(room, defaults.max_new_tokens or fallback or room))


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)


def _check_ids(ids: list[int] | None, vocab_size: int, name: str) -> None:
    largest = max(ids or (), default=0)
    if largest >= vocab_size:
        raise InvalidRequestError(
            f"'{name}' holds {largest}, but the largest token id is {vocab_size - 1}.", param=name
        )


def _logit_bias(bias: dict[str, float], vocab_size: int) -> dict[int, float]:
    """JSON keys are strings; each must be a token id."""
    result: dict[int, float] = {}
    for key, value in bias.items():
        if not (key.isascii() and key.isdigit() and int(key) < vocab_size):
            raise InvalidRequestError(
                f"'logit_bias' has the key {key!r}, but token ids go from 0 to {vocab_size - 1}.",
                param="logit_bias",
            )
        result[int(key)] = value
    return result


def _bad_words(words: list[str], checkpoint: Checkpoint) -> tuple[tuple[int, ...], ...]:
    """Ban words both at the start of a text and after a space. Raises InvalidRequestError for words
    that are too long, individually or together."""
    sequences: dict[tuple[int, ...], None] = {}
    total = 0
    for word in words:
        bare = word.lstrip(" ")
        for spelling in (bare, " " + bare):
            ids = checkpoint.tokenizer.encode(spelling, add_special_tokens=False)
            total += len(ids)
            if len(ids) > MAX_BAD_WORD_TOKENS:
                raise InvalidRequestError(
                    f"'bad_words' has a word of {len(ids)} tokens; the limit is "
                    f"{MAX_BAD_WORD_TOKENS}.",
                    param="bad_words",
                )
            if total > MAX_BAD_WORDS_TOKENS:
                raise InvalidRequestError(
                    f"'bad_words' has more than {MAX_BAD_WORDS_TOKENS} tokens in all, counting "
                    "each word with and without a space before it; shorten the list.",
                    param="bad_words",
                )
            if ids:
                sequences[tuple(ids)] = None
    return tuple(sequences)
