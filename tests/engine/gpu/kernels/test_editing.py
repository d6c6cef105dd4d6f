"""The kernels for edited rows by hand; what whole sequences require is in test_edits.py."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from engine.gpu.kernels.editing import EditRecord, Edits, edit_rows

INF = math.inf


def sent(device: torch.device, *records: EditRecord, **arrays: Any) -> Edits:
    def tensor(name: str, default: list[Any], dtype: torch.dtype) -> Tensor:
        return torch.tensor(arrays.get(name, default), dtype=dtype, device=device)

    return Edits(
        torch.tensor(records, dtype=torch.int64, device=device),
        tensor("factors", [[1.0, 0.0, 0.0]] * len(records), torch.float32),
        tensor("masks", [[0]], torch.int32),
        tensor("endings", [], torch.int64),
        tensor("update_places", [], torch.int64),
        tensor("update_ids", [], torch.int64),
        tensor("update_counts", [], torch.float32),
    )


def test_a_row_may_be_copied_as_it_is_and_one_twice(device: torch.device) -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, math.nan]], device=device).half()
    records = [EditRecord(1), EditRecord(0), EditRecord(1, ending=1, num_ending=1)]
    found = edit_rows(logits, sent(device, *records, endings=[0, 1]))
    expected = [[4.0, 5.0, math.nan], [1.0, 2.0, 3.0], [4.0, -INF, math.nan]]
    torch.testing.assert_close(found.cpu(), torch.tensor(expected), equal_nan=True)


def test_tokens_beyond_a_mask_and_a_masked_nan_are_hidden(device: torch.device) -> None:
    logits = torch.ones(2, 70, device=device)
    logits[:, 1] = math.nan
    masks = [[0, 0], [1 << 5, -(1 << 31)]]  # token 5, and 63: the sign's bit
    edits = sent(device, EditRecord(0, mask=1), EditRecord(0), masks=masks)
    found = edit_rows(logits, edits, masks_only=True)
    assert found[0].isfinite().nonzero().flatten().tolist() == [5, 63]
    assert not found[0].isnan().any()
    assert found[1].isnan().sum() == 1


def test_what_is_new_is_counted_before_penalties(device: torch.device) -> None:
    """Token 2 is counted for the second time, and 4 for the first, in a row of five places."""
    ids = torch.tensor([0, 2, 99, 99, 99], dtype=torch.int64, device=device)
    counts = torch.tensor([0.0, 1.0, 9.0, 9.0, 9.0], device=device)
    record = EditRecord(
        0,
        counted=ids.data_ptr(),
        counts=counts.data_ptr(),
        num_counted=3,
        update=1,
        num_updates=2,
    )
    edits = sent(
        device,
        record,
        factors=[[2.0, 0.5, 0.25]],
        update_places=[9, 1, 2],
        update_ids=[9, 2, 4],
        update_counts=[9.0, 2.0, 1.0],
    )
    logits = torch.tensor([[8.0, 8.0, 8.0, 8.0, -8.0]], device=device)
    found = edit_rows(logits, edits)
    # Token 0 is in the prompt only.
    assert found.tolist() == [[4.0, 8.0, 4.0 - 1.0 - 0.25, 8.0, -16.0 - 0.5 - 0.25]]
    assert ids.tolist() == [0, 2, 4, 99, 99]
    assert counts.tolist() == [0.0, 2.0, 1.0, 9.0, 9.0]


def test_lists_longer_than_a_block_are_read_whole(device: torch.device) -> None:
    logits = torch.zeros(1, 1000, device=device)
    alone = torch.arange(0, 1000, 2, device=device)
    biased = torch.arange(1, 1000, 2, device=device)
    biases = biased.float()
    record = EditRecord(
        0,
        alone=alone.data_ptr(),
        num_alone=len(alone),
        biased=biased.data_ptr(),
        biases=biases.data_ptr(),
        num_biased=len(biased),
    )
    [found] = edit_rows(logits, sent(device, record)).tolist()
    assert found == [-INF if token % 2 == 0 else float(token) for token in range(1000)]
