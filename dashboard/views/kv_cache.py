"""Who holds the KV cache, block by block, and which prefixes are shared."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard.access import Access
from dashboard.admin_client import AdminRefusalError
from dashboard.following import PAGES
from dashboard.kv_map import drawing_of
from dashboard.signing_in import admitted, one_server
from dashboard.words import count, duration, plain_markdown
from observability.admin_api import KvMap, PrefixTree

REFRESH_SECONDS = 2.0
_MOST_PREFIXES = 100
_MOST_HOLDERS = 100
_INDENT = "\N{EM SPACE}"


def page() -> None:
    index = one_server()
    found = admitted(index)
    st.fragment(_cache, run_every=REFRESH_SECONDS)(found, index)


def _cache(found: Access, index: int) -> None:
    try:
        pool = found.client.kv()
        tree = found.client.prefixes(_MOST_PREFIXES)
    except AdminRefusalError as refusal:
        st.warning(plain_markdown(str(refusal)))
        return
    st.markdown(sentence_of(pool))
    st.html(drawing_of(pool))
    st.caption(
        "Each cell is a block; in a large pool, one of several. Colored: held by a request, "
        "outlined if several share it. Grey: cached for later requests. Faint: free."
    )
    left, right = st.columns(2)
    with left:
        st.subheader("Requests that hold blocks")
        rows = holder_rows(pool)
        _table(rows, "request", index, "No request holds a block.")
    with right:
        st.subheader("Shared prefixes")
        rows = prefix_rows(tree, pool.time)
        _table(rows, "computed by", index, "No prefix has been reused yet.")
        if tree.left_out:
            st.caption(f"{count(tree.left_out)} less-used prefixes are not shown.")


def _table(rows: list[dict[str, Any]], request: str, index: int, otherwise: str) -> None:
    """``request``: the column with the request to which a chosen row leads."""
    if not rows:
        st.info(otherwise)
        return
    chosen = st.dataframe(
        rows,
        hide_index=True,
        on_select="rerun",
        selection_mode=["single-row", "single-cell"],
        key=f"kv {request}",
        alt="Select a row to see the request.",
    )
    picked = [*chosen.selection.rows, *(cell[0] for cell in chosen.selection.cells)]
    if picked and picked[0] < len(rows):
        del st.session_state[f"kv {request}"]
        wanted = {"id": rows[picked[0]][request], "server": str(index)}
        st.switch_page(PAGES["request"], query_params=wanted)


def sentence_of(pool: KvMap) -> str:
    return (
        f"**{count(pool.active)}** of {count(pool.blocks)} blocks are held by requests, "
        f"{count(pool.cached)} are cached, {count(pool.free)} are free. A block holds "
        f"{pool.block_size} tokens. Since the engine's start, {count(pool.evictions)} cached "
        f"blocks were evicted and {count(pool.preemptions)} sequences preempted."
    )


def holder_rows(pool: KvMap) -> list[dict[str, Any]]:
    """Return one row for each request that holds blocks, the largest first."""
    owners = sorted(pool.owners, key=lambda owner: -owner.blocks)[:_MOST_HOLDERS]
    return [
        {
            "request": owner.request_id,
            "key": owner.key or "",
            "blocks": owner.blocks,
            "share of pool": f"{100 * owner.blocks / pool.blocks:.1f} %",
            "tokens": owner.tokens,
        }
        for owner in owners
    ]


def in_order(tree: PrefixTree) -> list[tuple[int, int]]:
    """Return (index, depth) of every prefix, each followed by those that continue it."""
    children: dict[int | None, list[int]] = {}
    for at, one in enumerate(tree.prefixes):
        children.setdefault(one.parent, []).append(at)
    found: list[tuple[int, int]] = []
    waiting = [(at, 0) for at in reversed(children.get(None, []))]
    while waiting:
        at, depth = waiting.pop()
        found.append((at, depth))
        waiting += [(child, depth + 1) for child in reversed(children.get(at, []))]
    return found


def prefix_rows(tree: PrefixTree, now: float) -> list[dict[str, Any]]:
    """Return one row for each prefix, indented below the one that it continues."""
    rows = []
    for at, depth in in_order(tree):
        one = tree.prefixes[at]
        rows.append(
            {
                "prefix": f"{_INDENT * depth}{'+ ' if depth else ''}{one.tokens:,} tokens",
                "hits": one.hits,
                "held by": one.holders,
                "last used": f"{duration(max(0.0, now - one.last_used))} ago",
                "computed by": one.request_id,
            }
        )
    return rows
