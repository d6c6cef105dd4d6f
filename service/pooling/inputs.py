"""Converts a request's texts, pairs of texts or token ids to the engine's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from service.checkpoint.tokenizer import (
    EncodedText,
    Tokenizer,
    TooManyTokensError,
    UntokenizableError,
)
from service.errors import ContextTooLongError, InvalidRequestError

Text = str | tuple[str, str]

SHORTEN_OR_TRUNCATE = "Shorten it, or set 'truncate_prompt_tokens' to -1."


@dataclass(frozen=True, slots=True)
class Input:
    """``second_text``: the number of tokens before a pair's second text, for models that
    distinguish them. ``cut_to``: how many tokens of the text, or of a pair's second one, truncation
    kept; None if all. 0 also if a pair's first text left no room."""

    token_ids: Sequence[int]
    second_text: int | None = None
    cut_to: int | None = None


@dataclass(frozen=True, slots=True)
class Truncation:
    """``limit``: the maximum number of tokens kept, including special ones; None: an input that is
    too long is refused. ``keep``: which end of the text, or of a pair's second text. ``of_texts``:
    the maximum for the text, or for each text of a pair, without special tokens; its end is cut."""

    limit: int | None
    keep: Literal["start", "end"] = "start"
    of_texts: tuple[int | None, ...] = ()


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
    advice: str = SHORTEN_OR_TRUNCATE,
) -> list[Input]:
    """Encode texts. ``names``: their names in the request. ``advice``: what to do about a text that
    is too long.

    Raises ContextTooLongError for a text that certainly has more tokens than ``longest`` and is not
    to be truncated, InvalidRequestError if it is not Unicode, or if the tokenizer gives up on it.
    """
    inputs = []
    for text, name in zip(texts, names, strict=True):
        try:
            part = _of_use(text, tokenizer, longest, truncated)
            encoded = tokenizer.encode_text(part, add_special_tokens=add_special_tokens)
        except TooManyTokensError as error:
            raise ContextTooLongError(
                f"This model takes at most {longest} tokens at once, but '{name}' has more. "
                + advice,
                param=name,
            ) from error
        except UnicodeEncodeError as error:
            raise InvalidRequestError(f"'{name}' is not Unicode text.", param=name) from error
        except UntokenizableError as error:
            raise untokenizable(name) from error
        inputs.append(_input(encoded, truncated, last=0 if isinstance(text, str) else 1))
    return inputs


def untokenizable(param: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"The model's tokenizer gives up on '{param}': one of its regular expressions takes too "
        "many steps for this text. Change the text; long runs of one character are a common cause.",
        param=param,
    )


def _of_use(text: Text, tokenizer: Tokenizer, longest: int, truncated: Truncation | None) -> Text:
    """Return as much of a long text as truncation may keep; for a pair, as much of its second text,
    and as much of its first as may be kept at all. Raises TooManyTokensError."""
    if isinstance(text, str):
        return _part_of_use(text, 0, tokenizer, longest, truncated, is_last=True)
    first, second = text
    return (
        _part_of_use(first, 0, tokenizer, longest, truncated, is_last=False),
        _part_of_use(second, 1, tokenizer, longest, truncated, is_last=True),
    )


def _part_of_use(
    text: str,
    place: int,
    tokenizer: Tokenizer,
    longest: int,
    truncated: Truncation | None,
    *,
    is_last: bool,
) -> str:
    limits = () if truncated is None else (truncated.limit, *truncated.of_texts[place : place + 1])
    limit = min((one for one in limits if one is not None), default=longest + 1)
    if truncated is None or limit > longest:
        tokenizer.check_within(text, longest)
        return text
    return tokenizer.part_with(text, limit, from_end=is_last and truncated.keep == "end")


def _input(encoded: EncodedText, truncated: Truncation | None, last: int) -> Input:
    """``last``: the number of the last text, which may have no tokens."""
    ids, types = encoded.ids, encoded.type_ids
    cut_to = None
    if truncated is not None and _may_cut(len(ids), truncated):
        text_of_token = encoded.text_of_token
        kept = kept_places(text_of_token, truncated, last)
        left = [text_of_token[place] for place in kept]
        most = text_of_token.count(0)
        if truncated.of_texts and truncated.of_texts[0] is not None:
            most = min(most, truncated.of_texts[0])
        if last and left.count(0) < most:
            cut_to = 0  # there was no room even for the first text
        elif left.count(last) < text_of_token.count(last):
            cut_to = left.count(last)
        ids, types = [ids[place] for place in kept], [types[place] for place in kept]
    return Input(ids, types.index(1) if 1 in types else None, cut_to)


def _may_cut(num_tokens: int, truncated: Truncation) -> bool:
    limits = (truncated.limit, *truncated.of_texts)
    return any(limit is not None and num_tokens > limit for limit in limits)


def kept_places(text_of_token: Sequence[int | None], truncated: Truncation, last: int) -> list[int]:
    """Return which tokens a truncation keeps. ``text_of_token``: for each token the text it belongs
    to (0, or 1 for a pair's second), None for a special one; ``last``: the number of the last text.
    Special tokens are kept, and so is a pair's first text up to its own limit, unless there is no
    room even for those."""
    places = list(range(len(text_of_token)))
    for text, most in enumerate(truncated.of_texts):
        body = [place for place in places if text_of_token[place] == text]
        if most is not None and most < len(body):
            dropped = set(body[most:])
            places = [place for place in places if place not in dropped]
    if truncated.limit is None or len(places) <= truncated.limit:
        return places
    body = [place for place in places if text_of_token[place] == last]
    surplus = len(places) - truncated.limit
    if surplus > len(body):
        return places[: truncated.limit]
    dropped = set(body[:surplus] if truncated.keep == "end" else body[len(body) - surplus :])
    return [place for place in places if place not in dropped]


def truncate_ids(ids: list[int], truncated: Truncation | None) -> list[int]:
    """Truncate token ids that a client sent; none of them counts as special."""
    limit = None if truncated is None else truncated.limit
    if truncated is None or limit is None or len(ids) <= limit:
        return ids
    return ids[-limit:] if truncated.keep == "end" else ids[:limit]


def check_lengths(
    inputs: Sequence[Input],
    names: Sequence[str],
    *,
    longest: int,
    advice: str = SHORTEN_OR_TRUNCATE,
) -> None:
    """``names``, ``advice``: as in ``encode_texts``. Raises InvalidRequestError for an input
    without tokens, ContextTooLongError for one that is too long."""
    for one, name in zip(inputs, names, strict=True):
        count = len(one.token_ids)
        if count == 0:
            raise InvalidRequestError(f"'{name}' is empty.", param=name)
        if count > longest:
            raise ContextTooLongError(
                f"This model takes at most {longest} tokens at once, but '{name}' has {count}. "
                + advice,
                param=name,
            )
