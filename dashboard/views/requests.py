"""Requests, live or ended, filtered and sorted; one leads to the inspector."""

from __future__ import annotations

import time
from typing import Any

import streamlit as st

from dashboard.access import Access
from dashboard.admin_client import AdminRefusalError
from dashboard.clock import moment
from dashboard.components import counts_column, rows_open
from dashboard.feeds import feeds
from dashboard.following import PAGES, come_back
from dashboard.phase_bar import BAR_WIDTH, longest_phase, phase_bar
from dashboard.refused import refused
from dashboard.session import SERVER, typed
from dashboard.signing_in import admitted, one_server
from dashboard.words import count, duration
from observability.admin_api import KeptRequest, RequestPage
from observability.catalogue import OTHER_KEY
from observability.outcomes import ROUTES
from observability.phases import PHASES

REFRESH_SECONDS = 2.0
PAGE_ROWS = 100
_SINCE = {"5 min": "5m", "15 min": "15m", "hour": "1h", "24 hours": "24h", "7 days": "7d"}
_ROW_HEIGHT = 35  # pixels
_CELL_PADDING = 8
_MOST_ROWS_HIGH = 16
# By the words that the address has: Streamlit binds what an option shows, not the option.
_SORTS = {
    "newest first": "-received",
    "slowest first": "-total",
    "slowest first token": "-ttft",
    "longest prompt": "-prompt_tokens",
    "longest answer": "-output_tokens",
}
_ANY = "any"
_TABLE = "requests-table"
_DATED = "%Y-%m-%d %H:%M:%S"
# The keys of the filters, which are also in the address.
_FILTERS = ("state", "since", "sort", "key", "outcome", "route", "phase")


def page() -> None:
    index = one_server()
    found = admitted(index)
    come_back("requests", _FILTERS)
    query = _filters()
    is_live = query["state"] == "live"
    rows_open(_TABLE)
    st.fragment(_table, run_every=REFRESH_SECONDS if is_live else None)(found, index, query)


def _filters() -> dict[str, str]:
    """Draw them, bound to the address, so that a reload or a link has the same."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        state = st.segmented_control(
            "State",
            ["ended", "live"],
            default="ended",
            key="state",
            bind="query-params",
            required=True,
        )
        since = st.selectbox(
            "In the last",
            list(_SINCE),
            key="since",
            bind="query-params",
            width=110,
            disabled=state == "live",  # which are all shown
        )
        sort = st.selectbox("Order", list(_SORTS), key="sort", bind="query-params", width=190)
        key = st.text_input(
            "Key",
            key="key",
            bind="query-params",
            width=120,
            placeholder=_ANY,
            help=f"The alias of a key. {OTHER_KEY}: requests without a key.",
        )
        outcome = st.text_input(
            "Outcome", key="outcome", bind="query-params", width=150, placeholder=_ANY
        )
        route = st.selectbox("Route", [_ANY, *ROUTES], key="route", bind="query-params", width=170)
        phases = [_ANY, *(phase.name for phase in PHASES)]
        phase = st.selectbox("Longest phase", phases, key="phase", bind="query-params", width=130)
    query = {"state": state, "sort": _SORTS[sort], "key": key, "outcome": outcome}
    query["limit"] = str(PAGE_ROWS)
    query |= {"route": "" if route == _ANY else route, "phase": "" if phase == _ANY else phase}
    return query if state == "live" else {**query, "since": _SINCE[since]}


def _table(found: Access, index: int, query: dict[str, str]) -> None:
    cursors = _cursors(index, query)
    try:
        got = found.client.requests(**query, cursor=cursors[-1] if cursors else "")
        if cursors and not got.requests:  # they have ended, or have been deleted
            cursors.clear()
            got = found.client.requests(**query)
    except AdminRefusalError as refusal:
        cursors.clear()
        refused(refusal)
        return
    shown = got.requests
    _pages(cursors, got)
    if not shown:
        st.info(nothing_matches(query))
        return
    slowest = max(request.total for request in shown)
    now = time.time()
    form = "%H:%M:%S" if all(_is_same_day(one.received, now) for one in shown) else _DATED
    chosen = st.dataframe(
        [row_of(request, slowest, form) for request in shown],
        column_config={
            "time": st.column_config.TextColumn(f"time ({moment(now, '%Z')})"),
            "request": st.column_config.TextColumn("request", width=130),
            "out": counts_column(),
            # The grid neither scales an image nor keeps it within its cell.
            "phases": st.column_config.ImageColumn(
                "phases", width=BAR_WIDTH + 2 * _CELL_PADDING, alignment="left"
            ),
        },
        hide_index=True,
        height=_ROW_HEIGHT * (1 + min(len(shown), _MOST_ROWS_HIGH)) + 3,
        on_select="rerun",
        # Columns too: else a click on a header sorts by the words ("1.05 s" before "632 ms"), and
        # opens the request that comes first then. No cells: the arrow keys select them.
        selection_mode=["single-row", "single-column"],
        key=_TABLE,
        alt="Requests, one per row. The arrow keys move, and Enter opens a request.",
    )
    rows = chosen.selection.rows
    if rows and rows[0] < len(shown):
        del st.session_state[_TABLE]
        wanted = {"id": shown[rows[0]].request_id, SERVER: feeds().servers[index].name}
        st.switch_page(PAGES["request"], query_params=wanted)


def _cursors(index: int, query: dict[str, str]) -> list[str]:
    """Return the cursors of the pages up to the one that is shown; empty: that is the first, as it
    is again after a change of the filters."""
    kept = typed().get("request pages")
    if kept is None or kept[0] != (index, query):
        kept = typed()["request pages"] = ((index, query), [])
    cursors: list[str] = kept[1]
    return cursors


def _pages(cursors: list[str], shown: RequestPage) -> None:
    """Draw the way to the pages before and after, if there are any."""
    if not cursors and shown.cursor is None:
        return
    before = len(cursors) * PAGE_ROWS
    with st.container(horizontal=True, vertical_alignment="center"):
        # A second click, before the page is drawn again, changes nothing.
        place = len(cursors)
        earlier, later = cursors[: max(0, place - 1)], [*cursors, shown.cursor]
        st.button("Previous", on_click=_go_to, args=(cursors, earlier), disabled=not cursors)
        st.button("Next", on_click=_go_to, args=(cursors, later), disabled=not shown.cursor)
        more = " of more" if shown.cursor else ""
        st.caption(f"{count(before + 1)} to {count(before + len(shown.requests))}{more}")


def _go_to(cursors: list[str], wanted: list[str]) -> None:
    cursors[:] = wanted


def _is_same_day(one: float, other: float) -> bool:
    return moment(one, "%Y-%m-%d") == moment(other, "%Y-%m-%d")


def nothing_matches(query: dict[str, str]) -> str:
    """Say what there is none of, and what may find one."""
    filters = ", ".join(name for name in ("key", "outcome", "route", "phase") if query[name])
    if query["state"] == "live":
        return (
            f"No live request matches. Clear a filter ({filters})."
            if filters
            else "No request is being served now."
        )
    since = next(words for words, sent in _SINCE.items() if sent == query["since"])
    if filters:
        return (
            f"No request of the last {since} matches. Choose a longer time, or clear a filter "
            f"({filters})."
        )
    return f"There was no request in the last {since}. Choose a longer time."


def row_of(request: KeptRequest, slowest: float, form: str = _DATED) -> dict[str, Any]:
    """Return what the table shows of a request; bars are in proportion to the slowest. ``form``: of
    the time."""
    return {
        "time": moment(request.received, form),
        "request": request.request_id,
        "key": request.key or "",
        "route": request.route,
        "prompt (cached)": f"{count(request.prompt_tokens)} ({count(request.cached_tokens)})",
        "out": request.output_tokens,
        "total": duration(request.total),
        "longest phase": longest_phase(request.phases),
        "phases": phase_bar(request, request.total / (slowest or 1.0)),
        "outcome": request.phase or "live" if request.live else request.outcome,
    }
