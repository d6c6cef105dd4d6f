"""The live drawings: plain JavaScript next to this module, mounted by Streamlit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.feed_token import issue
from dashboard.feeds import feeds
from dashboard.following import PAGES
from dashboard.routes import channel_of

_DRAWING = Path(__file__).with_name("drawing")


def _text(name: str) -> str:
    return (_DRAWING / name).read_text(encoding="utf-8")


def _component(name: str) -> Any:
    """``common.js`` goes before each script: components cannot import one another's."""
    return st.components.v2.component(
        f"quire_{name}", css=_text("board.css"), js=_text("common.js") + _text(f"{name}.js")
    )


board = _component("board")
kv_map = _component("kvmap")


# Shows nothing itself.
_rows = st.components.v2.component("quire_rows", js=_text("rows.js"))


def rows_open(table: str) -> None:
    """Let a click on a row, or Enter, select it in the table that has this key."""
    with st.container(key=f"{table}-rows-open"):
        _rows(key=f"{table}-opens", data={"table": table}, height=0)


def counts_column() -> Any:
    """Return a table's column of whole numbers, written as ``words.count`` writes them: the format
    "localized" would use the browser's notation."""
    return st.column_config.NumberColumn(format="accounting", step=1)


def feed_data(
    servers: list[int], *, kv: int | None = None, absent: Mapping[int, str] | None = None
) -> dict[str, Any]:
    """Return what a drawing needs to read the feed of ``servers``, or that of the KV maps of an
    engine. ``absent``: servers that do not answer, with why: they are only named, since no one
    knows whether the visitor may see them."""
    channel = channel_of(servers, kv=kv)
    return {
        "feed": f"/feed/{channel}",
        "history": f"/history/{channel}",
        "kv": f"/kv/{channel}",
        "pages": list(PAGES),
        "token": issue(channel, time.time()),
        "several": len(feeds().servers) > 1,
        "servers": [
            *({"index": one, "name": feeds().servers[one].name} for one in servers),
            *(
                {"index": one, "name": feeds().servers[one].name, "away": why}
                for one, why in (absent or {}).items()
            ),
        ],
    }


def mounted(component: Any, key: str, data: dict[str, Any]) -> str:
    """Draw it; return the address of the link that was clicked, if one was."""
    result = component(key=key, data=data, on_go_change=lambda: None, on_renew_change=lambda: None)
    return str(result.go or "")
