"""Admin keys as operators write them: ``KEY``, ``SCOPE=KEY`` or ``SCOPE:ALIAS=KEY``.

The alias is what the audit trail shows of a key, which itself is shown nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from observability.admin_api import AdminScope

# What follows must not begin with "=", as the end of base64 does.
_WITH_SCOPE = re.compile(r"(read|operate)(?::([a-z0-9_-]{1,32}))?=([^=].*)", re.DOTALL)
# What is left of SCOPE:ALIAS=$KEY where the variable is not set.
_WITHOUT_KEY = re.compile(r"(?:read|operate)(?::[a-z0-9_-]{1,32})?=")
_SCOPED = re.compile(r"(?:read|operate):")  # taken as a whole it could operate
_RESERVED = re.compile(r"loopback|loadtest|(?:read|operate)[0-9]+")
LEAST_KEY_CHARS = 8


@dataclass(frozen=True, slots=True)
class AdminKey:
    key: str = field(repr=False)
    alias: str
    scope: AdminScope


def admin_keys(written: Iterable[str]) -> tuple[AdminKey, ...]:
    """Return each key once, in the order written. One without a scope may operate; one without an
    alias gets its scope and its position, from 1.

    Raises ValueError, without quoting a key, for an alias that is malformed or reserved, a key that
    is missing or too short, or the same key twice.
    """
    found: dict[str, AdminKey] = {}
    for position, text in enumerate(written, 1):
        if _WITHOUT_KEY.fullmatch(text):
            raise ValueError(f"key {position} is empty after {text!r}; write the key there")
        match = _WITH_SCOPE.fullmatch(text)
        if match is None and (begun := _SCOPED.match(text)):
            raise ValueError(
                f"key {position} begins with {begun[0]!r}, so it must be SCOPE:ALIAS=KEY; the "
                "alias has 1 to 32 characters of a-z, 0-9, _ and -, and the key does not begin "
                "with '='"
            )
        scope = AdminScope.OPERATE if match is None else AdminScope(match[1])
        key = text if match is None else match[3]
        named = None if match is None else match[2]
        if named is not None and _RESERVED.fullmatch(named):
            raise ValueError(f"the alias {named!r} is reserved; choose another one")
        if len(key) < LEAST_KEY_CHARS:
            raise ValueError(
                f"key {position} has fewer than {LEAST_KEY_CHARS} characters; choose a longer one"
            )
        if key in found:
            raise ValueError(f"key {position} was already given; remove one of the two")
        found[key] = AdminKey(key, named or f"{scope.value}{position}", scope)
    return tuple(found.values())
