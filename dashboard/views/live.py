"""How the servers are doing now, and over the last minutes."""

from __future__ import annotations

import streamlit as st

from dashboard.access import Standing, accesses
from dashboard.board import CHARTS_DRAWN, CONDITIONS
from dashboard.components import board, feed_data, mounted
from dashboard.feeds import RANGES, feeds
from dashboard.following import come_back, follow_link
from dashboard.session import remember_server
from dashboard.signing_in import sign_in, wait_for_answer
from dashboard.views import metrics_only

ALL = "all"

# Pixels of the page above and below the board.
_AROUND = 122


def page() -> None:
    come_back("live", ("servers", "minutes"))
    servers = feeds().servers
    names = [server.name for server in servers]
    controls = st.container(horizontal=True, key="live-controls")
    with controls:
        chosen = _picked_server(names)
    if chosen != ALL:
        remember_server(chosen)
    shown = list(range(len(names))) if chosen == ALL else [names.index(chosen)]
    standings = accesses(shown)
    for index, found in standings.items():
        if found.standing is Standing.STRANGER:
            sign_in(index, found.problem)
            return
    if not any(found.reads for found in standings.values()):
        if len(shown) > 1:
            st.caption(
                f"This is **{names[0]}**. Servers are shown together only where the dashboard can "
                "read their admin APIs. Choose another server above."
            )
        if any(servers[index].admin for index in shown):  # it may only be slow, as after its start
            wait_for_answer(*shown)
        metrics_only.page(servers[shown[0]].url)
        return
    with controls:
        minutes = _picked_range()
    if without := [names[index] for index in shown if not servers[index].admin]:
        st.caption(f"Not included, without an admin API: {', '.join(without)}.")
    absent = {
        index: found.problem
        for index, found in standings.items()
        if servers[index].admin and not found.reads
    }
    data = {
        **feed_data([index for index, found in standings.items() if found.reads], absent=absent),
        "charts": CHARTS_DRAWN,
        "conditions": CONDITIONS,
        "minutes": minutes,
        "above": _AROUND,
    }
    follow_link(mounted(board, "board", data))


def _picked_server(names: list[str]) -> str:
    """Return the name of a server or ``ALL``."""
    if len(names) == 1:
        return names[0]
    return st.segmented_control(
        "Server",
        [*names, ALL],
        default=ALL,
        key="servers",
        bind="query-params",
        required=True,
        label_visibility="collapsed",
    )


def _picked_range() -> int:
    """Return how many minutes the charts go back."""
    return st.segmented_control(
        "Range",
        list(RANGES),
        default=min(RANGES),
        key="minutes",
        bind="query-params",
        required=True,
        format_func=lambda minutes: f"{minutes} min",
        label_visibility="collapsed",
    )
