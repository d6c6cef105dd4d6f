"""The totals from which the history's rates come, read from the cells of the worker's ledger."""

from __future__ import annotations

from collections.abc import Sequence

from observability import catalogue
from observability.history import ENDED_COLUMNS
from observability.layout import FamilyLayout
from observability.metric_kinds import Combined
from observability.metrics import MetricRegistry
from observability.outcomes import OUTCOMES
from observability.phases import PHASES
from service.overview.ring import RATES
from service.telemetry.engine_totals import engine_identities, engine_total

_ENGINE_FIELDS = {
    "tokens_out": "tokens_generated",
    "tokens_in_computed": "prompt_tokens_computed",
    "tokens_in_cached": "prompt_tokens_cached",
    "tokens_recomputed": "tokens_recomputed",
    "preemptions": "preemptions",
}
LATENCIES = (catalogue.TIME_TO_FIRST_TOKEN, catalogue.INTER_TOKEN_LATENCY)
_OVERLOADED = "refused:overloaded"


class Totals:
    """Reads what a server has counted since its start, across the restarts of its parts."""

    def __init__(self, metrics: MetricRegistry) -> None:
        self._workers = metrics.workers
        self._numbers = metrics.workers[Combined.SUM]
        self._engines = metrics.engine_ledger
        families = metrics.ledger.layout.families
        self._requests = families[catalogue.REQUESTS.name]
        self._received = families[catalogue.REQUESTS_RECEIVED.name]
        self._step_counts = _bucket_cells(families[catalogue.STEP_SECONDS.name])
        self._batch_counts = _bucket_cells(families[catalogue.STEP_SEQUENCES.name])
        self._batch_sum = _sum_cells(families[catalogue.STEP_SEQUENCES.name])
        self._latencies = [families[metric.name] for metric in LATENCIES]
        self._phase_sums = _sum_cells(families[catalogue.PHASE_SECONDS.name])

    def ended(self) -> dict[str, float]:
        """Return the number of ended requests by outcome."""
        family = self._requests
        self._workers.look()
        counts = self._numbers.numbers(family.first_cell, family.cells)
        kinds = len(OUTCOMES)
        return {outcome.name: sum(counts[number::kinds]) for number, outcome in enumerate(OUTCOMES)}

    def engine_identities(self) -> tuple[int, ...]:
        """Return which process of each engine was heard last; 0 if none was."""
        return engine_identities(self._engines)

    def batches(self) -> tuple[float, float]:
        """Return the number of steps, and the sum of the sequences in them."""
        return self._added(self._batch_counts), self._added(self._batch_sum)

    def latencies(self) -> list[list[float]]:
        """Return the buckets of ``LATENCIES``, of all models."""
        found = []
        for family in self._latencies:
            values = self._numbers.numbers(family.first_cell, family.cells)
            buckets = range(family.width - 1)
            found.append([sum(values[bucket :: family.width]) for bucket in buckets])
        return found

    def _added(self, which: Sequence[int]) -> float:
        return sum([self._numbers.numbers(cell, 1)[0] for cell in which])

    def read(self, ended: dict[str, float]) -> list[float]:
        """Return the totals of ``ring.RATES``, in their order. ``ended``: as returned above."""
        received = self._received
        found = {
            column: engine_total(self._engines, field) for column, field in _ENGINE_FIELDS.items()
        }
        found["received"] = sum(self._numbers.numbers(received.first_cell, received.cells))
        for group, column in ENDED_COLUMNS.items():
            found[column] = sum(
                ended[outcome.name] for outcome in OUTCOMES if outcome.group is group
            )
        found["overloaded"] = ended[_OVERLOADED]
        found["steps"] = self._added(self._step_counts)
        # The label of the phase is the last one, so the series of a model follow its order.
        for number, phase in enumerate(PHASES):
            found[f"phase_{phase.name}"] = self._added(self._phase_sums[number :: len(PHASES)])
        return [found[name] for name in RATES]


def _bucket_cells(family: FamilyLayout) -> list[int]:
    """Return the cells whose sum is the number of a histogram's observations."""
    last = family.width - 1
    return [family.first_cell + cell for cell in range(family.cells) if cell % family.width != last]


def _sum_cells(family: FamilyLayout) -> list[int]:
    """Return the cells of a histogram's sums, one for each series."""
    first = family.first_cell + family.width - 1
    return list(range(first, family.first_cell + family.cells, family.width))
