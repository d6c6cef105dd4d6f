"""``python -m tests.e2e.watched_worker``: the API worker, which also writes what it knows when it
looks at the server: one JSON line a second, to the file that ``WATCHED_SNAPSHOTS`` names."""

from __future__ import annotations

import os
import sys

import msgspec

from service import worker
from service.overview import overviews
from service.overview.diagnose import condition_of, describe
from service.overview.watch import ServerWatch


class WatchedServer(ServerWatch):
    def look(self, now: float) -> None:
        super().look(now)
        line = {
            "time": now,
            "found": condition_of(self.snapshot).value,
            "shown": self.condition.value,
            "sentence": describe(self.condition, self.snapshot).sentence,
            "snapshot": self.snapshot,
        }
        with open(os.environ["WATCHED_SNAPSHOTS"], "ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")


if __name__ == "__main__":
    overviews.ServerWatch = WatchedServer  # type: ignore[misc]
    os._exit(worker.main(sys.argv[1:]))
