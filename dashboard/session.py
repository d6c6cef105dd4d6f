"""What the pages share: the poller of each server, and what a visitor has typed."""

from __future__ import annotations

import os
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from dashboard.poller import Poller
from dashboard.settings import Server, watched

# The picked server: key of the picker and parameter of the address.
SERVER = "server"
_IN_ADDRESS = "server in the address"


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
    """The URL of the server to look at."""
    known = watched(os.environ)
    return known[picked_server(known)].url


def picked_server(known: list[Server]) -> int:
    """Return the index of the server to show. Where there is a choice, a picker is drawn, and the
    address has what it shows, unless that is the first."""
    names = [server.name for server in known]
    if len(names) == 1:
        return 0
    _follow_address(names)
    chosen = pick("Server", names, SERVER)
    if chosen != st.query_params.get(SERVER, names[0]):
        st.query_params[SERVER] = chosen
    typed()[_IN_ADDRESS] = st.query_params.get(SERVER, "")
    return names.index(chosen)


def _follow_address(names: list[str]) -> None:
    """Pick the server that the address names, if a link or the browser's back button changed it;
    on another page, the one picked before: to Streamlit its picker is another one."""
    given, before = st.query_params.get(SERVER, ""), typed().get(_IN_ADDRESS, "")
    if given in names and (given != before or has_arrived()):
        st.session_state[SERVER] = given
    elif has_arrived():
        st.session_state[SERVER] = typed().get(SERVER, names[0])
    elif before and not given:
        st.session_state[SERVER] = names[0]


def remember_server(name: str) -> None:
    """Have the pages that are opened next begin with this server."""
    typed()[SERVER] = name


def addressed_server(known: list[Server]) -> int:
    """Return the index of the server that the address names, or else of the one picked before."""
    names = [server.name for server in known]
    if st.query_params.get(SERVER) in names:
        remember_server(st.query_params[SERVER])
    before = typed().get(SERVER)
    return names.index(before) if before in names else 0
