"""Rows of blocks are chosen and combined without being read."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import torch

from engine.weights.blocks import BlockRows, combined_blocks
from engine.weights.file import TensorFile


def test_rows_are_chosen_and_combined_by_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "blocks"
    path.write_bytes(bytes(64))
    with closing(TensorFile(path)) as file:
        first = BlockRows(file, torch.tensor([16, 32, 48]), torch.tensor([2, 2, 2]).int(), 32)
        second = BlockRows(file, torch.tensor([0]), torch.tensor([8]).int(), 32)
        chosen = first.rows(torch.tensor([2, 0]))
        assert chosen.shape == (2, 32)
        assert chosen.begins.tolist() == [48, 16]
        whole = combined_blocks([chosen, second], torch.cat)
        assert whole.file is file
        assert whole.shape == (3, 32)
        assert (whole.begins.tolist(), whole.types.tolist()) == ([48, 16, 0], [2, 2, 8])
