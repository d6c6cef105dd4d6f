"""The worker with its garbage collector off. At SIGUSR2 it collects, and writes what was found to
the file that ``GARBAGE_FILE`` names: how many objects, by type, as JSON."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

from service.worker import main

VARIABLE = "GARBAGE_FILE"


def report(*_: object) -> None:
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    found = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage)
    gc.garbage.clear()
    gc.collect()
    file = Path(os.environ[VARIABLE])
    written = file.with_suffix(".new")
    written.write_text(json.dumps(found))
    written.rename(file)


if __name__ == "__main__":
    gc.disable()
    signal.signal(signal.SIGUSR2, report)
    sys.exit(main(sys.argv[1:]))
