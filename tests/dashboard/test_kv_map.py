"""The drawing of the KV cache has every block once, in its place."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from dashboard.kv_map import COLUMNS, bars, color_of, drawing_of
from observability.admin_api import BlockRun, KvMap, Owner

RUNS = st.lists(
    st.builds(BlockRun, st.integers(-2, 1), st.integers(1, 3 * COLUMNS), st.booleans()),
    max_size=20,
)


def pool(*runs: BlockRun, owners: tuple[str, ...] = ("req_a", "req_b")) -> KvMap:
    return KvMap(
        time=1.0,
        blocks=sum(run.count for run in runs),
        block_size=16,
        active=sum(run.count for run in runs if run.owner >= 0),
        cached=sum(run.count for run in runs if run.owner == -1),
        free=sum(run.count for run in runs if run.owner == -2),
        runs=runs,
        owners=tuple(Owner(one, None, 1, 16) for one in owners),
    )


@given(RUNS)
def test_bars_are_the_runs_block_by_block(runs: list[BlockRun]) -> None:
    drawn = {}
    for bar in bars(pool(*runs)):
        assert bar.column + bar.width <= COLUMNS
        for column in range(bar.column, bar.column + bar.width):
            place = bar.row * COLUMNS + column
            assert place not in drawn
            drawn[place] = (bar.owner, bar.shared)
    expected = [(run.owner, run.shared) for run in runs for _ in range(run.count)]
    assert [drawn[place] for place in range(len(expected))] == expected
    assert len(drawn) == len(expected)


def test_a_block_says_whose_it_is_and_the_drawing_how_many_there_are() -> None:
    hostile = 'req"<script>'
    drawn = ElementTree.fromstring(  # noqa: S314 - our own drawing
        drawing_of(
            pool(BlockRun(0, 3, shared=True), BlockRun(-1, 2), BlockRun(-2, 7), owners=(hostile,))
        )
    )
    assert drawn.attrib["aria-label"] == "12 blocks: 3 active, 2 cached, 7 free"
    assert [cell.attrib["title"] for cell in drawn] == [
        f"{hostile}, shared with others",
        "cached",
        "free",
    ]
    assert color_of(hostile) in drawn[0].attrib["style"]


def test_a_request_keeps_its_color() -> None:
    assert color_of("req_a") == color_of("req_a")
    assert len({color_of(f"req_{number}") for number in range(100)}) == 8
