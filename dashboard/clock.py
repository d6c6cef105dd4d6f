"""Times of day as the visitor's clock shows them, which is also that of the live drawings."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st


def moment(epoch: float, form: str = "%Y-%m-%d %H:%M:%S %Z") -> str:
    """``form``: as for strftime; ``%Z`` names the zone. A time that no calendar has, such as a key
    may have as its end, is "after 9999"."""
    try:
        found = datetime.fromtimestamp(epoch, UTC).astimezone(_zone())
    except (OverflowError, OSError, ValueError):
        return "after 9999"
    return found.strftime(form)


def _zone() -> tzinfo | None:
    """Return the zone of the visitor's browser; None, this machine's, if it is not known."""
    try:
        return ZoneInfo(st.context.timezone or "")
    except (ZoneInfoNotFoundError, ValueError):
        return None
