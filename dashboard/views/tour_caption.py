"""The strip at the top of every page that says what the tour shows now."""

from __future__ import annotations

import streamlit as st

from dashboard.session import typed
from dashboard.tour.caption import read

_REFRESH_SECONDS = 1.0


def strip() -> None:
    """Draw the strip, if this dashboard is on a tour, and fill in the Playground's API key."""
    caption = read()
    if caption is not None:
        typed().setdefault("api_key", caption.api_key)
        _current()


@st.fragment(run_every=_REFRESH_SECONDS)
def _current() -> None:
    caption = read()
    if caption is None:
        st.info("The tour is over.", icon=":material/tour:")
        return
    st.info(
        f"**{caption.number}/{caption.acts} {caption.title}.** {caption.text}  \n*{caption.look}*",
        icon=":material/tour:",
    )
