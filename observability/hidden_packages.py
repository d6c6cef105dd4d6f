"""Importing a library without what it imports merely because it is installed.

Some libraries try an optional package at their own import, for features that we do not use, and so
cost seconds wherever something else brought that package along.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def hidden_packages(*names: str) -> Iterator[None]:
    """Until its end, to import one of ``names`` raises ImportError, as if it were not installed.

    A package that is loaded already stays as it is. This is so for all threads: only for imports,
    while no other thread may need these packages.
    """
    loaded: dict[str, Any] = sys.modules
    hidden = [name for name in names if name not in loaded]
    loaded.update(dict.fromkeys(hidden))  # None: the import system says that there is none
    try:
        yield
    finally:
        for name in hidden:
            loaded.pop(name, None)
