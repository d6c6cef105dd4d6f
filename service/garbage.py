"""The worker's garbage collector. Each of its pauses holds up all streams.

Hardly any request leaves a cycle of references, so the collector rarely has anything to do.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

NEW_OBJECTS = 10_000  # between two collections; with Python's 700, a busy step causes several


def collect_for_serving() -> None:
    """Collect now. Later collections do not look at anything that exists by then."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)


@contextmanager
def while_loading() -> Iterator[None]:
    """Collect nothing meanwhile, and never look at what was loaded: going through a large library
    takes a tenth of a second, for which running streams would pause."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
