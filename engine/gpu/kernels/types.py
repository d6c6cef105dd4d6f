"""Triton's names for torch's types."""

from typing import Any

import torch
import triton.language as tl

_TYPES = {
    torch.float32: tl.float32,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
}


def triton_type(dtype: torch.dtype) -> Any:
    return _TYPES[dtype]
