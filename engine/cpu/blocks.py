"""Packs matrices from the blocks of GGUF files (``blocks.h``), without a copy in between."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.cpu.integers import IntegerKind
from engine.cpu.library import Library, LinearStruct
from engine.device.pages import zeros
from engine.gguf.types import NUMBERS
from engine.weights.blocks import BlockRows

_KINDS = {
    NUMBERS[name]: kind
    for name, kind in (
        ("Q4_0", IntegerKind.NIBBLES),
        ("Q5_0", IntegerKind.BYTES),
        ("Q5_1", IntegerKind.BYTES_FLOAT),
        ("Q8_0", IntegerKind.BYTES),
        ("Q2_K", IntegerKind.BYTES_FLOAT),
        ("Q3_K", IntegerKind.BYTES_K),
        ("Q4_K", IntegerKind.NIBBLES_K),
        ("Q5_K", IntegerKind.BYTES_FLOAT),
        ("Q6_K", IntegerKind.BYTES_K),
        ("IQ4_NL", IntegerKind.BYTES),
        ("IQ4_XS", IntegerKind.BYTES_FLOAT),
    )
}
"""By the number of a type: the smallest kind that stores each matrix of this type without loss. Of
a type that is not here the values decide (``integers.kind_of``)."""


class PackedBlocks(NamedTuple):
    """``panels``: uint8 [panels, bytes of a panel], in the format of ``integers.h``."""

    shape: tuple[int, int]
    kind: IntegerKind
    panels: Tensor


def kind_of_blocks(rows: BlockRows) -> IntegerKind | None:
    """Return the smallest kind that stores rows of such types without loss; None: their values
    decide."""
    # In numpy: torch would split this little work among its threads and wait for them.
    stored = rows.types.numpy()[rows.begins.numpy() != 0]
    kinds = {_KINDS.get(number) for number in np.bincount(stored).nonzero()[0].tolist()}
    if None in kinds:
        return None
    if len(kinds) == 1:
        return kinds.pop()
    if kinds == {IntegerKind.NIBBLES, IntegerKind.BYTES}:
        return IntegerKind.BYTES
    return IntegerKind.BYTES_FLOAT


def packed_blocks(rows: BlockRows, library: Library, team: int) -> PackedBlocks:
    """Read the rows, of types that have a kind, and pack them with the threads of ``team``. Raises
    WeightsError."""
    kind = kind_of_blocks(rows)
    assert kind is not None
    outputs, inputs = rows.shape
    goal = LinearStruct(None, None, inputs, outputs, kind, inputs, 1.0)
    num_bytes = library.panel_bytes(goal)
    panels = zeros(-(-outputs // library.panel), num_bytes, dtype=torch.uint8)
    goal.weight = panels.data_ptr()
    begins, types = rows.begins.contiguous(), rows.types.contiguous()
    by_descriptor = {file.fileno(): file for file in rows.files}
    files = torch.tensor([*by_descriptor], dtype=torch.int32)[rows.owners.long()]
    at = (ctypes.c_int64 * 2)()
    failed = library.pack_blocks(
        team, goal, files.data_ptr(), begins.data_ptr(), types.data_ptr(), at
    )
    if failed:
        raise by_descriptor[at[0]].failure(max(failed, 0), at[1])
    return PackedBlocks(rows.shape, kind, panels)
