"""Follows a link of a drawing without loading the page anew."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

import streamlit as st

# By path; the entry point fills it in.
PAGES: dict[str, st.Page] = {}


def follow_link(address: str) -> None:
    """Go to a page of this dashboard; nothing happens for any other address."""
    parts = urlsplit(address)
    target = PAGES.get(parts.path.strip("/"))
    if target is not None:
        st.switch_page(target, query_params=dict(parse_qsl(parts.query)))
