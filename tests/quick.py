"""Which tests `make quick` leaves out: those that start processes or take long.

Files are excluded by their source, including the helpers under ``tests/`` that they import, because
importing what they need already takes long. In the other files, a test is skipped when it makes the
product start a process.
"""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent
LEFT_OUT = re.compile(
    r"\bsubprocess\b|mark\.(?:agents|chart|integration)\b"
    r"|^ *(?:from|import) (?:transformers|sentence_transformers|triton|engine\.gpu)\b",
    re.MULTILINE,
)
STARTS = ("subprocess.Popen", "os.fork", "os.posix_spawn")


@cache
def is_quick(path: Path) -> bool:
    source = path.read_text()
    return not LEFT_OUT.search(source) and all(is_quick(helper) for helper in _helpers(source))


def _helpers(source: str) -> list[Path]:
    """Return the modules under ``tests/`` that a source imports."""
    names = [
        node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tests.")
    ]
    paths = [TESTS.parent / (name.replace(".", "/") + ".py") for name in names]
    return [path for path in paths if path.exists()]


def skip_what_starts_processes() -> None:
    """From now on, skip a test when it starts a process in this interpreter."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in STARTS:
            pytest.skip("starts a process (make test runs it)")

    sys.addaudithook(hook)
