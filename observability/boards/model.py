"""What a board consists of: plain data, which ``observability.boards.grafana`` renders."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from observability import catalogue
from observability.metric_kinds import Metric
from observability.objectives import SLO_ITL_SECONDS, SLO_TTFT_SECONDS
from observability.promql import Queries, bound_text

# Grafana fills in the variables. A board without one of them has no query that uses it.
BOARD_QUERIES = Queries(
    ('job=~"$job"', 'instance=~"$instance"'), 'model=~"$model"', "$__rate_interval"
)


class PanelKind(enum.StrEnum):
    STAT = "stat"
    TIME_SERIES = "timeseries"
    HEAT_MAP = "heatmap"
    TABLE = "table"


class PanelUnit(enum.StrEnum):
    """The values are Grafana's."""

    SECONDS = "s"
    PER_SECOND = "cps"
    REQUESTS = "reqps"
    TOKENS = "short"
    TOKENS_PER_SECOND = "count:tok/s"
    COUNT = "short"
    SHARE = "percentunit"
    SECONDS_PER_SECOND = "count:s/s"
    BYTES = "bytes"
    BYTES_PER_SECOND = "Bps"
    MEGABYTES = "decmbytes"
    WATTS = "watt"
    CELSIUS = "celsius"
    HERTZ = "hertz"
    PLAIN = "none"


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """``legend``: with ``{{label}}`` for a label's value. ``silent``: why a healthy server under
    load may return nothing, and ``proof`` a query that returns something while this is so; empty
    for a query that must return data."""

    expr: str
    legend: str = ""
    silent: str = ""
    proof: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """``width``: of 24 columns. ``exemplars``: link requests' traces. ``steps``: from which value
    on which colour is shown."""

    title: str
    help: str
    queries: tuple[PanelQuery, ...]
    unit: PanelUnit
    kind: PanelKind = PanelKind.TIME_SERIES
    width: int = 8
    stacked: bool = False
    exemplars: bool = False
    maximum: float | None = None
    steps: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PanelRow:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Picker:
    """A variable whose values the board lists. ``start``: the value before anyone picks."""

    name: str
    label: str
    values: tuple[str, ...]
    start: str


@dataclass(frozen=True, slots=True)
class BoardChoice:
    """A variable whose values are those of a label, all of them before anyone picks. ``series``: a
    selector of series that have it."""

    name: str
    label: str
    series: str


@dataclass(frozen=True, slots=True)
class Board:
    """``name``: of its file. ``choices``, ``pickers``: its variables, besides the data source."""

    name: str
    title: str
    help: str
    rows: tuple[PanelRow, ...]
    choices: tuple[BoardChoice, ...]
    pickers: tuple[Picker, ...] = ()

    @property
    def uid(self) -> str:
        return f"quire-{self.name}"

    @property
    def panels(self) -> tuple[Panel, ...]:
        return tuple(panel for row in self.rows for panel in row.panels)


_OF_JOB = 'job=~"$job"'
_JOB = BoardChoice("job", "Job", catalogue.BUILD_INFO.name)
_OF_INSTANCE = BoardChoice("instance", "Instance", f"{catalogue.BUILD_INFO.name}{{{_OF_JOB}}}")
_OF_MODEL = BoardChoice("model", "Model", f"{catalogue.E2E_SECONDS.name}_count{{{_OF_JOB}}}")
SERVER_CHOICES = (_JOB, _OF_INSTANCE)
MODEL_CHOICES = (_JOB, _OF_MODEL, _OF_INSTANCE)


def _slo_picker(name: str, label: str, metric: Metric, start: float, most: float) -> Picker:
    """Only bounds of the histogram can be picked: of those it knows the exact share."""
    values = tuple(bound_text(bound) for bound in metric.buckets if bound <= most)
    if bound_text(start) not in values:
        raise ValueError(f"{start:g} s is not a bucket bound of {metric.name}")
    return Picker(name, label, values, bound_text(start))


SLO_TTFT = _slo_picker(
    "slo_ttft", "SLO: first token (s)", catalogue.TIME_TO_FIRST_TOKEN, SLO_TTFT_SECONDS, 60
)
SLO_ITL = _slo_picker(
    "slo_itl", "SLO: between tokens (s)", catalogue.INTER_TOKEN_LATENCY, SLO_ITL_SECONDS, 1
)
