"""Whether a checkpoint stores an output head, whatever config.json says."""

from __future__ import annotations

from contextlib import ExitStack
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from engine.architecture.schemes import is_codes
from engine.architecture.text_part import TextModelPart
from engine.weights.stored import SERVED_DTYPES, StoredTensor
from engine.weights.text_part import by_text_name
from engine.weights.weights import opened, spellings

_HEAD = "lm_head."
_CHUNK_BYTES = 16 << 20


def stores_head(directory: Path, text_part: TextModelPart | None) -> bool:
    """Return whether a head is stored, in any form. Raises WeightsError."""
    with ExitStack() as ends:
        stored = by_text_name(opened(directory, ends, text_part), text_part)
        return any(name.startswith(_HEAD) for name in stored)


def has_own_head(
    directory: Path, embedding: str, dtype: torch.dtype, text_part: TextModelPart | None
) -> bool:
    """Return whether a head is stored that differs in ``dtype`` from the tensor ``embedding``: then
    transformers does not tie them. A head counts, too, if it or the embeddings are in few bits.
    ``text_part``: see ``ModelConfig``. Raises WeightsError."""
    with ExitStack() as ends:
        stored = by_text_name(opened(directory, ends, text_part), text_part)
        head = stored.get(f"{_HEAD}weight")
        if head is None:
            return any(
                name.startswith(_HEAD) and is_codes(name, each.dtype)
                for name, each in stored.items()
            )
        other = next((stored[name] for name in spellings(embedding) if name in stored), None)
        if other is None or not {head.dtype, other.dtype} <= SERVED_DTYPES.keys():
            return True
        return not _are_equal(head, other, dtype)


def _are_equal(one: StoredTensor, other: StoredTensor, dtype: torch.dtype) -> bool:
    if one.shape != other.shape:
        return False
    count = prod(one.shape)
    step = _CHUNK_BYTES // 8
    return all(
        torch.equal(
            _elements(one, first, min(step, count - first)).to(dtype),
            _elements(other, first, min(step, count - first)).to(dtype),
        )
        for first in range(0, count, step)
    )


def _elements(stored: StoredTensor, first: int, count: int) -> Tensor:
    dtype = SERVED_DTYPES[stored.dtype]
    memory = torch.empty(count * dtype.itemsize, dtype=torch.uint8)
    stored.file.read_into(memory.numpy().data, stored.begin + first * dtype.itemsize)
    return memory.view(dtype)
