"""The worker's garbage collector. Each of its pauses holds all streams up.

Requests leave no cycles of references, so that it rarely has anything to do.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

NEW_OBJECTS = 10_000  # between two collections; with Python's 700, a busy step causes several


def collect_for_serving() -> None:
    """Collect now. No later collection looks at what there is by now."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)


@contextmanager
def while_loading() -> Iterator[None]:
    """Nothing is collected, and what is loaded meanwhile is never looked at: to look at a large
    library takes a tenth of a second, and streams may be running."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
