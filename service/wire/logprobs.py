"""Log probabilities in the two shapes that OpenAI's APIs have."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from engine.messages import TokenLogprobs
from service.prompt.vocabulary import Vocabulary

# JSON has no minus infinity; a token that was masked out shows as this.
MIN_LOGPROB = -9999.0


class TopLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int] | None


class ChatTokenLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True):
    content: list[ChatTokenLogprob]
    refusal: None = None


class PromptLogprob(msgspec.Struct, frozen=True):
    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]


class TextLogprobs(msgspec.Struct, frozen=True):
    """The completions shape: parallel lists; ``text_offset`` counts characters of the choice's
    text (prompt included where it is echoed)."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


def chat_logprobs(
    vocabulary: Vocabulary, tokens: Sequence[int], logprobs: Sequence[TokenLogprobs], top: int
) -> ChatLogprobs:
    """One entry for each token that made text."""
    return ChatLogprobs(
        [
            ChatTokenLogprob(
                vocabulary.text_of(token),
                max(entry.logprob, MIN_LOGPROB),
                list(vocabulary.bytes_of(token)),
                [
                    TopLogprob(
                        vocabulary.text_of(other.token_id),
                        max(other.logprob, MIN_LOGPROB),
                        list(vocabulary.bytes_of(other.token_id)),
                    )
                    for other in entry.top[:top]
                ],
            )
            for token, entry in zip(tokens, logprobs, strict=True)
        ]
    )


def text_logprobs(
    vocabulary: Vocabulary,
    tokens: Sequence[int],
    logprobs: Sequence[TokenLogprobs | None],
    top: int,
    offset: int,
) -> tuple[TextLogprobs, int]:
    """``offset`` is where the first token's text begins; also returned: where the last one's
    ends. A token without logprobs is the prompt's first."""
    result = TextLogprobs([], [], [], [])
    for token, entry in zip(tokens, logprobs, strict=True):
        text = vocabulary.text_of(token)
        result.tokens.append(text)
        result.text_offset.append(offset)
        offset += len(text)
        if entry is None:
            result.token_logprobs.append(None)
            result.top_logprobs.append(None)
            continue
        logprob = max(entry.logprob, MIN_LOGPROB)
        result.token_logprobs.append(logprob)
        likely: dict[str, float] = {}
        for other in entry.top[:top]:
            likely.setdefault(vocabulary.text_of(other.token_id), max(other.logprob, MIN_LOGPROB))
        likely.setdefault(text, logprob)
        result.top_logprobs.append(likely)
    return result, offset


def prompt_logprobs(
    vocabulary: Vocabulary, prompt: Sequence[int], logprobs: Sequence[TokenLogprobs]
) -> PromptLogprobs:
    """By token id, for each prompt token; None for the first, which nothing predicts."""
    result: PromptLogprobs = [None]
    for token, entry in zip(prompt[1:], logprobs, strict=True):
        alternatives = {
            str(other.token_id): PromptLogprob(
                max(other.logprob, MIN_LOGPROB), rank, vocabulary.text_of(other.token_id)
            )
            for rank, other in enumerate(entry.top, start=1)
        }
        alternatives.setdefault(
            str(token),
            PromptLogprob(max(entry.logprob, MIN_LOGPROB), entry.rank, vocabulary.text_of(token)),
        )
        result.append(alternatives)
    return result
