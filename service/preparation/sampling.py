"""Converts a request's sampling fields to engine parameters: the request's own values, else the
checkpoint's defaults, else the API's."""

from __future__ import annotations

from typing import Any

from engine.messages import MAX_BAD_WORD_TOKENS, SamplingParams, token_mask
from service.checkpoint.checkpoint import Checkpoint
from service.checkpoint.defaults import SamplingDefaults
from service.checkpoint.tokenizer import UntokenizableError
from service.errors import InvalidRequestError
from service.generation.choice import StopRules
from service.pooling.inputs import untokenizable
from service.wire.sampling import TOKEN_LOGPROBS, SamplingFields

MAX_BAD_WORDS_TOKENS = 2048  # of all bad words, each in both its spellings

# Of all beams together. With a million, one step took 8 ms of the event loop and 180 ms of the
# engine.
MOST_BEAM_TOKENS = 65_536


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
    check_min_tokens(request, max_tokens)
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


def check_min_tokens(request: SamplingFields, limit: int) -> None:
    """``limit``: how many tokens each choice can have. Raises InvalidRequestError for fewer than
    the request demands."""
    if request.min_tokens is not None and request.min_tokens > limit:
        raise InvalidRequestError(
            f"'min_tokens' is {request.min_tokens}, but this request can have at most {limit} "
            "output tokens (its own limit, or the room that its prompt leaves in the context).",
            param="min_tokens",
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


def beam_limit(
    request: SamplingFields, prompt_tokens: int, max_tokens: int, *, is_set: bool
) -> int:
    """Return the token limit, cut for a beam search unless its client has set it: each step of a
    search submits every beam again, with the prompt. Raises InvalidRequestError for one that would
    slow down everyone."""
    beams = request.n or 1
    if not request.use_beam_search:
        return max_tokens
    if not is_set:
        max_tokens = max(1, min(max_tokens, MOST_BEAM_TOKENS // beams - prompt_tokens))
    tokens = beams * (prompt_tokens + max_tokens)
    if tokens > MOST_BEAM_TOKENS:
        raise InvalidRequestError(
            f"{beams} beams of {prompt_tokens} prompt tokens and up to {max_tokens} more are "
            f"{tokens} tokens, and a beam search may have {MOST_BEAM_TOKENS}; shorten the prompt, "
            "lower the token limit, or use fewer beams.",
            param="use_beam_search",
        )
    return max_tokens


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
            try:
                ids = checkpoint.tokenizer.encode(spelling, add_special_tokens=False)
            except UntokenizableError as error:
                raise untokenizable("bad_words") from error
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
