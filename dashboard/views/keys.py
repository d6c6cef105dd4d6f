"""The API keys that a server has stored: who has which, and orders to make and end them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from dashboard.admin_client import AdminClient, AdminRefusalError
from dashboard.clock import moment
from dashboard.markdown import plain_markdown
from observability.key_listing import KeyRow, KeyRows, NewKey

_MADE = "key just made"  # in the session, until another page is drawn
_DAY_SECONDS = 86_400.0
_OVERLAPS = {"none": 0.0, "1 hour": 3600.0, "1 day": _DAY_SECONDS, "7 days": 7 * _DAY_SECONDS}
_LIFETIMES = {"never": None, "30 days": 30.0, "90 days": 90.0, "365 days": 365.0}
_LIMITS = {
    "requests_per_minute": "Requests per minute",
    "tokens_per_minute": "Tokens per minute",
    "concurrent_requests": "Requests at once",
    "tokens_per_day": "Tokens per day (UTC)",
}


def keys_section(client: AdminClient, keys: KeyRows, *, operates: bool) -> None:
    """Draw the table of keys, and the orders, if the visitor ``operates``."""
    st.subheader("API keys")
    _show_made()
    if keys.keys:
        rows = [key_row(key) for key in reversed(keys.keys)]
        st.dataframe(rows, hide_index=True, alt="API keys that are stored or in the keys file")
    elif keys.are_stored:
        st.info("There are no stored keys yet.")
    if not keys.are_stored:
        st.caption("Keys can be made here if the server runs with --stored-keys.")
    elif operates:
        _orders(client, keys)


def key_row(key: KeyRow) -> dict[str, Any]:
    """Return what the table shows of a key."""
    return {
        "id": key.id,
        "key": f"{key.shown}…" if key.shown else "",
        "alias": key.alias,
        "state": key.state,
        "from": key.source,
        "expires": _moment(key.expires),
        "last used": _moment(key.last_used),
        "requests/min": key.requests_per_minute,
        "tokens/min": key.tokens_per_minute,
        "at once": key.concurrent_requests,
        "tokens/day": key.tokens_per_day,
        "tokens today": key.tokens_today,
        "class": key.service_class,
        "weight": key.weight,
        "scopes": ", ".join(key.scopes),
        "models": "all" if key.models is None else ", ".join(key.models),
    }


def _moment(seconds: float | None) -> str:
    return "" if seconds is None else moment(seconds, "%Y-%m-%d %H:%M %Z")


def _show_made() -> None:
    """Show a key that was just made, this once."""
    made: NewKey | None = st.session_state.pop(_MADE, None)
    if made is None:
        return
    st.success(plain_markdown(f"A key of {made.row.alias}. Copy it now: it is not shown again."))
    st.code(made.key, language=None)


def _orders(client: AdminClient, keys: KeyRows) -> None:
    valid = {
        f"{key.alias} ({key.id}, {key.shown}…)": key.id
        for key in keys.keys
        if key.state == "valid" and key.source == "store"
    }
    with st.container(horizontal=True):
        with st.popover("New key"):
            _create(client)
        with st.popover("Rotate a key", disabled=not valid):
            st.markdown("A new key for the same tenant; the one before ends later.")
            chosen = st.selectbox("Key to rotate", list(valid))
            overlap = st.selectbox("Both are valid for", list(_OVERLAPS), index=2)
            if st.button("Rotate now", type="primary") and chosen:
                _make(lambda: client.rotate_key(valid[chosen], _OVERLAPS[overlap]))
        with st.popover("Revoke a key", disabled=not valid):
            st.markdown("The key ends at once; its next request is refused.")
            chosen = st.selectbox("Key to revoke", list(valid))
            if st.button("Revoke now", type="primary") and chosen:
                _carry_out(lambda: client.revoke_key(valid[chosen]))


def _create(client: AdminClient) -> None:
    with st.form("new key", border=False):
        alias = st.text_input("Alias", help="Whose key it is: 1 to 32 of a-z, 0-9, _ and -.")
        limits = {
            name: st.number_input(label, min_value=1, value=None, step=1, help="Empty: no limit.")
            for name, label in _LIMITS.items()
        }
        lifetime = _LIFETIMES[st.selectbox("Expires after", list(_LIFETIMES))]
        if st.form_submit_button("Make key", type="primary"):
            given: dict[str, Any] = {
                name: int(limit) for name, limit in limits.items() if limit is not None
            }
            if lifetime is not None:
                given["expires_in"] = lifetime * _DAY_SECONDS
            _make(lambda: client.create_key(alias=alias, **given))


def _make(order: Callable[[], NewKey]) -> None:
    def make() -> None:
        st.session_state[_MADE] = order()

    _carry_out(make)


def _carry_out(order: Callable[[], None]) -> None:
    """A refusal is shown in the server's words."""
    try:
        order()
    except AdminRefusalError as refusal:
        st.error(plain_markdown(str(refusal)))
        return
    st.rerun()
