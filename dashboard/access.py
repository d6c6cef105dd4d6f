"""Who a visitor is to a server's admin API, and with which key the pages ask it."""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import streamlit as st

from dashboard.admin_client import AdminClient, AdminRefusalError
from dashboard.chats import browser_of, page_session
from dashboard.feeds import feeds
from dashboard.oidc import lifetime, seconds_left
from dashboard.probes import Probes
from observability.admin_api import AdminScope

OPERATORS_SETTING = "operators"
_PROBE_SECONDS = 5.0  # for which an answer counts
# Limits each read, not the whole answer: probes.py limits how long a page waits for that.
_PROBE_TIMEOUT = httpx.Timeout(2.5, connect=2.0)
_REMEMBERED_SECONDS = 12 * 3600.0
_MOST_REMEMBERED = 1000


class Standing(enum.Enum):
    ABSENT = enum.auto()  # the server has no admin API that answers
    AWAY = enum.auto()  # it had one
    STRANGER = enum.auto()  # a key is needed
    VIEWER = enum.auto()
    OPERATOR = enum.auto()


@dataclass(frozen=True, slots=True)
class Access:
    """``problem``: why not, in words."""

    standing: Standing
    client: AdminClient
    problem: str = ""

    @property
    def reads(self) -> bool:
        return self.standing in (Standing.AWAY, Standing.VIEWER, Standing.OPERATOR)

    @property
    def operates(self) -> bool:
        return self.standing is Standing.OPERATOR


# Keys that visitors typed, by browser and server, so that a reload does not require them again.
_typed: dict[tuple[str, str], tuple[float, str]] = {}
_seen: set[str] = set()  # admin APIs that answered once


def access(index: int) -> Access:
    """Return what this visitor may do with a server."""
    return accesses([index])[index]


def accesses(indexes: Sequence[int]) -> dict[int, Access]:
    """Return what this visitor may do with each server. All are asked at the same time."""
    servers, signed_in = feeds().servers, _signed_in()
    found: dict[int, Access] = {}
    keys: dict[int, str] = {}
    for index in indexes:
        admin = servers[index].admin
        if not admin:
            found[index] = Access(Standing.ABSENT, AdminClient(""))
        elif signed_in is False:
            problem = "Sign in to see this server."
            found[index] = Access(Standing.STRANGER, AdminClient(admin), problem)
        else:
            keys[index] = feeds().key(index) if signed_in else _key_typed(index)
    answers = _answers([(servers[index].admin, key) for index, key in keys.items()])
    for (index, key), (standing, problem) in zip(keys.items(), answers, strict=True):
        standing = _standing(index, key, standing, signed_in=bool(signed_in))
        found[index] = Access(standing, AdminClient(servers[index].admin, key), problem)
    return {index: found[index] for index in indexes}


def _standing(index: int, key: str, answered: Standing, *, signed_in: bool) -> Standing:
    """Return the visitor's, where the admin API ``answered`` as it does to ``key``."""
    admin = feeds().servers[index].admin
    if answered in (Standing.VIEWER, Standing.OPERATOR):
        _seen.add(admin)
        feeds().learn_key(index, key)
        may_operate = not signed_in or is_operator(_groups(), _operators())
        return answered if may_operate else Standing.VIEWER
    if answered is Standing.ABSENT and admin in _seen and (key or not feeds().key(index)):
        return Standing.AWAY  # its last figures are for those who have a key, if it needs one
    return answered


def reader_of(url: str) -> AdminClient | None:
    """Return what asks the admin API of the server at ``url``; None if this visitor may not."""
    for index, server in enumerate(feeds().servers):
        if server.url == url and server.admin:
            found = access(index)
            return found.client if found.reads else None
    return None


def try_key(index: int, key: str) -> str:
    """Remember a key that the server accepts. Return why it does not; empty if it does."""
    [(standing, problem)] = _answers([(feeds().servers[index].admin, key)])
    if standing in (Standing.VIEWER, Standing.OPERATOR):
        remember_key(index, key)
        return ""
    return problem


def remember_key(index: int, key: str) -> None:
    """Of more than ``_MOST_REMEMBERED``, the oldest is forgotten."""
    now = time.monotonic()
    for name in [name for name, (until, _) in _typed.items() if until < now]:
        _typed.pop(name, None)
    name = _typed_name(index)
    _typed.pop(name, None)
    while len(_typed) >= _MOST_REMEMBERED:
        del _typed[next(iter(_typed))]
    _typed[name] = (now + _REMEMBERED_SECONDS, key)


def forget_key(index: int) -> None:
    """Sign this browser out of a server."""
    _typed.pop(_typed_name(index), None)


def has_typed_key(index: int) -> bool:
    """Whether this visitor signed in to a server with an admin key."""
    return not uses_oidc() and bool(_key_typed(index))


def is_operator(groups: Iterable[str], operators: str) -> bool:
    """``operators``: the group whose members may operate; empty: no one may."""
    return bool(operators) and operators in groups


def uses_oidc() -> bool:
    """Whether ``secrets.toml`` configures Streamlit's own sign-in. Raises FileNotFoundError, as
    Streamlit does, if the file is there and cannot be read: the dashboard must not be open then."""
    try:
        return "auth" in st.secrets
    except FileNotFoundError:
        if any(Path(path).exists() for path in st.get_option("secrets.files")):
            raise
        return False


def sign_in_left() -> float:
    """Return for how many seconds this visitor is still signed in by OIDC; at most 0: is not."""
    if not st.user.is_logged_in:
        return 0.0
    return seconds_left(st.user.get("iat"), lifetime(os.environ), time.time())


def this_browser() -> str:
    """Never empty: without a cookie a key is remembered for the page only."""
    return browser_of(st.context.cookies) or f"page {page_session()}"


def _signed_in() -> bool | None:
    """Return None where visitors sign in with an admin key."""
    return sign_in_left() > 0 if uses_oidc() else None


def _groups() -> list[str]:
    found = st.user.get("groups")
    return [str(one) for one in found] if isinstance(found, list) else [str(found or "")]


def _operators() -> str:
    return str(st.secrets["auth"].get(OPERATORS_SETTING, ""))


def _key_typed(index: int) -> str:
    until, key = _typed.get(_typed_name(index), (0.0, ""))
    return key if until > time.monotonic() else ""


def _typed_name(index: int) -> tuple[str, str]:
    return this_browser(), feeds().servers[index].admin


def _answers(wanted: Sequence[tuple[str, str]]) -> list[tuple[Standing, str]]:
    return [
        (Standing.ABSENT, f"{url} did not respond in time.") if answer is None else answer
        for (url, _), answer in zip(wanted, _probes.answers(wanted), strict=True)
    ]


def _probe(url: str, key: str) -> tuple[Standing, str]:
    try:
        _, scope = AdminClient(url, key, _PROBE_TIMEOUT).overview()
    except AdminRefusalError as refusal:
        if refusal.status in (401, 403):
            # Without a key the server's sentence is for programs, and the field says enough.
            return Standing.STRANGER, str(refusal) if key else ""
        return Standing.ABSENT, str(refusal)
    operates = scope is AdminScope.OPERATE
    return Standing.OPERATOR if operates else Standing.VIEWER, ""


_probes = Probes(_probe, _PROBE_SECONDS)
