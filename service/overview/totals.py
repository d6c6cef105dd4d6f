"""The totals from which the history's rates come, read from the cells of the worker's ledger."""

from __future__ import annotations

from collections.abc import Sequence

from observability import catalogue
from observability.history import ENDED_COLUMNS
from observability.layout import FamilyLayout
from observability.metrics import MetricRegistry
from observability.outcomes import OUTCOMES
from observability.phases import PHASES
from service.overview.ring import RATES

_ENGINE_FIELDS = {
    "tokens_out": "tokens_generated",
    "tokens_in_computed": "prompt_tokens_computed",
    "tokens_in_cached": "prompt_tokens_cached",
    "tokens_recomputed": "tokens_recomputed",
    "preemptions": "preemptions",
}
_OVERLOADED = "refused:overloaded"


class Totals:
    """Reads what a server has counted since its start, across the restarts of its parts."""

    def __init__(self, metrics: MetricRegistry) -> None:
        ledger = metrics.ledger
        self._cells = ledger.cells
        families = ledger.layout.families
        self._requests = families[catalogue.REQUESTS.name]
        self._received = families[catalogue.REQUESTS_RECEIVED.name]
        self._step_counts = _bucket_cells(families[catalogue.STEP_SECONDS.name])
        self._batch_counts = _bucket_cells(families[catalogue.STEP_SEQUENCES.name])
        self._batch_sum = _sum_cells(families[catalogue.STEP_SEQUENCES.name])
        self._phase_sums = _sum_cells(families[catalogue.PHASE_SECONDS.name])
        layout = ledger.layout
        self._identity_cell = layout.engine_cells
        count = len(layout.engine_fields)
        self._engine = {
            column: (
                layout.engine_cells + 1 + layout.engine_fields.index(field),
                layout.engine_cells + 1 + layout.engine_fields.index(field) + count,
            )
            for column, field in _ENGINE_FIELDS.items()
        }

    def ended(self) -> dict[str, float]:
        """Return the number of ended requests by outcome."""
        family = self._requests
        counts = self._cells[family.first_cell : family.first_cell + family.cells].tolist()
        kinds = len(OUTCOMES)
        return {outcome.name: sum(counts[number::kinds]) for number, outcome in enumerate(OUTCOMES)}

    def engine(self, column: str) -> float:
        before, own = self._engine[column]
        return self._cells[before] + self._cells[own]

    def engine_identity(self) -> int:
        """Return the identity of the engine that was heard last; 0 if none was."""
        return int(self._cells[self._identity_cell])

    def batches(self) -> tuple[float, float]:
        """Return the number of steps, and the sum of the sequences in them."""
        return _added(self._cells, self._batch_counts), _added(self._cells, self._batch_sum)

    def read(self, ended: dict[str, float]) -> list[float]:
        """Return the totals of ``ring.RATES``, in their order. ``ended``: as returned above."""
        cells, received = self._cells, self._received
        found = {column: self.engine(column) for column in self._engine}
        found["received"] = sum(
            cells[received.first_cell : received.first_cell + received.cells].tolist()
        )
        for group, column in ENDED_COLUMNS.items():
            found[column] = sum(
                ended[outcome.name] for outcome in OUTCOMES if outcome.group is group
            )
        found["overloaded"] = ended[_OVERLOADED]
        found["steps"] = _added(cells, self._step_counts)
        # The label of the phase is the last one, so the series of a model follow its order.
        for number, phase in enumerate(PHASES):
            found[f"phase_{phase.name}"] = _added(cells, self._phase_sums[number :: len(PHASES)])
        return [found[name] for name in RATES]


def _added(cells: memoryview[float], which: Sequence[int]) -> float:
    return sum([cells[cell] for cell in which])


def _bucket_cells(family: FamilyLayout) -> list[int]:
    """Return the cells whose sum is the number of a histogram's observations."""
    last = family.width - 1
    return [family.first_cell + cell for cell in range(family.cells) if cell % family.width != last]


def _sum_cells(family: FamilyLayout) -> list[int]:
    """Return the cells of a histogram's sums, one for each series."""
    first = family.first_cell + family.width - 1
    return list(range(first, family.first_cell + family.cells, family.width))
