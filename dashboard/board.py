"""What the Live page shows, as one table that the drawing in the browser follows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from observability.admin_api import Condition
from observability.history import ENDED_COLUMNS
from observability.outcomes import OutcomeGroup
from observability.phases import PHASES

# A colour means the same in every chart: teal runs or is generated, indigo is prompt, grey is kept
# or idle or has left, amber waits or is refused, red failed; blues are a latency's percentiles.
_GROUP_COLORS = {
    OutcomeGroup.ANSWERED: "teal",
    OutcomeGroup.LEFT: "grey",
    OutcomeGroup.REFUSED: "amber",
    OutcomeGroup.FAILED: "red",
}
PHASE_COLORS = {
    "receive": "lightblue",
    "render": "blue",
    "tokenize": "deepblue",
    "admit": "grey",
    "queue": "amber",
    "prefill": "indigo",
    "decode": "teal",
    "flush": "red",
}


@dataclass(frozen=True, slots=True)
class Line:
    """``column``: of the history."""

    name: str
    color: str
    column: str


@dataclass(frozen=True, slots=True)
class BoardChart:
    """``unit``: "count", "rate", "seconds" or "state". ``limit``: a figure of the overview that is
    drawn as a line; ``top``: one that the axis always reaches. ``worst``: of several servers the
    largest value or the most urgent state is shown, since neither can be added."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    stacked: bool = False
    limit: str = ""
    top: str = ""
    worst: bool = False


def _percentiles(column: str) -> tuple[Line, ...]:
    colors = {"p50": "lightblue", "p95": "blue", "p99": "deepblue"}
    return tuple(Line(name, color, f"{column}_{name}") for name, color in colors.items())


BOARD = (
    BoardChart(
        "Sequences",
        "count",
        (Line("running", "teal", "running"), Line("waiting", "amber", "waiting")),
        stacked=True,
        limit="max_running",
    ),
    BoardChart(
        "Tokens per second",
        "rate",
        (
            Line("out", "teal", "tokens_out"),
            Line("in, computed", "indigo", "tokens_in_computed"),
            Line("in, cached", "grey", "tokens_in_cached"),
        ),
    ),
    BoardChart(
        "KV cache, blocks",
        "count",
        (Line("active", "teal", "kv_active"), Line("cached", "grey", "kv_cached")),
        stacked=True,
        top="kv_blocks",
    ),
    BoardChart(
        "Where time goes",
        "rate",
        tuple(
            Line(phase.name, PHASE_COLORS[phase.name], f"phase_{phase.name}") for phase in PHASES
        ),
        stacked=True,
    ),
    BoardChart("First token", "seconds", _percentiles("ttft"), limit="slo.ttft", worst=True),
    BoardChart("Between tokens", "seconds", _percentiles("itl"), limit="slo.itl", worst=True),
    BoardChart(
        "Ended per second",
        "rate",
        tuple(
            Line(group.value, color, ENDED_COLUMNS[group]) for group, color in _GROUP_COLORS.items()
        ),
    ),
    BoardChart(
        "What limited the server", "state", (Line("condition", "teal", "condition"),), worst=True
    ),
)


@dataclass(frozen=True, slots=True)
class Wording:
    """How a condition is shown: its title, how serious it is, and where to look further."""

    title: str
    level: str
    color: str
    page: str = ""
    page_title: str = ""


_LIVE_REQUESTS = ("/requests?state=live", "live requests")

WORDINGS = {
    Condition.DOWN: Wording("Down", "critical", "red", "/admin", "Admin page"),
    Condition.SILENT: Wording("Engine silent", "critical", "red", *_LIVE_REQUESTS),
    Condition.LOADING: Wording("Loading", "warning", "lightblue", "/admin", "Admin page"),
    Condition.DRAINING: Wording("Draining", "warning", "deepblue", *_LIVE_REQUESTS),
    Condition.ENGINES: Wording("An engine is missing", "warning", "lightblue", *_LIVE_REQUESTS),
    Condition.CONNECTIONS: Wording("Out of connections", "warning", "amber", *_LIVE_REQUESTS),
    Condition.KV: Wording("Limited by KV cache", "warning", "amber", "/kv", "KV cache page"),
    Condition.SLOTS: Wording("Limited by slots", "warning", "amber", *_LIVE_REQUESTS),
    Condition.PREFILL: Wording("Limited by long prompts", "warning", "indigo", *_LIVE_REQUESTS),
    Condition.CONSTRAINT: Wording("Limited by grammars", "warning", "amber", *_LIVE_REQUESTS),
    Condition.FRONTEND: Wording("Limited by front end", "warning", "amber", "/admin", "Admin page"),
    Condition.CLIENTS: Wording("Limited by clients", "warning", "amber", *_LIVE_REQUESTS),
    Condition.IDLE: Wording("Idle", "calm", "grey"),
    Condition.HEALTHY: Wording("Healthy", "calm", "teal"),
}

# In the order of the history's column "condition".
CONDITIONS: list[dict[str, Any]] = [
    {"name": one.value, **asdict(WORDINGS[one])} for one in Condition
]
CHARTS_DRAWN: list[dict[str, Any]] = [asdict(chart) for chart in BOARD]
