"""The source of transformers' classes, in which the gate reads what a module keeps."""

from __future__ import annotations

import ast
import inspect
import io
import sys
from functools import cache


def class_code(kind: type) -> str:
    """Return the source of a class of transformers, without decorators; nothing for any other
    class."""
    if not kind.__module__.startswith("transformers."):
        return ""
    found = _module_classes(kind.__module__).get(kind.__qualname__)
    return inspect.getsource(kind) if found is None else found


@cache
def _module_classes(module: str) -> dict[str, str]:
    """Return the sources of a module's classes by name. Parsed once: ``inspect`` would parse the
    whole module for each class, which takes seconds for a model."""
    source = inspect.getsource(sys.modules[module])
    lines = io.StringIO(source).readlines()  # as ``ast`` counts them
    return {
        node.name: "".join(lines[node.lineno - 1 : node.end_lineno])
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef)
    }
