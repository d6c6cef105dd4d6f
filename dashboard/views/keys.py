"""The API keys that a server has stored: who has which, and orders to make and end them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from dashboard.admin_client import AdminClient
from dashboard.clock import moment
from dashboard.markdown import plain_markdown
from dashboard.refused import carried_out
from dashboard.whole import UNUSABLE, whole_field
from observability.key_listing import KEY_CLASSES, KEY_SCOPES, KeyRow, KeyRows, NewKey

_MADE = "key just made"  # in the session, until the operator has copied it
_DAY_SECONDS = 86_400.0
_OVERLAPS = {
    "none (revoke now)": 0.0,
    "1 hour": 3600.0,
    "1 day": _DAY_SECONDS,
    "7 days": 7 * _DAY_SECONDS,
}
_LIFETIMES = {"never": None, "30 days": 30.0, "90 days": 90.0, "365 days": 365.0}
_USUAL_CLASS = "standard"
_LEAST_WEIGHT = 0.01
_LIMITS = {
    "requests_per_minute": "Requests per minute",
    "tokens_per_minute": "Tokens per minute",
    "concurrent_requests": "Requests at once",
    "tokens_per_day": "Tokens per day (UTC)",
}


def keys_section(
    client: AdminClient, keys: KeyRows, models: Sequence[str], *, operates: bool
) -> None:
    """Draw the table of keys, and the orders, if the visitor ``operates``. ``models``: the names
    that the server serves."""
    st.subheader("API keys")
    if keys.keys:
        rows = [key_row(key) for key in reversed(keys.keys)]
        st.dataframe(rows, hide_index=True, alt="API keys that are stored or in the keys file")
    elif keys.are_stored:
        st.info("There are no stored keys yet.")
    if not keys.are_stored:
        st.caption("Keys can be made here if the server runs with --stored-keys.")
    elif operates:
        _orders(client, keys, models)
    if not operates:  # any more: the operator who made a key has left this tab
        st.session_state.pop(_MADE, None)


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
        "priority": "yes" if key.priority else "",
        "scopes": ", ".join(key.scopes),
        "models": "all" if key.models is None else ", ".join(key.models),
    }


def _moment(seconds: float | None) -> str:
    return "" if seconds is None else moment(seconds, "%Y-%m-%d %H:%M %Z")


@st.dialog("New key", width="medium", dismissible=False)
def _show(made: NewKey) -> None:
    """Show it in a dialog, which is in view wherever the page is scrolled to."""
    st.success(plain_markdown(f"A key of {made.row.alias}. Copy it now: it is not shown again."))
    st.code(made.key, language=None)
    if st.button("Done", type="primary"):
        del st.session_state[_MADE]
        st.rerun()


def _orders(client: AdminClient, keys: KeyRows, models: Sequence[str]) -> None:
    made = _just_made(client)
    if made is not None:
        _show(made)
    valid = {
        f"{key.alias} ({key.id}, {key.shown}…)": key.id
        for key in keys.keys
        if key.state == "valid" and key.source == "store"
    }
    with st.expander("New key"):  # too high for a popover in a small window
        _create(client, keys.keys, models, made)
    with st.container(horizontal=True):
        with st.popover("Rotate a key", disabled=not valid):
            st.markdown("A new key for the same tenant.")
            chosen = st.selectbox("Key to rotate", list(valid))
            overlap = st.selectbox("Earlier keys stay valid for", list(_OVERLAPS), index=2)
            if st.button("Rotate now", type="primary") and chosen:
                _make(client, lambda: client.rotate_key(valid[chosen], _OVERLAPS[overlap]))
        with st.popover("Revoke a key", disabled=not valid):
            st.markdown("The key ends at once; its next request is refused.")
            chosen = st.selectbox("Key to revoke", list(valid))
            if st.button("Revoke now", type="primary") and chosen:
                carried_out(lambda: client.revoke_key(valid[chosen]))


def _just_made(client: AdminClient) -> NewKey | None:
    """Return the key that this server has just made for this operator. One that another made in
    this tab is dropped."""
    made: NewKey
    url, operator, made = st.session_state.get(_MADE, ("", "", None))
    if url != client.url:
        return None
    if operator != client.key:
        del st.session_state[_MADE]
        return None
    return made


def _create(
    client: AdminClient, keys: Sequence[KeyRow], models: Sequence[str], made: NewKey | None
) -> None:
    alias = st.text_input(
        "Alias", help="Whose key it is: 1 to 32 of a-z, 0-9, _ and -.", width=250
    ).strip()
    valid = valid_keys(keys, alias)
    newest = valid[-1] if valid else None
    form = "new key"
    if newest is not None:
        if made is None:  # next to the new key, the warning would read like a refusal
            st.warning(plain_markdown(shared_words(alias, len(valid))))
        # Another form for each state of the alias: an order that was given before its limits were
        # seen does nothing.
        form = f"{form} after {newest.id}"
    with st.form(form, border=False):
        order = _order(newest, models)
        if st.form_submit_button("Make key", type="primary") and order is not None:
            _make(client, lambda: client.create_key(alias=alias, **order))


def valid_keys(keys: Sequence[KeyRow], alias: str) -> list[KeyRow]:
    """Return the valid keys of an alias. The last is the one whose limits count."""
    return [key for key in keys if key.alias == alias and key.state == "valid"]


def shared_words(alias: str, keys: int) -> str:
    """Say what a new key changes for an alias that has keys."""
    has = "a key" if keys == 1 else f"{keys} keys"
    return (
        f"{alias} already has {has}. Limits, class and weight belong to the alias: those set here "
        "will apply to all its keys. The form begins with what its newest key has."
    )


def _order(newest: KeyRow | None, models: Sequence[str]) -> dict[str, Any] | None:
    """Draw the fields, filled in from ``newest``, and return their values; None if one of them
    cannot be used."""
    limits = {}
    for column, (name, label) in zip(st.columns(4), _LIMITS.items(), strict=True):
        with column:
            limits[name] = _limit(newest, name, label)
    classed = newest.service_class if newest else _USUAL_CLASS
    allowed = newest.models if newest and newest.models else ()
    of_class, of_weight, of_scopes, of_models = st.columns(4)
    order = {
        "service_class": of_class.selectbox("Class", KEY_CLASSES, index=KEY_CLASSES.index(classed)),
        "weight": of_weight.number_input(
            "Weight",
            min_value=_LEAST_WEIGHT,
            value=newest.weight if newest else 1.0,
            step=0.1,
            format="%g",
        ),
        "scopes": of_scopes.multiselect(
            "Scopes", KEY_SCOPES, default=newest.scopes if newest else KEY_SCOPES
        ),
        "models": of_models.multiselect(
            "Models",
            sorted({*models, *allowed}),
            default=allowed,
            placeholder="all",
            accept_new_options=True,
        )
        or None,
        "priority": st.checkbox(
            "Priority: its requests may go ahead of others",
            value=newest is not None and newest.priority,
        ),
    }
    lifetime = _LIFETIMES[st.selectbox("Expires after", list(_LIFETIMES), width=250)]
    expires = {} if lifetime is None else {"expires_in": lifetime * _DAY_SECONDS}
    if UNUSABLE in limits.values():
        return None
    given = {name: limit for name, limit in limits.items() if limit is not None}
    return {**given, **order, **expires}


def _limit(newest: KeyRow | None, name: str, label: str) -> int | None:
    # Not by ``value``: a field with an initial value cannot be emptied.
    key = f"{name} after {newest.id if newest else ''}"
    if key not in st.session_state:
        st.session_state[key] = getattr(newest, name, None)
    return whole_field(label, 1, value=None, key=key, placeholder="no limit")


def _make(client: AdminClient, order: Callable[[], NewKey]) -> None:
    def make() -> None:
        st.session_state[_MADE] = client.url, client.key, order()

    carried_out(make)
