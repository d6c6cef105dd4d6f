"""``python -m service.drill_page [--check]``: writes docs/drill.md from the table of faults."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

from engine.faults.table import FAULTS, Place, faults_table, keys_table

PAGE = Path(__file__).resolve().parent.parent / "docs" / "drill.md"

_INTRODUCTION = """\
# Drill: practise each fault

Written by `python -m service.drill_page` (`make docs`) from `engine/faults/table.py`; a test fails
when they differ.

A server can inject faults into itself, so that you see how it reacts, and whether your alerts reach
you, before a real fault occurs. **Never do this on a server that people depend on.** Without
`--fault` a server cannot inject any.

## Start a server for it

Name each fault that it may inject. With `times=0` it does so only when an operator requests it:

```
KEY=$(openssl rand -hex 32); echo "KEY=$KEY"
QUIRE_ADMIN_KEY=operate:me=$KEY quire serve \\
    --fault engine_kill:times=0 --fault slow_step:times=0:seconds=2
```

The log names each at startup (`this server injects a fault into itself`), and the audit trail each
one that an operator requests. Faults that do not end their process also log `injecting a fault`.
Then, in a second shell with the same `KEY`, put load on the server and inject a fault:

```
URL=http://127.0.0.1:18000/admin/v1
curl -H "Authorization: Bearer $KEY" $URL/load \\
    --json '{"profile": "chat", "rate": 5, "seconds": 60, "concurrency": 8}'
curl -H "Authorization: Bearer $KEY" --json '{}' $URL/faults/engine_kill
curl -H "Authorization: Bearer $KEY" $URL/faults    # how often each was injected
```

*Load* on the dashboard starts such a run, too.

This needs a key with the scope `operate` and is recorded in [the audit trail](admin.md). The public
port has no such route. The fault is injected at the next event of its place: a step, a request, a
statement or an export. An idle engine takes no steps.

Faults can also be injected without an operator, for a soak test:
`--fault engine_kill:after=1000:times=5` kills an engine after a thousand steps, five times in all;
`--fault parser_error:probability=0.01:times=1000` fails one request in a hundred.
`make soak FAULTS=1` does that under load and checks every answer and every count.

## Keys of a fault

`--fault NAME:KEY=VALUE:KEY=VALUE`. Every fault of a server has the first five keys. Those with a
default below also have `seconds`; those that can be aimed, `max_tokens` and `output`.

"""
_FAULTS = """
## Faults

The last two are faults of clients, which a server cannot inject; `make soak` does.

"""
_DRILLS = """
## What you should see

| Fault | On the dashboard, in the log and at the clients | Alert |
|---|---|---|
"""
_END = """
Afterwards the state is *ok* again, `GET /health/ready` is 200, and no sequence runs without a
request; if not, see [diagnosis](diagnosis.md).
"""


class Drill(NamedTuple):
    """``alert``: the one that fires, ``when`` that is; empty: none should."""

    seen: str
    alert: str = ""
    when: str = ""


_THIRD_RESTART = "at the third restart of a worker within 30 minutes"
_STORE_NEEDED = (
    "after 2 minutes, if it lasts that long, or if requests failed or responses were not stored "
    "meanwhile"
)

DRILLS = {
    "engine_kill": Drill(
        "The state is *lost* until the next engine starts, then *loading* while the model loads. "
        "Streams pause and continue. The log says `died` and `restarting`; `quire_handovers_total` "
        "grows."
    ),
    "engine_stall": Drill(
        "The state is *silent*, then *loading*. The log says `is unresponsive, killing it` after "
        "`--engine-hang-timeout`. Streams pause and continue.",
        "QuireEngineSilent",
        "within a minute, while requests wait for the engine",
    ),
    "slow_step": Drill(
        "One column of the step times is high; each stream has a long gap in its record.",
        "QuireItlBudgetFast",
        "once one gap in seven over the last hour is long. With "
        "`--fault slow_step:every=4:times=1000000`, on a new server under load, that takes less "
        "than a minute.",
    ),
    "step_oom": Drill(
        "One request ends as `error:engine`; the engine's log says `a step of N sequences failed`. "
        "All others continue."
    ),
    "nan_logits": Drill(
        "One request ends as `error:engine`; the engine's log has its id and `NaN`. All others "
        "continue."
    ),
    "worker_kill": Drill(
        "Connections break; those requests end as `error:worker`. New ones are accepted within "
        "seconds.",
        "QuireWorkerRestarts",
        _THIRD_RESTART,
    ),
    "worker_stall": Drill(
        "Nothing answers until the log says `is unresponsive, killing it` after "
        "`--worker-hang-timeout`; then as for `worker_kill`.",
        "QuireWorkerRestarts",
        _THIRD_RESTART,
    ),
    "parser_error": Drill("One request ends as `error:internal`, with a traceback in the log."),
    "clock_jump": Drill(
        "Nothing in flight changes. Keys that the new time has passed get 401; log lines keep the "
        "right time. Usage counts in the hour of the new time; after a step back by two hours or "
        "more, the log says `the clock was set back`, and after one of up to an hour, usage stays "
        "in the newest hour."
    ),
    "store_down": Drill(
        "`GET /health` stays ok, and the log says `response store unavailable`; stored responses "
        "get 503. Answers are not affected.",
        "QuireStoreUnavailable",
        _STORE_NEEDED,
    ),
    "store_full": Drill(
        "Once something has to be written, the log says `cannot write to the response "
        "store`; stored responses can be read. Answers are not affected.",
        "QuireStoreUnavailable",
        _STORE_NEEDED,
    ),
    "exporter_hang": Drill(
        "Spans arrive late. If it lasts, the queue of 8,192 spans fills; those that do not fit are "
        "dropped and counted.",
        "QuireTelemetryDropped",
        "if more than 8,192 spans (about 900 requests) arrive meanwhile",
    ),
}


def page() -> str:
    """Return the whole document."""
    rows = [
        f"| `{row.name}` | {DRILLS[row.name].seen} | {_alert(DRILLS[row.name])} |\n"
        for row in FAULTS
        if row.place is not Place.CLIENT
    ]
    return "".join((_INTRODUCTION, keys_table(), _FAULTS, faults_table(), _DRILLS, *rows, _END))


def _alert(drill: Drill) -> str:
    name = drill.alert
    return f"[{name}](alerts.md#{name.lower()}) {drill.when}" if name else "none"


def main(argv: list[str]) -> int:
    """Write the page, or with ``--check`` only compare: exit status 1 if it is stale."""
    parser = argparse.ArgumentParser(prog="python -m service.drill_page", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    if parser.parse_args(argv).check:
        current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        if current == page():
            return 0
        print(f"{PAGE} is stale: run python -m service.drill_page", file=sys.stderr)
        return 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
