"""Which addresses kernels that start early request before they wait. The interpreter has no inline
assembler, so what a kernel hands to it is kept here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor
from triton.runtime.interpreter import InterpreterBuilder

from engine.gpu.kernels import dependent


def requests(monkeypatch: pytest.MonkeyPatch, module: Any) -> list[list[int]]:
    """Let the kernel of ``module`` start early in the interpreter. Return a list to which each of
    its programs adds the addresses of each request."""
    found: list[list[int]] = []

    def keep(self: Any, text: str, _: str, values: list[Any], *__: Any) -> SimpleNamespace:
        assert text.startswith("prefetch.global.L2 ")
        (places,) = values
        found.append(places.data.ravel().tolist())
        return SimpleNamespace(get_result=lambda _: places)

    monkeypatch.setattr(InterpreterBuilder, "create_inline_asm", keep)
    monkeypatch.setattr(dependent, "gdc_wait", lambda: None)
    monkeypatch.setattr(dependent, "gdc_launch_dependents", lambda: None)
    monkeypatch.setattr(module, "early_launch", lambda: {"EARLY": True})
    return found


def lines_of(tensor: Tensor) -> list[int]:
    """Return the addresses of each row's first element, and of every 128 bytes from there."""
    width, length = tensor.stride(0) * tensor.itemsize, tensor.shape[1] * tensor.itemsize
    starts = (tensor.data_ptr() + row * width for row in range(tensor.shape[0]))
    return [start + place for start in starts for place in range(0, length, 128)]
