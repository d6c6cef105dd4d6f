"""Which test files `make quick` leaves out: those that start processes or take long.

A file is left out if it, or a helper under ``tests/`` that it imports, uses ``subprocess`` or is
marked ``integration``. That is read from the source: importing what the left-out files need takes
longer than the quick tests run.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent
LEFT_OUT = ("subprocess", "mark.integration", "mark.agents", "mark.chart")
STARTS = ("subprocess.Popen", "os.fork", "os.posix_spawn")


@cache
def is_quick(path: Path) -> bool:
    source = path.read_text()
    if any(word in source for word in LEFT_OUT):
        return False
    return all(is_quick(helper) for helper in _helpers(source))


def _helpers(source: str) -> list[Path]:
    """The modules under ``tests/`` that a source imports."""
    names = [
        node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tests.")
    ]
    paths = [TESTS.parent / (name.replace(".", "/") + ".py") for name in names]
    return [path for path in paths if path.exists()]


def forbid_processes() -> None:
    """From now on, starting a process raises an error in this interpreter."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in STARTS:
            raise AssertionError(f"mark this file integration: it starts {arguments}")

    sys.addaudithook(hook)
