"""Boards about the engine: a heat map for each kind of step, a reason for each miss, GPUs."""

from __future__ import annotations

from observability import catalogue
from observability.boards.engine import ENGINE_BOARD, GPU_BOARD, KV_BOARD
from observability.boards.model import PanelKind
from observability.outcomes import PREFIX_MISS_REASONS


def test_each_kind_of_step_has_a_heat_map() -> None:
    (label,) = (label for label in catalogue.STEP_SECONDS.labels if label.name == "phase")
    maps = [panel for panel in ENGINE_BOARD.panels if panel.kind is PanelKind.HEAT_MAP]
    shown = [panel.queries[0].expr for panel in maps]
    assert label.values is not None
    assert len(shown) == len(label.values)
    for phase, expr in zip(label.values, shown, strict=True):
        assert f'phase="{phase}"' in expr


def test_the_reasons_for_misses_are_explained() -> None:
    (panel,) = (panel for panel in KV_BOARD.panels if panel.title == "Missing tokens by reason")
    assert all(sentence in panel.help for sentence in PREFIX_MISS_REASONS.values())


def test_gpu_queries_can_only_be_answered_by_nvidias_exporter() -> None:
    for panel in GPU_BOARD.panels:
        for query in panel.queries:
            assert query.expr.startswith("DCGM_FI_")
            assert "dcgm-exporter" in query.silent
