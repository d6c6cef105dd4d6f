"""Parses Python's source for tests about our code."""

from __future__ import annotations

import ast
import gc


def parsed(source: str) -> ast.Module:
    """``ast.parse``, without the garbage collector: a finalizer that formats a traceback uses the
    same parser, after which that of Python 3.11 raises SystemError."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        if was_enabled:
            gc.enable()
