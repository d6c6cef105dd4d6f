"""What a metric of the catalogue is made of. Imports nothing outside the standard library."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class MetricKind(enum.StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


class Scope(enum.StrEnum):
    """Whose numbers a metric holds, and so which values its label ``model`` takes."""

    PROCESS = "process"  # the API worker's: there is no such label
    ENGINE = "engine"  # the one model's, under its first name, whatever clients call it
    MODEL = "model"  # requests', under the name that each requested
    REQUEST = "request"  # likewise, and under ``OTHER_MODEL`` where that is not a served name


class Combined(enum.StrEnum):
    """What a server with several workers shows of the values that each of them has."""

    SUM = "sum"
    MAX = "max"
    ANY = "any"  # the answering worker's own, as all workers have the same


@dataclass(frozen=True, slots=True)
class Label:
    """``values``: the closed set of values, or None for one that is only known at run time; to that
    ``rest`` is added, the value of everything else."""

    name: str
    values: tuple[str, ...] | None = None
    rest: str | None = None


@dataclass(frozen=True, slots=True)
class Total:
    """A series of a counter that the engine keeps: ``field`` of ``engine.messages.EngineCounters``,
    under ``value`` of the label besides ``model``, where there is one."""

    field: str
    value: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """``name`` is complete, with unit and ``_total`` where Prometheus' naming requires them.
    ``bulk``: observed at least at each engine step, so that one observation must cost little.
    ``totals``: where a counter's series come from, if from the engine's own. ``on_use``: only some
    combinations of its label values exist from the start, the others from their first use.
    ``combined``: of several workers; that of ``totals`` is in memory that they share."""

    name: str
    kind: MetricKind
    scope: Scope
    help: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()
    bulk: bool = False
    totals: tuple[Total, ...] = ()
    on_use: bool = False
    combined: Combined = Combined.SUM
