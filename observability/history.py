"""The columns of the one-second history that every server keeps, each declared once."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from observability.outcomes import OutcomeGroup
from observability.phases import PHASES


class Sampled(enum.Enum):
    """How a column's value comes about."""

    RATE = enum.auto()  # how much a total grew in the second
    GAUGE = enum.auto()  # the value at the second's end
    QUANTILE = enum.auto()  # over what was observed in the second; None if nothing was


class Coarse(enum.Enum):
    """What a longer step shows of the seconds in it."""

    MEAN = enum.auto()  # so that a rate times the step's length is what was counted
    MAX = enum.auto()
    MIN = enum.auto()
    LAST = enum.auto()


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    unit: str
    help: str
    sampled: Sampled = Sampled.GAUGE
    coarse: Coarse = Coarse.LAST


def _rate(name: str, unit: str, help_text: str) -> Column:
    return Column(name, unit, help_text, Sampled.RATE, Coarse.MEAN)


def _quantiles(name: str, help_text: str) -> tuple[Column, ...]:
    return tuple(
        Column(
            f"{name}_p{rank}",
            "s",
            f"{help_text}, {rank}th percentile",
            Sampled.QUANTILE,
            Coarse.MEAN if rank == 50 else Coarse.MAX,
        )
        for rank in (50, 95, 99)
    )


# Groups of outcomes by the names of their columns.
ENDED_COLUMNS = {group: f"ended_{group.name.lower()}" for group in OutcomeGroup}

HISTORY = (
    _rate("tokens_out", "tokens/s", "output tokens generated"),
    _rate("tokens_in_computed", "tokens/s", "prompt tokens computed"),
    _rate("tokens_in_cached", "tokens/s", "prompt tokens found in the prefix cache"),
    _rate("tokens_recomputed", "tokens/s", "tokens computed again after preemption"),
    _rate("received", "requests/s", "requests received"),
    *(
        _rate(name, "requests/s", f"requests ended: {group.value}")
        for group, name in ENDED_COLUMNS.items()
    ),
    _rate("overloaded", "requests/s", "requests refused because of overload"),
    Column("running", "sequences", "running"),
    Column("waiting", "sequences", "waiting", coarse=Coarse.MAX),
    Column(
        "oldest_waiting", "s", "how long the oldest waiting sequence has waited", coarse=Coarse.MAX
    ),
    Column("predicted_wait", "s", "how long a new request is expected to wait", coarse=Coarse.MAX),
    Column(
        "longest_gap",
        "s",
        "the longest time since a running sequence's last token",
        coarse=Coarse.MAX,
    ),
    Column("silence", "s", "time since the engine's last message", coarse=Coarse.MAX),
    Column("kv_active", "blocks", "KV cache blocks held by sequences"),
    Column("kv_cached", "blocks", "KV cache blocks kept for the prefix cache only"),
    Column("kv_free", "blocks", "KV cache blocks without contents"),
    _rate("preemptions", "1/s", "preemptions"),
    _rate("steps", "1/s", "engine steps"),
    Column("step_longest", "s", "the longest engine step", Sampled.QUANTILE, Coarse.MAX),
    Column("batch", "sequences", "mean sequences in a step", Sampled.QUANTILE, Coarse.MEAN),
    Column("loop_lag", "s", "the event loop's longest lag or hold", Sampled.QUANTILE, Coarse.MAX),
    Column("flush_waiting", "streams", "streams whose client does not read", coarse=Coarse.MAX),
    Column(
        "condition",
        "",
        "index of the verdict's condition in admin_api.Condition",
        coarse=Coarse.MIN,
    ),
    *_quantiles("ttft", "time to first token"),
    *_quantiles("itl", "time between tokens"),
    *(
        _rate(f"phase_{phase.name}", "s/s", f"request seconds spent in {phase.name}")
        for phase in PHASES
    ),
)
