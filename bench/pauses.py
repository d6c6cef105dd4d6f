"""How long do streams pause while short chats come and go?

    python -m bench.pauses                 # one minute
    python -m bench.pauses --seconds 300 --tokens 16

A real worker with an engine of 5 ms steps (a simulated model), and a client that keeps 32 streamed
chats going. The table has the times between two chunks of a stream: quantiles, the longest, and how
many exceeded 25, 50 and 100 ms. All streams pause at once, so one pause counts up to 32 times.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from bench.report import print_table, write_result
from bench.visibility import STEP_MS, STREAMS, Clients, Load, keep_apart
from tests.service.running import RunningService
from tests.service.tiny_model import write_tiny_model

LIMITS_MS = (25, 50, 100)
ROUND_SECONDS = 5.0


def gaps(seconds: float, tokens: int) -> tuple[int, list[float]]:
    """Return how many requests ended, and all gaps in milliseconds, in ascending order."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(0, cores[1:])  # also what this process starts
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        model = write_tiny_model(folder / "model")
        simulated = f"simulated:step={STEP_MS}ms,context=100000,tokenizer={model}"
        store = f"sqlite:///{folder}/store.sqlite3"
        with RunningService(
            model,
            folder,
            engine_args=("--model", simulated),
            worker_args=("--store-url", store),
        ) as service:
            keep_apart(service.worker.popen.pid, cores)
            clients = Clients(service.port, Load(STREAMS, tokens))
            clients.run(1.0)
            requests, found = 0, list[float]()
            for _ in range(round(seconds / ROUND_SECONDS)):
                ended, its = clients.run(ROUND_SECONDS)
                requests += ended
                found += its
    return requests, sorted(gap * 1e3 for gap in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--tokens", type=int, default=64, help="of each answer (%(default)s)")
    options = parser.parse_args()
    requests, found = gaps(options.seconds, options.tokens)

    def quantile(share: float) -> float:
        return found[int((len(found) - 1) * share)]

    row = {
        "requests": requests,
        "median ms": quantile(0.5),
        "99 %": quantile(0.99),
        "99.9 %": quantile(0.999),
        "longest": found[-1],
        **{f"over {limit} ms": sum(gap > limit for gap in found) for limit in LIMITS_MS},
    }
    print_table([row])
    print(write_result("pauses", [row], tokens=options.tokens, seconds=options.seconds))


if __name__ == "__main__":
    main()
