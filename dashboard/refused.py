"""What pages show where the admin API does not give them what they need."""

from __future__ import annotations

import time
from collections.abc import Callable

import streamlit as st

from dashboard.admin_client import AdminRefusalError
from dashboard.markdown import plain_markdown

_RETRY_SECONDS = 5.0
# No answer, or one that the server or a proxy gives until the server is up again.
_PASSING = (0, 502, 503, 504)


def refused(refusal: AdminRefusalError) -> None:
    """Say why. Where that may pass, as during a restart, the page is drawn again every few
    seconds."""
    st.warning(plain_markdown(str(refusal)))
    if refusal.status in _PASSING:
        _draw_again(time.monotonic())


def carried_out(order: Callable[[], object]) -> None:
    """Give an order and draw the page anew; a refusal is shown in the server's words."""
    try:
        order()
    except AdminRefusalError as refusal:
        st.error(plain_markdown(str(refusal)))
        return
    st.rerun()


@st.fragment(run_every=_RETRY_SECONDS)
def _draw_again(drawn: float) -> None:
    """``drawn``: when the page was drawn. A fragment also runs then; that must not redraw it."""
    if time.monotonic() - drawn >= _RETRY_SECONDS / 2:
        st.rerun()
