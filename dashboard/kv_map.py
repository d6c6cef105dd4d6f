"""The blocks of a KV cache as a drawing, colored by the request that holds them."""

from __future__ import annotations

import html
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from observability.admin_api import KvMap

COLUMNS = 128
_MOST_ROWS = 128  # the API samples larger pools
_CACHED = -1  # an owner; -2: free
# Neighbours differ in lightness, too.
_COLORS = ("#0d9488", "#d97706", "#6366f1", "#e11d48", "#5bb0e4", "#65730b", "#a855a0", "#4a62c8")


class Bar(NamedTuple):
    """Neighbouring cells of one row that look the same."""

    row: int
    column: int
    width: int
    owner: int
    shared: bool


def bars(found: KvMap) -> Iterator[Bar]:
    """Yield the map's runs, cut where a row ends."""
    at = 0
    for run in found.runs:
        left = run.count
        while left > 0 and at < COLUMNS * _MOST_ROWS:
            row, column = divmod(at, COLUMNS)
            width = min(left, COLUMNS - column)
            yield Bar(row, column, width, run.owner, run.shared)
            at, left = at + width, left - width


def color_of(request_id: str) -> str:
    """Return the color that a request keeps from one map to the next."""
    return _COLORS[zlib.crc32(request_id.encode()) % len(_COLORS)]


def drawing_of(found: KvMap) -> str:
    """Return the map as HTML. Pointing at a block shows whose it is."""
    told = (
        f"{found.blocks:,} blocks: {found.active:,} active, {found.cached:,} cached, "
        f"{found.free:,} free"
    )
    cells = "".join(_cell(found, one) for one in bars(found))
    return f'<div class="quire-kv" role="img" aria-label="{told}">{cells}</div>'


def _cell(found: KvMap, bar: Bar) -> str:
    if bar.owner < 0:
        state = "cached" if bar.owner == _CACHED else "free"
        return (
            f'<i class="quire-{state}" title="{state}" style="grid-column: span {bar.width}"></i>'
        )
    owner = found.owners[bar.owner].request_id
    title = html.escape(owner + (", shared with others" if bar.shared else ""))
    return (
        f'<i class="quire-{"shared" if bar.shared else "held"}" title="{title}" '
        f'style="grid-column: span {bar.width}; background: {color_of(owner)}"></i>'
    )
