"""Who used the tokens: by key, model or route, of today or of the last days."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import streamlit as st

from dashboard.admin_client import AdminRefusalError
from dashboard.components import counts_column, rows_open
from dashboard.feeds import feeds
from dashboard.following import PAGES, come_back
from dashboard.prices import Prices, prices
from dashboard.refused import refused
from dashboard.session import SERVER
from dashboard.signing_in import admitted, one_server
from observability.admin_api import UsageRow

_DAY = 86_400
_DAYS = {"today": 1, "7 days": 7, "30 days": 30}
_GROUPS = ("key", "model", "route")
_LEADING = ("key", "route")  # that are filters of *Requests*, too
_TABLE = "usage-table"
_SUMS = ("requests", "errors", "prompt_tokens", "cached_tokens", "output_tokens")
_COLUMNS = [name.replace("_", " ") for name in _SUMS]


def page() -> None:
    index = one_server()
    found = admitted(index)
    come_back("usage", ("days", "by"))
    with st.container(horizontal=True):
        days = st.segmented_control(
            "Days", list(_DAYS), default="today", key="days", bind="query-params", required=True
        )
        by = st.segmented_control(
            "By", _GROUPS, default="key", key="by", bind="query-params", required=True
        )
    try:
        overview, _ = found.client.overview()  # the days are those of the server's clock
        rows = found.client.usage(
            by, since(days, overview.time), "hour" if days == "today" else "day"
        )
    except AdminRefusalError as refusal:
        refused(refusal)
        return
    priced = prices(os.environ)
    table = totals(rows, by, priced)
    if not table:
        st.info("No requests ended in this period.")
        return
    _draw(table, by, days, index)
    st.caption("Days start at midnight UTC. Hover over the table to download it as CSV.")
    if priced is not None:
        st.caption(f"Cost at the operator's prices per million tokens: {priced}.")


def _draw(table: list[dict[str, Any]], by: str, days: str, index: int) -> None:
    columns = {
        **{name: counts_column() for name in _COLUMNS},
        "share of tokens": st.column_config.ProgressColumn(
            "share of tokens", format="percent", min_value=0.0, max_value=1.0
        ),
        "cost": st.column_config.NumberColumn("cost", format="%.2f"),
    }
    alt = f"Usage by {by}, most tokens first"
    if by not in _LEADING:
        st.dataframe(table, column_config=columns, hide_index=True, alt=alt)
        return
    key = f"{_TABLE}-{by}"
    rows_open(key)
    chosen = st.dataframe(
        table,
        column_config=columns,
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        key=key,
        alt=f"{alt}. The arrow keys move, and Enter shows a row's requests.",
    )
    st.caption(
        "Click a row, or press Enter in it, for its requests of the last 24 hours or 7 days, as "
        "far as they are kept."
    )
    if selected := chosen.selection.rows:
        del st.session_state[key]
        wanted = requests_of(by, table[selected[0]][by], days)
        server = {SERVER: feeds().servers[index].name}
        st.switch_page(PAGES["requests"], query_params={**wanted, **server})


def requests_of(by: str, group: str, days: str) -> dict[str, str]:
    """Return the filters of *Requests* that find a group's. Records are kept for 7 days, unless
    the server is set otherwise."""
    return {by: group, "since": "24 hours" if days == "today" else "7 days"}


def since(days: str, now: float) -> float:
    """Return when the time to show begins: midnight UTC of its first day."""
    return now // _DAY * _DAY - (_DAYS[days] - 1) * _DAY


def totals(rows: Iterable[UsageRow], by: str, priced: Prices | None = None) -> list[dict[str, Any]]:
    """Return one row for each group, the one with most tokens first."""
    sums: dict[str, dict[str, int]] = {}
    for row in rows:
        of_group = sums.setdefault(row.group, dict.fromkeys(_SUMS, 0))
        for name in _SUMS:
            of_group[name] += getattr(row, name)
    tokens = {group: one["prompt_tokens"] + one["output_tokens"] for group, one in sums.items()}
    everything = sum(tokens.values()) or 1
    return [
        {
            by: group or "–",
            **dict(zip(_COLUMNS, sums[group].values(), strict=True)),
            "share of tokens": tokens[group] / everything,
            **({} if priced is None else {"cost": _cost(sums[group], priced)}),
        }
        for group in sorted(sums, key=lambda group: (-tokens[group], group))
    ]


def _cost(used: dict[str, int], priced: Prices) -> float:
    return priced.cost(
        prompt_tokens=used["prompt_tokens"],
        cached_tokens=used["cached_tokens"],
        output_tokens=used["output_tokens"],
    )
