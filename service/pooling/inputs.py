"""Converts a request's texts, pairs of texts or token ids to the engine's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from service.checkpoint.tokenizer import EncodedText, Tokenizer, TooManyTokensError
from service.errors import ContextTooLongError, InvalidRequestError

Text = str | tuple[str, str]


@dataclass(frozen=True, slots=True)
class Input:
    """``second_text``: the number of tokens before a pair's second text, for models that
    distinguish them."""

    token_ids: Sequence[int]
    second_text: int | None = None


@dataclass(frozen=True, slots=True)
class Truncation:
    """``limit``: the maximum number of tokens kept, including special ones; ``keep``: which end of
    the text, or of a pair's second text."""

    limit: int
    keep: Literal["start", "end"] = "start"


def truncation(
    asked: int | None, side: Literal["left", "right"] | None, *, longest: int
) -> Truncation | None:
    """``asked``: as in ``truncate_prompt_tokens``, -1 for the model's own limit.

    Raises InvalidRequestError for a limit beyond the model's.
    """
    if asked is None:
        return None
    if asked > longest:
        raise InvalidRequestError(
            f"'truncate_prompt_tokens' may be at most {longest} with this model.",
            param="truncate_prompt_tokens",
        )
    return Truncation(longest if asked == -1 else asked, "end" if side == "left" else "start")


def encode_texts(
    texts: Sequence[Text],
    tokenizer: Tokenizer,
    *,
    names: Sequence[str],
    longest: int,
    add_special_tokens: bool = True,
    truncated: Truncation | None = None,
) -> list[Input]:
    """Encode texts. ``names``: their names in the request.

    Raises ContextTooLongError for a text that certainly has more tokens than ``longest`` and is not
    to be truncated, InvalidRequestError if it is not Unicode.
    """
    inputs = []
    for text, name in zip(texts, names, strict=True):
        try:
            part = _of_use(text, tokenizer, longest, truncated)
            encoded = tokenizer.encode_text(part, add_special_tokens=add_special_tokens)
        except TooManyTokensError as error:
            raise ContextTooLongError(
                f"This model takes at most {longest} tokens at once, but '{name}' has more. "
                "Shorten it, or set 'truncate_prompt_tokens' to -1.",
                param=name,
            ) from error
        except UnicodeEncodeError as error:
            raise InvalidRequestError(f"'{name}' is not Unicode text.", param=name) from error
        inputs.append(_input(encoded, truncated))
    return inputs


def _of_use(text: Text, tokenizer: Tokenizer, longest: int, truncated: Truncation | None) -> Text:
    """Return as much of a long text as truncation may keep; for a pair, as much of its second text,
    and as much of its first as may be kept at all. Raises TooManyTokensError."""
    if truncated is None:
        for one in (text,) if isinstance(text, str) else text:
            tokenizer.check_within(one, longest)
        return text
    limit, from_end = truncated.limit, truncated.keep == "end"
    if isinstance(text, str):
        return tokenizer.part_with(text, limit, from_end=from_end)
    first, second = text
    return (
        tokenizer.part_with(first, limit, from_end=False),
        tokenizer.part_with(second, limit, from_end=from_end),
    )


def _input(encoded: EncodedText, truncated: Truncation | None) -> Input:
    ids, types = encoded.ids, encoded.type_ids
    if truncated is not None and len(ids) > truncated.limit:
        kept = kept_places(encoded.text_of_token, truncated)
        ids, types = [ids[place] for place in kept], [types[place] for place in kept]
    return Input(ids, types.index(1) if 1 in types else None)


def kept_places(text_of_token: Sequence[int | None], truncated: Truncation) -> list[int]:
    """Return which tokens a truncation keeps. ``text_of_token``: for each token the text it belongs
    to (0, or 1 for a pair's second), None for a special one. Special tokens are kept, and so is a
    pair's first text, unless there is no room even for those."""
    last = max((text for text in text_of_token if text is not None), default=0)
    body = [place for place, text in enumerate(text_of_token) if text == last]
    surplus = len(text_of_token) - truncated.limit
    if surplus > len(body):
        return list(range(truncated.limit))
    dropped = set(body[:surplus] if truncated.keep == "end" else body[len(body) - surplus :])
    return [place for place in range(len(text_of_token)) if place not in dropped]


def truncate_ids(ids: list[int], truncated: Truncation | None) -> list[int]:
    """Truncate token ids that a client sent; none of them counts as special."""
    if truncated is None or len(ids) <= truncated.limit:
        return ids
    return ids[-truncated.limit :] if truncated.keep == "end" else ids[: truncated.limit]


def check_lengths(inputs: Sequence[Input], names: Sequence[str], *, longest: int) -> None:
    """``names``: the inputs' names in the request. Raises InvalidRequestError for an input without
    tokens, ContextTooLongError for one that is too long."""
    for one, name in zip(inputs, names, strict=True):
        count = len(one.token_ids)
        if count == 0:
            raise InvalidRequestError(f"'{name}' is empty.", param=name)
        if count > longest:
            raise ContextTooLongError(
                f"This model takes at most {longest} tokens at once, but '{name}' has {count}. "
                "Shorten it, or set 'truncate_prompt_tokens' to -1.",
                param=name,
            )
