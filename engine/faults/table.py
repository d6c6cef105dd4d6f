"""The faults that a server can inject into itself, one row for each, and their notation.

``--fault NAME:KEY=VALUE:KEY=VALUE`` injects one. A fault happens at *events* of its place: the
engine's steps, the requests that a worker submits to the engine, the store's statements, or exports
of spans. Which of them is decided by the keys that every fault has (``after``, ``every``,
``probability``, ``times``); the others belong to the rows that name them. docs/drill.md is written
from this table.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta, inspect

from engine.options import OptionError

_MOST = 1_000_000_000
_DAY = 86_400.0


class Place(enum.StrEnum):
    """Where a fault happens, and in which process."""

    ENGINE = "engine"
    WORKER = "API worker"
    STORE = "store"
    EXPORTER = "exporter"
    CLIENT = "client"

    @property
    def event(self) -> str:
        """What is counted."""
        return _EVENTS[self]


_EVENTS = {
    Place.ENGINE: "step",
    Place.WORKER: "request",
    Place.STORE: "statement",
    Place.EXPORTER: "export",
    Place.CLIENT: "request",
}


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault as it was configured. ``seconds``: None for the default of its row."""

    name: str
    after: Annotated[
        int, Meta(ge=0, le=_MOST, description="Events to skip first, in each process.")
    ] = 0
    every: Annotated[int, Meta(ge=1, le=_MOST, description="Then at every N-th event.")] = 1
    probability: Annotated[
        float, Meta(gt=0, le=1, description="The probability at such an event.")
    ] = 1.0
    seed: Annotated[int, Meta(ge=0, le=_MOST, description="Seed of the random draws.")] = 0
    times: Annotated[
        int,
        Meta(
            ge=0,
            le=_MOST,
            description="Maximum number of injections, in all processes together. 0: only when "
            "the admin API requests it.",
        ),
    ] = 1
    seconds: (
        Annotated[
            float,
            Meta(
                ge=-10 * 365 * _DAY,
                le=10 * 365 * _DAY,
                description="How long it lasts; of a clock jump, how far.",
            ),
        ]
        | None
    ) = None
    max_tokens: Annotated[
        int,
        Meta(
            ge=0,
            le=_MOST,
            description="Only sequences of requests with this max_tokens. 0: any.",
        ),
    ] = 0
    output: Annotated[
        int,
        Meta(ge=0, le=_MOST, description="Only sequences with at least this many output tokens."),
    ] = 0

    @property
    def row(self) -> FaultRow:
        return ROWS[self.name]

    @property
    def duration(self) -> float:
        """Seconds; of a clock jump, which may be negative, how far."""
        default = self.row.seconds
        return (0.0 if default is None else default) if self.seconds is None else self.seconds


_TRIGGER = ("after", "every", "probability", "seed", "times")
_AIM = ("max_tokens", "output")


@dataclass(frozen=True, slots=True)
class FaultRow:
    """``does``: what is injected. ``expected``: what the product must do then. ``test``: its test.
    ``seconds``: the default of the key; None: it has no such key. ``is_aimed``: it has
    ``max_tokens`` and ``output``."""

    name: str
    place: Place
    does: str
    expected: str
    test: str
    seconds: float | None = None
    is_aimed: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that it may have."""
        if self.place is Place.CLIENT:
            return ()
        own = ("seconds",) if self.seconds is not None else ()
        return (*_TRIGGER, *own, *(_AIM if self.is_aimed else ()))


FAULTS = (
    FaultRow(
        "engine_kill",
        Place.ENGINE,
        "The engine is killed (SIGKILL) before a step.",
        "The next engine continues every sequence; a request that is found to kill engines gets "
        "422.",
        "tests/e2e/test_recovery.py",
        is_aimed=True,
    ),
    FaultRow(
        "engine_stall",
        Place.ENGINE,
        "A step does not end for `seconds`.",
        "After `--engine-hang-timeout` the supervisor kills the engine; the next one continues "
        "every sequence.",
        "tests/e2e/test_faults.py",
        seconds=3600.0,
        is_aimed=True,
    ),
    FaultRow(
        "slow_step",
        Place.ENGINE,
        "A step takes `seconds` longer.",
        "Streams continue after the delay.",
        "tests/e2e/test_faults.py",
        seconds=0.2,
        is_aimed=True,
    ),
    FaultRow(
        "step_oom",
        Place.ENGINE,
        "The device has no memory for one sequence: every step with it raises.",
        "That request gets 500, or an error event; the others continue.",
        "tests/e2e/test_faults.py",
        is_aimed=True,
    ),
    FaultRow(
        "nan_logits",
        Place.ENGINE,
        "The logits of one sequence are NaN (on a CPU and for simulated models, with one rank).",
        "That request gets 500, or an error event; the others continue.",
        "tests/e2e/test_faults.py",
        is_aimed=True,
    ),
    FaultRow(
        "worker_kill",
        Place.WORKER,
        "The API worker is killed (SIGKILL) as it submits a request.",
        "Its connections break, no others; the next worker loses no count.",
        "tests/e2e/test_worker_death.py",
    ),
    FaultRow(
        "worker_stall",
        Place.WORKER,
        "The event loop is blocked for `seconds`.",
        "After `--worker-hang-timeout` the supervisor kills the worker.",
        "tests/e2e/test_faults.py",
        seconds=3600.0,
    ),
    FaultRow(
        "parser_error",
        Place.WORKER,
        "The parser of one request's output raises.",
        "That request gets 500, or an error event, in its API's form; the others continue.",
        "tests/e2e/test_faults.py",
    ),
    FaultRow(
        "clock_jump",
        Place.WORKER,
        "The wall clock, as the worker's Python code reads it, jumps by `seconds`.",
        "Nothing hangs; keys expire by the new time.",
        "tests/e2e/test_faults.py",
        seconds=3600.0,
    ),
    FaultRow(
        "store_down",
        Place.STORE,
        "For `seconds`, every statement of the worker's databases fails.",
        "Routes that need the store get 503; streams are not affected; it recovers by itself.",
        "tests/e2e/test_faults.py",
        seconds=10.0,
    ),
    FaultRow(
        "store_full",
        Place.STORE,
        "For `seconds`, every statement that writes fails, as if the disk were full.",
        "Answers are not affected; what is already stored can be read; it recovers by itself.",
        "tests/e2e/test_faults.py",
        seconds=10.0,
    ),
    FaultRow(
        "exporter_hang",
        Place.EXPORTER,
        "An export of spans blocks for `seconds`.",
        "Spans that do not fit in the queue are dropped and counted; no stream is delayed.",
        "tests/e2e/test_faults.py",
        seconds=60.0,
    ),
    FaultRow(
        "slow_reader",
        Place.CLIENT,
        "A client reads its stream slowly or not at all.",
        "After `--slow-reader-timeout` it is disconnected; the others are not affected.",
        "tests/service/live/test_connections.py",
    ),
    FaultRow(
        "disconnect",
        Place.CLIENT,
        "A client leaves at any moment.",
        "The engine stops within two steps; the request is counted once.",
        "tests/e2e/test_disconnects.py",
    ),
)
ROWS = {row.name: row for row in FAULTS}


def parse_fault(text: str) -> Fault:
    """Read ``NAME:KEY=VALUE:KEY=VALUE``. Raises OptionError."""
    name, *parts = text.split(":")
    row = ROWS.get(name)
    if row is None or row.place is Place.CLIENT:
        names = ", ".join(row.name for row in FAULTS if row.place is not Place.CLIENT)
        raise OptionError(
            f"{name[:64]!r} is not a fault that a server can inject. These are: {names}."
        )
    values: dict[str, Any] = {"name": name}
    for part in parts:
        key, _, value = part.partition("=")
        if key not in row.keys:
            raise OptionError(f"{name} has no {key[:64]!r}. It has: {', '.join(row.keys)}.")
        if key in values:
            raise OptionError(f"{name} has {key!r} twice.")
        values[key] = value
    try:
        fault = msgspec.convert(values, Fault, strict=False)
    except msgspec.ValidationError as error:
        raise OptionError(f"{name}: {error}.") from None
    if fault.duration < 0 and name != "clock_jump":
        raise OptionError(f"{name}: 'seconds' may not be negative.")
    return fault


def parse_faults(texts: tuple[str, ...]) -> tuple[Fault, ...]:
    """Read several, each of another name. Raises OptionError."""
    faults = tuple(parse_fault(text) for text in texts)
    names = [fault.name for fault in faults]
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"{name} is given twice; name each fault once.")
    return faults


def keys_table() -> str:
    """Return the keys as a table of Markdown."""
    info = inspect.type_info(Fault)
    assert isinstance(info, inspect.StructType)
    lines = ["| Key | Default | Meaning |", "|---|---|---|"]
    for field in info.fields[1:]:
        description = _description(field.type)
        default = "see the fault" if field.default is None else f"`{field.default}`"
        lines.append(f"| `{field.name}` | {default} | {description} |")
    return "\n".join(lines) + "\n"


def _description(kind: inspect.Type) -> str:
    while isinstance(kind, inspect.UnionType):
        kind = kind.types[0]
    assert isinstance(kind, inspect.Metadata)
    return str((kind.extra_json_schema or {})["description"])


def faults_table() -> str:
    """Return the faults as a table of Markdown."""
    lines = [
        "| Fault | Where | What happens | What the server must do | Test |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| `{row.name}` | {row.place} | {row.does}{_default(row)} | {row.expected} | "
        f"`{row.test}` |"
        for row in FAULTS
    ]
    return "\n".join(lines) + "\n"


def _default(row: FaultRow) -> str:
    aimed = " Can be aimed." if row.is_aimed else ""
    return aimed if row.seconds is None else f"{aimed} Default: {row.seconds:g} s."
