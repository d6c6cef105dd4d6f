"""Token usage as OpenAI's APIs report it."""

from __future__ import annotations

import msgspec

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
    """Return the generation's usage so far. ``completion_tokens`` overrides the count, for a
    request without output."""
    output = generation.output_tokens if completion_tokens is None else completion_tokens
    prompt = generation.prompt_tokens
    return Usage(
        prompt,
        output,
        prompt + output,
        PromptTokensDetails(generation.cached_tokens),
        CompletionTokensDetails(generation.reasoning_tokens),
    )


def running_usage(prompt: int, told: int) -> bytes:
    """Return only the counts, as JSON, for a chunk of one choice: the tokens of its prompt, and how
    many tokens of the choice have been sent so far."""
    return b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}' % (
        prompt,
        told,
        prompt + told,
    )
