"""Checks that a loaded server stays exact and stable: mixed load over every API, with answers that
are known, clients that leave, and, with ``--faults``, faults of docs/drill.md.

``python -m bench.soak --minutes 5 --faults -- --max-num-seqs 32``: what follows ``--`` are flags of
``quire serve``. Before the load each request is sent once to the quiet server; under load the
answer must be the same. At the end the server's counters must be the clients' ledger, no block may
be in use, memory and descriptors must be back, and no request may have failed but by a fault.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from dataclasses import dataclass
from typing import Any

from bench.report import print_table, write_result
from bench.soak.ledger import Ledger, compared, counted, problems
from bench.soak.load import Faults, Load
from bench.soak.server import SOAKED_FAULTS, Memory, SoakedServer, open_files
from tests.e2e.quire_server import until

_MOST_GROWTH_MIB = 32.0  # of a process, from the first to the second half of the settled time
_SETTLED_SECONDS = 60  # younger processes still grow
_MOST_NEW_FILES = 16
_LONGEST_HOLD_SECONDS = 0.5  # of CPU time on the event loop
_QUIET_SECONDS = 60


@dataclass
class Soaked:
    """What a soak found."""

    ledger: Ledger
    injected: dict[str, int]
    memory: list[dict[str, Any]]
    wrong: list[str]
    seconds: float


async def _soak(server: SoakedServer, args: argparse.Namespace) -> Soaked:
    load = Load(server, seed=args.seed)
    faults = None
    if args.faults:
        faults = Faults(tuple(SOAKED_FAULTS), args.fault_seconds, seed=args.seed)
    seconds = args.minutes * 60
    await load.learn()
    files = await asyncio.to_thread(open_files, server)
    memory = Memory(server)

    async def weigh() -> None:
        while True:
            await asyncio.to_thread(memory.weigh)
            server.output()
            await asyncio.sleep(0.5)

    weighing = asyncio.create_task(weigh())
    await load.run(seconds, clients=args.clients, leaving=args.leaving, faults=faults)
    weighing.cancel()
    await load.close()
    wrong = await asyncio.to_thread(_wrong_afterwards, server, files)
    injected, metrics, rows = server.injected(), server.metrics(), memory.rows(seconds)
    wrong += compared(load.ledger, metrics, injected)
    wrong += _holds(metrics)
    wrong += problems(load.ledger, injected)
    wrong += [
        f"a {row['process']} grew by {row['second half minus first, MiB']:.0f} MiB"
        for row in rows
        if row["lived s"] >= _SETTLED_SECONDS
        and row["second half minus first, MiB"] > _MOST_GROWTH_MIB
    ]
    return Soaked(load.ledger, injected, rows, wrong, seconds)


def _wrong_afterwards(server: SoakedServer, files_before: dict[str, int]) -> list[str]:
    """Return what is wrong with the server once it is idle again."""
    until(lambda: server.get("/health/ready")[0] == 200, _QUIET_SECONDS, "readiness")

    def is_quiet() -> bool:
        return not (
            server.total("quire_requests_in_progress")
            or server.total("quire_sequences_running")
            or server.total("quire_sequences_waiting")
        )

    try:
        until(is_quiet, _QUIET_SECONDS, "no request in progress")
        until(
            lambda: server.total("quire_kv_blocks", state="active") == 0,
            _QUIET_SECONDS,
            "no block in use",
        )
        until(lambda: not _new_files(server, files_before), 30, "the descriptors of before")
    except TimeoutError as error:
        return [str(error)]
    return []


def _new_files(server: SoakedServer, before: dict[str, int]) -> bool:
    now = open_files(server)
    return any(now.get(name, 0) > count + _MOST_NEW_FILES for name, count in before.items())


def _holds(metrics: dict[str, float]) -> list[str]:
    buckets = {
        labels["le"]: value
        for labels, value in counted(metrics, "quire_event_loop_hold_seconds_bucket")
    }
    longer = buckets["+Inf"] - buckets[str(_LONGEST_HOLD_SECONDS)]
    return [f"{longer:.0f} holds of the event loop over {_LONGEST_HOLD_SECONDS} s"] * bool(longer)


def _report(found: Soaked, args: argparse.Namespace) -> None:
    ledger = found.ledger
    print_table(found.memory)
    refused = ", ".join(f"{count} × {status}" for status, count in ledger.refused.items())
    injected = ", ".join(f"{name} {count}" for name, count in found.injected.items() if count)
    print(
        f"{ledger.num_answered} answers in {found.seconds:.0f} s "
        f"({ledger.output_tokens} tokens), {len(ledger.different)} unlike the quiet server's; "
        f"{ledger.left} clients left; {ledger.failed.total()} failed, {ledger.cut.total()} cut, "
        f"refused: {refused or 'none'}; faults: {injected or 'none'}"
    )
    for line in found.wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    if args.write:
        facts = {
            "minutes": args.minutes,
            "clients": args.clients,
            "leaving": args.leaving,
            "server": args.server,
            "faults": found.injected,
            "answers": ledger.num_answered,
            "output_tokens": ledger.output_tokens,
            "different": len(ledger.different),
            "left": ledger.left,
            "failed": ledger.failed.total(),
            "cut": ledger.cut.total(),
            "refused": {str(status): count for status, count in ledger.refused.items()},
            "aimed": dict(ledger.aimed),
            "wrong": found.wrong,
        }
        print(write_result("soak", found.memory, **facts))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--clients", type=int, default=24, help="that check their answers")
    parser.add_argument("--leaving", type=int, default=4, help="clients that leave at any moment")
    parser.add_argument("--cores", type=int, default=2, help="for server and clients together")
    parser.add_argument("--faults", action="store_true", help="inject faults")
    parser.add_argument("--fault-seconds", type=float, default=5, help="from one to the next")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-write", dest="write", action="store_false", help="write no result")
    parser.add_argument("server", nargs="*", help="flags of quire serve, after --")
    return parser.parse_args()


def main() -> int:
    args = _arguments()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    begin = time.monotonic()
    with SoakedServer(*args.server, faults=args.faults) as server:
        found = asyncio.run(_soak(server, args))
    print(f"whole run: {time.monotonic() - begin:.0f} s")
    _report(found, args)
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
