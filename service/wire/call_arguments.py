"""Reads the arguments of earlier calls, as a client returns them, for chat templates."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from service.conversation import CallArguments
from service.wire.messages.partial_json import SoundJson, read_cut_object


def call_arguments(text: str) -> Any:
    """Return a call's arguments as templates expect them: the object in ``text``, with the text, or
    as much of it as can be read, else the text. Many templates fail on a text, and so would all
    later requests of a conversation in which the model wrote a malformed call."""
    if not text or text.isspace():
        return {}
    try:
        # Stricter than the standard library: it rejects lone surrogates, which tokenizers cannot
        # encode.
        parsed = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return _mended(text) or ({} if text.lstrip().startswith("{") else text)
    return CallArguments(parsed, text) if isinstance(parsed, dict) else text


def _mended(text: str) -> dict[str, Any]:
    """Return the object with lone surrogates replaced and numbers out of range as text, or else its
    complete members."""
    try:
        read = json.loads(
            text,
            strict=False,
            parse_float=_float,
            parse_int=_integer,
            parse_constant=str,  # NaN and Infinity, which are not JSON
        )
        plain = json.dumps(read, ensure_ascii=False)
        whole = plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        parsed = msgspec.json.decode(whole)
    except (ValueError, RecursionError):
        sound = SoundJson()
        sound.push(text)
        return read_cut_object(sound.text)
    return parsed if isinstance(parsed, dict) else {}


def _integer(text: str) -> int | str:
    """Python refuses integers of more than 4,300 digits: to read them takes quadratic time."""
    try:
        return int(text)
    except ValueError:
        return text


def _float(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text
