"""How the servers are doing now, and over the last minutes."""

from __future__ import annotations

import streamlit as st

from dashboard.access import Standing, access
from dashboard.board import CHARTS_DRAWN, CONDITIONS
from dashboard.components import board, feed_data, mounted
from dashboard.feeds import RANGES, feeds
from dashboard.following import follow_link
from dashboard.signing_in import sign_in
from dashboard.views import metrics_only

ALL = "all"

# Pixels of the page above and below the board.
_AROUND = 122


def page() -> None:
    names = [server.name for server in feeds().servers]
    chosen, minutes = _controls(names)
    shown = list(range(len(names))) if chosen == ALL else [names.index(chosen)]
    standings = {index: access(index) for index in shown}
    for index, found in standings.items():
        if found.standing is Standing.STRANGER:
            sign_in(index, found.problem)
            return
    read = [index for index, found in standings.items() if found.reads]
    if not read:
        metrics_only.page(feeds().servers[shown[0]].url)
        return
    data = {
        **feed_data(read),
        "charts": CHARTS_DRAWN,
        "conditions": CONDITIONS,
        "minutes": minutes,
        "above": _AROUND,
    }
    follow_link(mounted(board, "board", data))


def _controls(names: list[str]) -> tuple[str, int]:
    with st.container(horizontal=True, key="live-controls"):
        chosen = names[0]
        if len(names) > 1:
            chosen = st.segmented_control(
                "Server",
                [*names, ALL],
                default=ALL,
                key="servers",
                bind="query-params",
                required=True,
                label_visibility="collapsed",
            )
        minutes = st.segmented_control(
            "Range",
            list(RANGES),
            default=min(RANGES),
            key="minutes",
            bind="query-params",
            required=True,
            format_func=lambda minutes: f"{minutes} min",
            label_visibility="collapsed",
        )
    return chosen, minutes
