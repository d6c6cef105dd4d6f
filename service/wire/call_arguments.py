"""Reads the arguments of earlier calls, as a client returns them, for chat templates."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from service.wire.messages.partial_json import SoundJson, read_cut_object


def call_arguments(text: str) -> Any:
    """Return a call's arguments as templates expect them: the object in ``text``, or as much of it
    as can be read, else the text. Many templates fail on a text, and so would all later requests
    of a conversation in which the model wrote a malformed call."""
    try:
        # Stricter than the standard library: it rejects lone surrogates, which tokenizers cannot
        # encode.
        parsed = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        return _mended(text) or text
    return parsed if isinstance(parsed, dict) else text


def _mended(text: str) -> dict[str, Any]:
    """Return the object with lone surrogates replaced, or else its complete members."""
    try:
        plain = json.dumps(json.loads(text, strict=False), ensure_ascii=False, allow_nan=False)
        whole = plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        parsed = msgspec.json.decode(whole)
    except (ValueError, RecursionError):
        sound = SoundJson()
        sound.push(text)
        return read_cut_object(sound.text)
    return parsed if isinstance(parsed, dict) else {}
