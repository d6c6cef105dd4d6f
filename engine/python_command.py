"""How every child process of ours is started: one place, so that none can be started otherwise."""

from __future__ import annotations

import sys


def python_command(*arguments: str) -> list[str]:
    """The command line of this interpreter with ``arguments``. ``-P`` keeps the working directory
    off the import path: a file there named like one of our modules must not be executed."""
    return [sys.executable, "-P", *arguments]
