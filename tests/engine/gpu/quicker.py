"""Makes Triton's interpreter twice as fast; what it computes stays the same."""

from __future__ import annotations

import importlib
from typing import Any


def quicken_interpreter() -> None:
    """Each time a kernel calls one of its functions, Triton's interpreter looks through whole
    modules for built-in functions to replace. Here they are looked up once, and skipped if the
    first is already replaced."""
    try:
        interpreter: Any = importlib.import_module("triton.runtime.interpreter")
        slow, patch = interpreter._patch_builtin, interpreter._patch_attr
        is_builtin = interpreter.tl.core.is_builtin
    except (ImportError, AttributeError):  # another release of Triton: the tests take longer
        return
    names: dict[Any, list[str]] = {}

    def quick(module: Any, builder: Any, scope: Any) -> None:
        if module not in names:
            found = [name for name in dir(module) if is_builtin(getattr(module, name, None))]
            if not found:
                return slow(module, builder, scope)
            names[module] = found
        if not is_builtin(getattr(module, names[module][0])):
            return None
        for name in names[module]:
            patch(module, name, getattr(module, name), builder, scope)
        return None

    interpreter._patch_builtin = quick
