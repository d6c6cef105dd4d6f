"""Which tests `make quick` leaves out: those that start processes or take long.

Files are excluded by their source, including the helpers under ``tests/`` that they import, because
importing what they need already takes long. In the other files, a test is skipped when it makes the
product start a process.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent
ROOMS_LEFT_OUT = ("pocket",)  # how the shipped model was trained
LEFT_OUT = re.compile(
    r"\bsubprocess\b|mark\.(?:agents|chart|integration)\b"
    r"|^ *(?:from|import) (?:transformers|sentence_transformers|triton|engine\.gpu)\b",
    re.MULTILINE,
)
IMPORTS = re.compile(r"^ *from (tests\.[\w.]+) import ", re.MULTILINE)
STARTS = ("subprocess.Popen", "os.fork", "os.posix_spawn")


@cache
def is_quick(path: Path) -> bool:
    if path.relative_to(TESTS).parts[0] in ROOMS_LEFT_OUT:
        return False
    source = path.read_text()
    return not LEFT_OUT.search(source) and all(is_quick(helper) for helper in _helpers(source))


def _helpers(source: str) -> list[Path]:
    """Return the modules under ``tests/`` that a source imports."""
    paths = [TESTS.parent / (name.replace(".", "/") + ".py") for name in IMPORTS.findall(source)]
    return [path for path in paths if path.exists()]


def skip_what_starts_processes() -> None:
    """From now on, skip a test when it starts a process in this interpreter."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in STARTS:
            pytest.skip("starts a process (make test runs it)")

    sys.addaudithook(hook)
