"""Where the references of a JSON schema lead."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote


def steps_of(reference: str) -> list[str] | None:
    """Return the keys on the way to a reference's target; None if it is not a pointer into the same
    schema. Pointers may be percent-encoded."""
    if reference == "#":
        return []
    if not reference.startswith("#/"):
        return None
    steps = unquote(reference[2:]).split("/")
    return [step.replace("~1", "/").replace("~0", "~") for step in steps]


def target_of(reference: str, root: Any) -> Any:
    """Return the part of the schema ``root`` to which a reference points; None if there is none."""
    steps = steps_of(reference)
    if steps is None:
        return None
    found = root
    for step in steps:
        if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        else:
            found = found.get(step) if isinstance(found, dict) else None
    return found
