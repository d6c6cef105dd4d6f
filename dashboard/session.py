"""What the pages share: the poller of each server, and what a visitor has typed."""

from __future__ import annotations

import os
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from dashboard.poller import Poller
from dashboard.settings import servers


@st.cache_resource(show_spinner=False, on_release=Poller.close)
def poller_for(url: str) -> Poller:
    """One for all sessions."""
    return Poller(url)


def typed() -> dict[str, Any]:
    """What this visitor has typed or chosen, by the keys of the widgets."""
    kept: dict[str, Any] = st.session_state.setdefault("remembered", {})
    return kept


def remembered(key: str, default: Any = None) -> str:
    """Gives back ``key``, for the widget that is drawn next and that begins with ``default``.

    Streamlit forgets a widget's value when another page is shown; this brings it back. Values
    stay in this process: the API key among them is never part of an address.
    """
    kept = typed()
    if key in st.session_state:
        kept[key] = st.session_state[key]
    else:
        st.session_state[key] = kept.get(key, default)
    return key


def show(path: str) -> None:
    """Note which page is shown, before it is drawn."""
    kept = typed()
    kept["page before"], kept["page"] = kept.get("page"), path


def has_arrived() -> bool:
    """Whether another page was shown before this one, or none."""
    return bool(typed().get("page before") != typed().get("page"))


def pick(label: str, options: list[str], key: str) -> str:
    """One of ``options``: the one picked before while it is there, else the first."""
    if st.session_state.get(remembered(key, options[0])) not in options:
        st.session_state[key] = options[0]
    return st.selectbox(label, options, key=key)


def has_page(path: str) -> bool:
    """Whether the dashboard has a page at this address."""
    context = get_script_run_ctx()
    pages = {} if context is None else context.pages_manager.get_pages()
    return any(page.get("url_pathname") == path for page in pages.values())


def chosen_server() -> str:
    """The server to look at; a picker is drawn when there is a choice."""
    known = servers(os.environ)
    if len(known) == 1:
        return known[0]
    return pick("Server", known, "server_url")
