"""API keys as operators write them: ``KEY``, or ``ALIAS=KEY`` to name whose it is.

An alias is what logs, traces and metrics show of a key, which itself is shown nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

# What follows must not begin with "=", as the end of base64 does.
_WITH_ALIAS = re.compile(r"([a-z0-9_-]{1,32})=([^=].*)", re.DOTALL)
# What is left of ALIAS=$KEY where the variable is not set. Base64 hardly ever looks like that: its
# letters are of both cases.
_WITHOUT_KEY = re.compile(r"[a-z0-9_-]{0,32}=")
# "other" is what metrics call the rest, "loadtest" the server's own load runs, "key1" the first key
# without an alias.
_RESERVED = re.compile(r"other|loadtest|key[0-9]+")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """``alias``: of the tenant, which several keys may share. ``written``: the key as it was
    configured, with its alias. Clients may send that as well: then a key that only looks like
    ``ALIAS=KEY`` works, and so does a client that reads the server's own variable.
    ``has_priority``: its requests may go ahead of others.
    """

    key: str = field(repr=False)
    written: str = field(repr=False)
    alias: str
    has_priority: bool = False


def split_alias(written: str) -> tuple[str | None, str]:
    """Return the alias, if there is one, and the key."""
    match = _WITH_ALIAS.fullmatch(written)
    return (None, written) if match is None else (match[1], match[2])


def api_keys(plain: Iterable[str], priority: Iterable[str] = ()) -> tuple[ApiKey, ...]:
    """Return each key once, in the order written. One without an alias gets ``key`` and its
    position, from 1.

    Raises ValueError, without quoting a key, for an alias that is reserved or without a key, or a
    second one of the same key.
    """
    found: dict[str, ApiKey] = {}
    aliases: dict[str, str] = {}
    both = ((False, plain), (True, priority))
    every = ((each, number, one) for each, keys in both for number, one in enumerate(keys, 1))
    for has_priority, position, written in every:
        _check_not_empty(written, f"{'priority key' if has_priority else 'key'} {position}")
        alias, key = split_alias(written)
        if alias is not None:
            _check_alias(alias, aliases.setdefault(key, alias))
        known = found.get(key)
        found[key] = ApiKey(
            key,
            written if known is None or alias is not None else known.written,
            alias or (f"key{len(found) + 1}" if known is None else known.alias),
            has_priority or (known is not None and known.has_priority),
        )
    return tuple(found.values())


def check_reserved(alias: str) -> None:
    """Raise ValueError for a reserved alias."""
    if _RESERVED.fullmatch(alias):
        raise ValueError(f"the alias {alias!r} is reserved; choose another one")


def _check_not_empty(written: str, which: str) -> None:
    # Not quoted: it may be a whole key.
    if _WITHOUT_KEY.fullmatch(written):
        raise ValueError(
            f"{which} is empty after '='; write ALIAS=KEY, even if the key itself ends in '='"
        )


def _check_alias(alias: str, first: str) -> None:
    check_reserved(alias)
    if alias != first:
        raise ValueError(f"one key has two aliases, {first!r} and {alias!r}")
