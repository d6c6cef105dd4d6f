"""Reads API keys from a file: TOML, or JSON or plain text if its name ends so.

    [[keys]]
    alias = "research"
    key = "qk_…"                      # or sha256 = "…", the digest of the key
    expires = 2027-01-01T00:00:00Z
    requests_per_minute = 600

A text has keys as --api-key takes them, KEY or ALIAS=KEY, separated by commas or lines.

No message quotes what could be a key.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
import tomllib
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from service.api_keys import api_keys
from service.problems import IN_WORDS, problem_in
from service.tenants.stored_key import KEY_MARK, KeyGrant, StoredKey, digest_of

_MOST_BYTES = 16 << 20
MOST_KEYS = 10_000
_LEAST_KEY_CHARS = 8
# No field is as long, and no key that we make as short.
_COULD_BE_KEY = re.compile(r"[A-Za-z0-9_+/=-]{20,}")

_Digest = Annotated[
    str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)", extra={IN_WORDS: "64 of 0-9 and a-f"})
]


class _Entry(KeyGrant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    key: Annotated[str, Meta(max_length=1024)] | None = None
    sha256: _Digest | None = None
    expires: datetime.datetime | None = None


_Keys = Annotated[tuple[_Entry, ...], Meta(max_length=MOST_KEYS)]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: _Keys | msgspec.UnsetType = msgspec.UNSET


def read_key_file(path: Path, *, may_be_empty: bool = True) -> tuple[StoredKey, ...]:
    """Return the keys in the order written. ``may_be_empty``: a file that says nothing of keys has
    none; otherwise that is an error, because a file is empty while it is being written. Raises
    OSError, or ValueError with the reason."""
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"the file has more than {_MOST_BYTES} bytes")
    if path.suffix == ".txt":
        listed = _listed(data.decode())
        if not (listed or may_be_empty):
            raise ValueError("the file is empty; to revoke all its keys, restart the server")
        return listed
    try:
        found = msgspec.convert(_parsed(path, data), _File, strict=True)
    except msgspec.ValidationError as error:
        problem = problem_in(error, _File, whole="the file")
        raise ValueError(_COULD_BE_KEY.sub("…", problem.text)) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(_COULD_BE_KEY.sub("…", str(error))) from None
    if found.keys is msgspec.UNSET:
        if not may_be_empty:
            empty = '{"keys": []}' if path.suffix == ".json" else "keys = []"
            raise ValueError(f"the file has no keys; to revoke all its keys, write `{empty}`")
        return ()
    keys: dict[str, StoredKey] = {}
    for number, entry in enumerate(found.keys, 1):
        try:
            stored = _stored(entry)
            if stored.digest in keys:
                raise ValueError("it is in the file before; remove one of the two")
        except ValueError as error:
            raise ValueError(f"key {number}: {error}") from None
        keys[stored.digest] = stored
    return tuple(keys.values())


def _listed(text: str) -> tuple[StoredKey, ...]:
    parts = [part.strip() for line in text.splitlines() for part in line.split(",")]
    listed = [part for part in parts if part]
    if len(listed) > MOST_KEYS:
        raise ValueError(f"the file has more than {MOST_KEYS} keys")
    keys = api_keys(listed)
    for number, key in enumerate(keys, 1):
        if len(key.key) < _LEAST_KEY_CHARS:
            raise ValueError(f"key {number} has fewer than {_LEAST_KEY_CHARS} characters")
    return tuple(_from_file(digest_of(key.key), KeyGrant(alias=key.alias), key.key) for key in keys)


def _parsed(path: Path, data: bytes) -> object:
    if path.suffix == ".json":
        return json.loads(data)
    return tomllib.loads(data.decode())


def _stored(entry: _Entry) -> StoredKey:
    entry.check()
    if (entry.key is None) == (entry.sha256 is None):
        raise ValueError("give either 'key' or 'sha256'")
    if entry.key is not None and len(entry.key) < _LEAST_KEY_CHARS:
        raise ValueError(f"'key' has fewer than {_LEAST_KEY_CHARS} characters")
    expires = entry.expires
    if expires is not None and expires.tzinfo is None:
        expires = expires.replace(tzinfo=datetime.UTC)
    fields = {name: getattr(entry, name) for name in KeyGrant.__struct_fields__}
    return _from_file(
        entry.sha256 or digest_of(entry.key or ""),
        KeyGrant(**fields),
        entry.key or "",
        None if expires is None else expires.timestamp(),
    )


def _from_file(digest: str, grant: KeyGrant, key: str, expires: float | None = None) -> StoredKey:
    return StoredKey(
        # Keys that people choose are short: not even a part of one is shown.
        id="file_" + hashlib.sha256(digest.encode()).hexdigest()[:8],
        shown=key[:9] if key.startswith(KEY_MARK) else "",
        digest=digest,
        grant=grant,
        expires=expires,
        source="file",
    )
