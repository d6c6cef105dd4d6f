"""Rows of blocks are chosen and combined without being read."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

import torch

from engine.weights.blocks import BlockRows, combined_blocks
from engine.weights.file import TensorFile


def test_rows_are_chosen_and_combined_by_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "blocks"
    path.write_bytes(bytes(64))
    with closing(TensorFile(path)) as file:
        types = torch.tensor([2, 2, 2]).int()
        first = BlockRows.of_file(file, torch.tensor([16, 32, 48]), types, 32)
        second = BlockRows.of_file(file, torch.tensor([0]), torch.tensor([8]).int(), 32)
        chosen = first.rows(torch.tensor([2, 0]))
        assert chosen.shape == (2, 32)
        assert chosen.begins.tolist() == [48, 16]
        whole = combined_blocks([chosen, second], torch.cat)
        assert whole.files == (file,)
        assert whole.owners.tolist() == [0, 0, 0]
        assert whole.shape == (3, 32)
        assert (whole.begins.tolist(), whole.types.tolist()) == ([48, 16, 0], [2, 2, 8])


def test_rows_of_several_files_say_which_each_is_in(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_bytes(bytes(64))
    with ExitStack() as ends:
        a, b, c = (ends.enter_context(closing(TensorFile(path))) for path in paths)
        rows_a, rows_b, rows_c = (
            BlockRows.of_file(file, torch.tensor([32, 48]), torch.tensor([2, 2]).int(), 32)
            for file in (a, b, c)
        )
        one = combined_blocks([rows_b, rows_c], torch.cat)
        assert (one.files, one.owners.tolist()) == ((b, c), [0, 0, 1, 1])
        both = combined_blocks([rows_a, one.rows(torch.tensor([3, 0])), rows_b], torch.cat)
        assert (both.files, both.owners.tolist()) == ((a, b, c), [0, 0, 2, 1, 1, 1])
        assert both.owners.dtype == torch.int32
