"""Checks a hub's answers before the library turns them into paths, or keeps them in memory.

The library names files in the cache after a hub's answers: a blob's name is its ETag. Without these
checks an untrusted mirror or proxy could write anywhere. It also reads every answer except files
whole, so an endless one, or a small one that decompresses to gigabytes, would fill all memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from huggingface_hub import constants, get_session, set_client_factory

from service.hub.errors import HubError
from service.hub.place import is_commit
from service.hub.units import in_units

# Unpacked. A file's entry in the list of a repository has about 220 bytes; parsed, an answer may
# take thirty times as much memory as its text.
_MOST_INFORMATION = 16_000_000
_MOST_ERROR = 1_000_000
_MOST_NAME = 255
_DIGEST = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})?")
_ETAG = re.compile(r'(?:W/)?"?[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*"?')
# Control characters: names are shown. Surrogates: a file cannot have them.
_UNUSUAL = re.compile(r"[\\\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_HASH = re.compile(r"[0-9a-f]{64}")


def check_commit(commit: str | None) -> str:
    """Return the commit that a hub names. Raises HubError."""
    if commit is None or not is_commit(commit):
        raise _refused("a commit")
    return commit


def check_digest(digest: str) -> str:
    """Return a file's digest; empty if the hub has none. Raises HubError."""
    if _DIGEST.fullmatch(digest) is None:
        raise _refused("a checksum")
    return digest


def check_path(name: str) -> str:
    """Return the name of a file, which leads to nowhere but below its directory and has only
    characters that can be shown. Raises HubError."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or _UNUSUAL.search(name) is not None:
        raise _refused("the name of a file")
    return name


def watch_answers() -> None:
    """Have each answer to the library checked: its requests then raise HubError. Call it once in a
    process."""
    session = get_session()
    requests = session.event_hooks["request"]

    def client() -> Any:
        hooks = {"request": requests, "response": [_bound, _check]}
        return type(session)(event_hooks=hooks, follow_redirects=True, timeout=None)

    set_client_factory(client)


def _bound(response: Any) -> None:
    """Have it raise HubError if the library reads it as a whole and it is too large. Files are read
    in pieces of a given size; see bounded.py."""
    most = _MOST_INFORMATION if response.is_success else _MOST_ERROR
    unbounded = response.iter_bytes

    def bounded(chunk_size: int | None = None) -> Iterator[bytes]:
        there = 0
        for piece in unbounded(chunk_size):
            there += len(piece)
            if chunk_size is None and there > most:
                raise HubError(
                    f"the hub's answer (HTTP {response.status_code}) is not a file and has more "
                    f"than {in_units(most)}, the limit; check HF_ENDPOINT and any proxy"
                )
            yield piece

    response.iter_bytes = bounded


def _check(response: Any) -> None:
    """Raises HubError."""
    headers = response.headers
    for name, pattern, what in (
        (constants.HUGGINGFACE_HEADER_X_LINKED_ETAG, _ETAG, "an ETag"),
        (constants.HUGGINGFACE_HEADER_X_XET_HASH, _HASH, "a hash"),
    ):
        value = headers.get(name)
        if value is not None and not (len(value) <= _MOST_NAME and pattern.fullmatch(value)):
            raise _refused(what)
    if response.request.method != "HEAD":  # of these, nothing becomes a path
        return
    etag = headers.get("etag")
    if etag is not None and not (len(etag) <= _MOST_NAME and _ETAG.fullmatch(etag)):
        raise _refused("an ETag")
    commit = headers.get(constants.HUGGINGFACE_HEADER_X_REPO_COMMIT)
    if commit is not None:
        check_commit(commit)


def _refused(what: str) -> HubError:
    return HubError(f"the hub's answer has {what} of a wrong form; check HF_ENDPOINT and any proxy")
