"""The fields that chat and completion requests share.

Everything that could cost memory or time has a limit here, checked while the body is decoded.
Fields of OpenAI's that do not change the answer of a local model are accepted and ignored
(``IgnoredFields``); fields that would change it and are not supported are rejected by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from service.errors import InvalidRequestError
from service.tenants.tier import Tier
from service.wire.tiers import OPENAI_TIERS, OpenAITier

MAX_TOP_LOGPROBS = 20
# Numbers kept for one request until its answer is sent, at 8 bytes each: 128 MiB. A token counts as
# this many in addition to its alternatives.
MAX_LOGPROBS = 1 << 24
TOKEN_LOGPROBS = 25
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
    service_tier: OpenAITier | None = None
    return_tokens_as_token_ids: bool = False

    other_names: ClassVar[dict[str, str]] = {"repeat_penalty": "repetition_penalty"}

    @property
    def most_logprobs(self) -> int:
        """How many numbers an answer's logprobs may have; see ``output_room``."""
        return MAX_LOGPROBS

    @property
    def tier(self) -> Tier | None:
        return OPENAI_TIERS.get(self.service_tier or "")

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


# A beam search compares outputs by the model alone, and only tokens can end them.
_NOT_WITH_BEAMS = (
    *("logit_bias", "allowed_token_ids", "bad_words", "presence_penalty", "frequency_penalty"),
    *("min_tokens", "prompt_logprobs", "ignore_eos", "stop"),
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
