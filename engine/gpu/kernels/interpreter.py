"""Fixes for Triton's interpreter (3.6 to 3.8), whose results otherwise differ from a GPU's."""

from typing import Any

import numpy as np
import torch
import triton.language as tl
from numpy.typing import NDArray
from triton.runtime import interpreter

_TYPES = {
    tl.float32: (torch.float32, torch.int32),
    tl.float16: (torch.float16, torch.int16),
    tl.bfloat16: (torch.bfloat16, torch.int16),
    tl.float8e4nv: (torch.float8_e4m3fn, torch.uint8),
}


def repair() -> None:
    """Apply the fixes. To be called once, before a kernel runs."""
    _allow_loop_bounds()
    _round_to_nearest()
    _multiply_rows_alike()


def _allow_loop_bounds() -> None:
    """Allow a loop bound that a kernel loaded: the interpreter calls ``int(array)`` on it, which
    NumPy 2.4 refuses for an array with a dimension."""
    patch_tensor = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patched


def _round_to_nearest() -> None:
    """Let torch convert floats: the interpreter truncates to bfloat16, and for 8-bit floats loses
    the carry of a rounded mantissa."""
    convert = interpreter._convert_float

    def rounded(values: NDArray[Any], source: Any, target: Any, rounding: Any) -> NDArray[Any]:
        if source not in _TYPES or target not in _TYPES:
            return np.asarray(convert(values, source, target, rounding))
        (from_type, from_bits), (to_type, to_bits) = _TYPES[source], _TYPES[target]
        signed = np.ascontiguousarray(values).view(torch.empty(0, dtype=from_bits).numpy().dtype)
        floats = torch.from_numpy(signed.copy()).view(from_type)
        return np.asarray(floats.to(to_type).view(to_bits).numpy())

    interpreter._convert_float = rounded


def _multiply_rows_alike() -> None:
    """Let a row's product not depend on its place in the tile, as on a GPU: in NumPy's library the
    order of a sum does."""

    def dot(
        self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any
    ) -> Any:
        if a.data.ndim != 2 or a.dtype.primitive_bitwidth == 8 or b.dtype.primitive_bitwidth == 8:
            return create_dot(self, a, b, d, input_precision, max_num_imprecise_acc)
        product = np.einsum("ik,kj->ij", a.data, b.data, dtype=d.data.dtype)
        return interpreter.TensorHandle(product + d.data, d.dtype.scalar)

    create_dot = interpreter.InterpreterBuilder.create_dot
    interpreter.InterpreterBuilder.create_dot = dot
