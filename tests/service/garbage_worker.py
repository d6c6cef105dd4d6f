"""The worker with its garbage collector off. At SIGUSR2 it collects, and writes to the file that
``GARBAGE_FILE`` names, as JSON: how many objects were collected and how many are there now, by
type."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from service.worker import main

VARIABLE = "GARBAGE_FILE"


def by_type(objects: Iterable[object]) -> Counter[str]:
    return Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in objects)


def report(*_: object) -> None:
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    collected = by_type(gc.garbage)
    gc.garbage.clear()
    gc.collect()
    alive = by_type(gc.get_objects())
    file = Path(os.environ[VARIABLE])
    written = file.with_suffix(".new")
    written.write_text(json.dumps({"collected": collected, "alive": alive}))
    written.rename(file)


if __name__ == "__main__":
    gc.disable()
    signal.signal(signal.SIGUSR2, report)
    sys.exit(main(sys.argv[1:]))
