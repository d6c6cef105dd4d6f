"""Cells of different series never overlap, and any change of meaning changes the fingerprint."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from observability import catalogue
from observability.layout import ENGINE_HEAD, RING_CELLS, USAGE_HEAD, USAGE_WIDTH, LedgerLayout
from observability.metric_kinds import Label, Metric, MetricKind, Scope

KEYED = Metric("quire_keyed_total", MetricKind.COUNTER, Scope.PROCESS, "By key.", (Label("key"),))


def test_every_series_has_cells_of_its_own() -> None:
    layout = LedgerLayout(["m", "alias"], open_requests=3, usage_rows=2, ring_bytes=100, engines=2)
    taken: list[int] = []
    exemplars: list[int] = []
    for family in layout.families.values():
        for number, values in enumerate(family.combinations()):
            assert family.number_of(values) == number
            first = family.first_cell + number * family.width
            taken += range(first, first + family.width)
            if family.first_exemplar >= 0:
                buckets = family.width - 1
                first = family.first_exemplar + number * buckets
                exemplars += range(first, first + buckets)
    taken += range(layout.engine_cells, layout.engine_cells + 2 * layout.engine_width)
    assert layout.engine_width == ENGINE_HEAD + 2 * len(layout.engine_fields)
    taken += [layout.alive_cell]
    taken += range(layout.request_cells, layout.request_cells + 3)
    usage = layout.usage_cells
    taken += range(usage, usage + USAGE_HEAD + 2 * USAGE_WIDTH)
    taken += range(layout.ring_cells, layout.ring_cells + RING_CELLS)
    assert sorted(taken) == list(range(layout.cells))
    assert sorted(exemplars) == list(range(layout.exemplars))


def test_the_fingerprint_is_that_of_all_that_decides_what_a_cell_means() -> None:
    gauge, histogram = catalogue.KV_USAGE_RATIO, catalogue.STEP_TOKENS
    layouts = [
        LedgerLayout(["m"], metrics=[gauge, histogram]),
        LedgerLayout(["n"], metrics=[gauge, histogram]),
        LedgerLayout(["m"], metrics=[histogram, gauge]),
        LedgerLayout(["m"], metrics=[gauge]),
        LedgerLayout(["m"], metrics=[gauge, histogram], open_requests=1),
        LedgerLayout(["m"], metrics=[gauge, histogram], usage_rows=1),
        LedgerLayout(["m"], metrics=[gauge, histogram], ring_bytes=1),
        LedgerLayout(
            ["m"], metrics=[gauge, dataclasses.replace(histogram, buckets=(1, 4, 16, 65))]
        ),
        LedgerLayout(["m"], metrics=[dataclasses.replace(gauge, name="quire_x"), histogram]),
        LedgerLayout(["m"], {"key": ["a", "b"]}, metrics=[KEYED]),
        LedgerLayout(["m"], {"key": ["a", "c"]}, metrics=[KEYED]),
    ]
    for one, other in itertools.combinations(layouts, 2):
        assert one.fingerprint != other.fingerprint
    again = LedgerLayout(["m", "m"], metrics=[gauge, histogram])
    assert again.fingerprint == layouts[0].fingerprint


def test_a_label_without_values_takes_those_of_run_time_or_is_refused() -> None:
    layout = LedgerLayout(["m"], {"key": ["a", "b"]}, metrics=[KEYED])
    assert layout.families[KEYED.name].label_values == (("a", "b"),)
    with pytest.raises(ValueError, match="key"):
        LedgerLayout(["m"], metrics=[KEYED])
    with_rest = dataclasses.replace(KEYED, labels=(Label("key", rest="other"),))
    for given, expected in ({}, ("other",)), ({"key": ["a", "other"]}, ("a", "other")):
        layout = LedgerLayout(["m"], given, metrics=[with_rest])
        assert layout.families[KEYED.name].label_values == (expected,)


def test_label_values_that_the_metric_cannot_have_are_refused() -> None:
    family = LedgerLayout(["m"]).families[catalogue.STEP_SECONDS.name]
    with pytest.raises(ValueError, match="labels"):
        family.number_of(["m"])
    with pytest.raises(ValueError, match="idle"):
        family.number_of(["m", "idle"])
