"""Says in a sentence which package a benchmark needs that is not installed."""

from __future__ import annotations

import sys
from types import TracebackType

# Installed by ``make peers``, in a separate environment.
_PEERS = frozenset({"llama_cpp", "openvino", "openvino_genai"})
_PEERS_FOLDER = "build/peers/"


def hint(error: BaseException) -> str | None:
    """Return what to install; None if the error has another cause."""
    if isinstance(error, FileNotFoundError) and _PEERS_FOLDER in str(error.filename):
        return (
            "this benchmark compares with others, which are not installed: run `make peers` first"
        )
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    package = error.name.partition(".")[0]
    if package in sys.stdlib_module_names:
        return None
    target = "peers" if package in _PEERS else "develop"
    return f"this benchmark needs {package}, which is not installed: run `make {target}` first"


def report(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """Print the hint instead of a traceback: a ``sys.excepthook``."""
    if (text := hint(error)) is None:
        sys.__excepthook__(kind, error, traceback)
    else:
        print(f"bench: {text}", file=sys.stderr)
