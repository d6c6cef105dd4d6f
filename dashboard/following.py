"""Follows a link of a drawing without loading the page anew; brings back how a page was left."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import parse_qsl, urlsplit

import streamlit as st

from dashboard.session import SERVER, has_arrived, typed

# By path; the entry point fills it in.
PAGES: dict[str, st.Page] = {}


def follow_link(address: str) -> None:
    """Go to a page of this dashboard; nothing happens for any other address."""
    parts = urlsplit(address)
    target = PAGES.get(parts.path.strip("/"))
    if target is not None:
        st.switch_page(target, query_params=dict(parse_qsl(parts.query)))


def come_back(path: str, names: Iterable[str]) -> None:
    """Restore a page's last choices for someone who comes from another page without any in the
    address, by the menu or the browser's back button. ``names``: of the parameters that have
    them."""
    key = f"choices of {path}"
    here = {name: st.query_params[name] for name in names if name in st.query_params}
    before = typed().get(key)
    if has_arrived() and before and not here:
        server = {SERVER: st.query_params[SERVER]} if SERVER in st.query_params else {}
        st.switch_page(PAGES[path], query_params={**server, **before})
    typed()[key] = here
