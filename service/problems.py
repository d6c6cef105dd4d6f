"""What is wrong with something that an operator wrote: which field, and what is allowed."""

from __future__ import annotations

import re
from typing import Any

import msgspec

_UNKNOWN = re.compile(r"Object contains unknown field (.*)", re.DOTALL)
_ITEM = re.compile(r"(\w+)\[(\d+)\]")


def problem_in(error: msgspec.ValidationError, kind: type[Any]) -> str:
    """Return ``error`` in words. ``kind``: of the object with the field at fault. Items are counted
    from 1: ``keys[2]`` is the second."""
    text, _, path = str(error).replace("`", "").partition(" - at $")
    path = _ITEM.sub(lambda found: f"{found[1]}[{int(found[2]) + 1}]", path.lstrip("."))
    if unknown := _UNKNOWN.fullmatch(text):
        known = msgspec.structs.fields(kind) if issubclass(kind, msgspec.Struct) else ()
        fields = ", ".join(field.encode_name for field in known)
        text = f"there is no field '{unknown[1]}'; the fields are {fields or 'none'}"
    else:
        text = text[:1].lower() + text[1:]
    return f"{path}: {text}" if path else text
