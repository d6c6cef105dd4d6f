"""Imports a library without the optional packages that it would import if installed.

Some libraries try to import optional packages for features that Quire does not use. If something
else installed such a package, that costs seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def hidden_packages(*names: str) -> Iterator[None]:
    """Within this context, importing one of ``names`` raises ImportError, as if it were not
    installed.

    Packages that are already loaded stay available. This affects all threads, so use it only for
    imports, while no other thread may need these packages.
    """
    loaded: dict[str, Any] = sys.modules
    hidden = [name for name in names if name not in loaded]
    loaded.update(dict.fromkeys(hidden))  # None makes the import system raise ImportError
    try:
        yield
    finally:
        for name in hidden:
            loaded.pop(name, None)
