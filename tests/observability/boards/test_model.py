"""Variables of boards come from series that exist, and pickers have exact bounds."""

from __future__ import annotations

from observability import catalogue
from observability.boards.model import (
    MODEL_CHOICES,
    SERVER_CHOICES,
    SLO_ITL,
    SLO_TTFT,
    Board,
    Panel,
    PanelQuery,
    PanelRow,
    PanelUnit,
)
from observability.promql import bound_text


def test_pickers_have_bounds_of_their_histogram_and_begin_with_the_objective() -> None:
    for picker, metric in (
        (SLO_TTFT, catalogue.TIME_TO_FIRST_TOKEN),
        (SLO_ITL, catalogue.INTER_TOKEN_LATENCY),
    ):
        assert set(picker.values) <= {bound_text(bound) for bound in metric.buckets}
        assert picker.start in picker.values
    assert (SLO_TTFT.start, SLO_ITL.start) == ("2.0", "0.1")


def test_a_choice_narrows_by_the_job() -> None:
    assert [choice.name for choice in MODEL_CHOICES] == ["job", "model", "instance"]
    assert all('job=~"$job"' in choice.series for choice in MODEL_CHOICES[1:])
    assert SERVER_CHOICES[0] is MODEL_CHOICES[0]


def test_a_boards_panels_are_those_of_its_rows() -> None:
    panels = tuple(Panel(str(n), "", (PanelQuery("up"),), PanelUnit.PLAIN) for n in range(3))
    rows = (PanelRow("a", panels[:1]), PanelRow("b", panels[1:]))
    board = Board("x", "X", "", rows, ())
    assert board.panels == panels
    assert board.uid == "quire-x"
