"""What the tokenizer's files of a model directory say together, as transformers reads them.

``tokenizer.json`` suffices for newer checkpoints. Older ones keep some special and added tokens
only in the files next to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from engine.architecture.errors import ConfigError
from engine.architecture.fields import ConfigFields, read_object

TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS = (
    *("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token"),
    "mask_token",
)

_SPECIAL_MAP = "special_tokens_map.json"
_ADDED = "added_tokens.json"
_DECODER = "added_tokens_decoder"
_LISTS = ("additional_special_tokens", "extra_special_tokens")
_OWN = "model_specific_special_tokens"
_ID = re.compile("[0-9]{1,9}")
_FLAGS = ("single_word", "lstrip", "rstrip")

_Kind = TypeVar("_Kind")


class _AddedToken(msgspec.Struct):
    id: int
    content: str


class _AddedTokens(msgspec.Struct):
    added_tokens: list[_AddedToken] | None = None


class _Model(msgspec.Struct):
    vocab: dict[str, int] | list[tuple[str, float]] | None = None  # a list: Unigram's

    def ids(self) -> dict[str, int]:
        if isinstance(self.vocab, list):
            return {token: number for number, (token, _) in enumerate(self.vocab)}
        return self.vocab or {}


class _Vocabulary(msgspec.Struct):
    model: _Model = msgspec.field(default_factory=_Model)


def special_tokens(directory: Path) -> dict[str, str]:
    """Return the texts of the tokens that the files name: SPECIAL_TOKENS, and those that only this
    model has, such as ``image_token``. Raises ConfigError."""
    return _named(_special_fields(directory))


def read_tokenizer(directory: Path) -> str:
    """Return ``tokenizer.json`` with the tokens that only other files add. One that cannot have its
    id is left out unless it is special. Raises OSError, and ConfigError for such a special one."""
    text = (directory / TOKENIZER).read_text(encoding="utf-8")
    declared = [*_declared(directory)]
    if not declared:
        return text
    known = _added_ids(directory, text)
    size = _table_size(directory)
    missing = [
        token
        for token in sorted(declared, key=lambda token: token["id"])
        if token["content"] not in known and (size is None or token["id"] < size)
    ]
    if not missing:
        return text
    vocabulary = _vocabulary(directory, text)
    following = max(len(vocabulary), max(known.values(), default=-1) + 1)
    added: list[dict[str, Any]] = []
    for token in missing:
        content, number = token["content"], token["id"]
        if number == vocabulary.get(content, following):
            following += content not in vocabulary
            added.append(token)
        elif token["special"]:
            raise ConfigError(
                f"{directory / TOKENIZER} lacks the token {content!r}, which another file gives "
                f"the id {number}, and cannot give it that id; load the tokenizer with "
                "transformers, check this token and save it again"
            )
    if not added:
        return text
    fields = json.loads(text)
    fields["added_tokens"] = [*(fields.get("added_tokens") or ()), *added]
    return json.dumps(fields, ensure_ascii=False)


def named_end(directory: Path) -> int | None:
    """Return the id of the tokenizer's ``eos_token``; None if it has none. Raises ConfigError."""
    end = special_tokens(directory).get("eos_token")
    if end is None or (text := _found(directory)) is None:
        return None
    added = _added_ids(directory, text)
    return added[end] if end in added else _vocabulary(directory, text).get(end)


def token_ids(directory: Path) -> set[int]:
    """Return the ids of all tokens; none if there is no tokenizer. Raises ConfigError."""
    if (text := _found(directory)) is None:
        return set()
    return {*_vocabulary(directory, text).values(), *_added_ids(directory, text).values()}


def _found(directory: Path) -> str | None:
    """Return what ``read_tokenizer`` does; None if there is no file. Raises ConfigError."""
    if not (directory / TOKENIZER).is_file():
        return None
    try:
        return read_tokenizer(directory)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {directory / TOKENIZER}: {error}") from error


def _special_fields(directory: Path) -> dict[str, object]:
    config = _object(directory / TOKENIZER_CONFIG)
    if config.has(_DECODER):  # then it is complete
        return config.values
    named = _object(directory / _SPECIAL_MAP)
    return config.values | {name: named.values[name] for name in named.values if named.has(name)}


def _named(fields: dict[str, object]) -> dict[str, str]:
    """Return the texts of tokens by their names. The last place that has a name counts."""
    own = {name: token for name, token in fields.items() if name.endswith("_token")}
    texts: dict[str, str] = {}
    for group in (fields.get(_OWN), own, *map(fields.get, _LISTS)):
        for name, token in group.items() if isinstance(group, dict) else ():
            if (text := _text(token)) is not None:
                texts[name] = text
    return texts


def _declared(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the added tokens that files other than ``tokenizer.json`` name, as it would."""
    config = _object(directory / TOKENIZER_CONFIG)
    fields = _special_fields(directory)
    named = {*_named(fields).values()}
    if (decoder := config.section(_DECODER)) is not None:
        for number, token in decoder.values.items():
            text = _text(token)
            if not _ID.fullmatch(number) or text is None or not isinstance(token, dict):
                raise decoder.error(number, "an id with a token", token)
            is_special = token.get("special") is True or text in named
            flags = {flag: token.get(flag) is True for flag in _FLAGS}
            flags["normalized"] = token.get("normalized", not is_special) is True
            yield _added(text, int(number), is_special, **flags)
        return
    usual = {*_usual_texts(fields)}
    added = _object(directory / _ADDED)
    for content in added.values:
        place = added.integer(content, low=0, high=(1 << 31) - 1)
        is_usual = content in usual
        yield _added(content, place, is_usual or content in named, normalized=not is_usual)


def _added(text: str, number: int, is_special: bool, **flags: bool) -> dict[str, Any]:
    usual = dict.fromkeys(_FLAGS, False)
    return {"id": number, "content": text, **usual, **flags, "special": is_special}


def _usual_texts(fields: dict[str, object]) -> Iterator[str]:
    """Yield the texts of the special tokens that transformers does not normalize by default: all
    but those that only this model names."""
    listed = [
        one for name in _LISTS if isinstance(found := fields.get(name), list) for one in found
    ]
    for token in (*listed, *(fields.get(name) for name in SPECIAL_TOKENS)):
        if (text := _text(token)) is not None:
            yield text


def _text(token: object) -> str | None:
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _object(path: Path) -> ConfigFields:
    """Return the JSON object; an empty one if there is no file."""
    return read_object(path) if path.is_file() else ConfigFields(str(path), {})


def _table_size(directory: Path) -> int | None:
    """Return how many tokens the model has, as config.json says; None if it does not."""
    config = _object(directory / "config.json")
    for fields in (config, config.section("text_config")):
        if fields is not None and isinstance(size := fields.values.get("vocab_size"), int):
            return size
    return None


def _added_ids(directory: Path, text: str) -> dict[str, int]:
    return {
        one.content: one.id for one in _decoded(directory, text, _AddedTokens).added_tokens or ()
    }


def _vocabulary(directory: Path, text: str) -> dict[str, int]:
    return _decoded(directory, text, _Vocabulary).model.ids()


def _decoded(directory: Path, text: str, kind: type[_Kind]) -> _Kind:
    """Decode no more of a large tokenizer than ``kind`` has."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ConfigError(f"{directory / TOKENIZER} is not a tokenizer: {error}") from error
