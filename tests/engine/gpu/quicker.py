"""Makes Triton's interpreter twice as fast, without a change to what it computes."""

from __future__ import annotations

import importlib
from typing import Any


def quicken_interpreter() -> None:
    """Each time a kernel calls one of its functions, the interpreter replaces the built-in
    functions of Triton's language, which it finds by looking at all members of a module. Here it
    looks once, and sees by the first of them whether they are replaced already."""
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
