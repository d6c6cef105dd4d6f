"""Token usage as OpenAI's APIs report it."""

from __future__ import annotations

import msgspec

from service.generation.log import fold
from service.generation.request import Generation


class PromptTokensDetails(msgspec.Struct, frozen=True):
    cached_tokens: int = 0


class CompletionTokensDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int = 0


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


def usage_of(generation: Generation, *, completion_tokens: int | None = None) -> Usage:
    """What the generation has cost so far. ``completion_tokens`` overrides the count, for a
    request that asked for no output."""
    output = generation.output_tokens if completion_tokens is None else completion_tokens
    prompt = generation.prompt_tokens
    reasoning = sum(fold(choice.events).reasoning_tokens for choice in generation.choices)
    return Usage(
        prompt,
        output,
        prompt + output,
        PromptTokensDetails(generation.cached_tokens),
        CompletionTokensDetails(reasoning),
    )


def running_usage(generation: Generation, *, completion_tokens: int | None = None) -> bytes:
    """The counts alone, as JSON, cheap enough for every chunk; see ``usage_of``."""
    output = generation.output_tokens if completion_tokens is None else completion_tokens
    prompt = generation.prompt_tokens
    return b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}' % (
        prompt,
        output,
        prompt + output,
    )
