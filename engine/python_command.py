"""The command line of every child Python process, in one place so that all are started alike."""

from __future__ import annotations

import sys


def python_command(*arguments: str) -> list[str]:
    """Return the command line of this interpreter with ``arguments``. ``-P`` keeps the working
    directory off the import path, so that a file there with the name of one of our modules is not
    executed."""
    return [sys.executable, "-P", *arguments]
