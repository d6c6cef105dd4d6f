"""Arrays sent in one copy arrive whole and aligned, and a batch's ragged tables say where its rows
are."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from engine.attention.metadata import CacheShape, MetadataBuilder
from engine.attention.packing import sent_together, widened
from engine.messages import SamplingParams
from engine.run.batch import BatchBuilder
from engine.step.sequence import Sequence
from engine.step.step import ScheduledSequence, StepPlan

CPU = torch.device("cpu")
integers = arrays(
    np.int64, array_shapes(max_dims=2, min_side=0, max_side=40), elements=st.integers(-9, 2**31 - 1)
)


@given(st.lists(integers, min_size=1, max_size=6))
def test_arrays_sent_together_arrive_as_they_were_each_at_a_multiple_of_64_bytes(
    sent: list[np.ndarray],
) -> None:
    received = sent_together(sent, CPU)
    begin = received[0].data_ptr()
    for array, tensor in zip(sent, received, strict=True):
        assert tensor.dtype == torch.int32
        assert tensor.shape == array.shape
        assert tensor.tolist() == array.tolist()
        assert (tensor.data_ptr() - begin) % 64 == 0 or array.size == 0


def test_a_table_is_widened_to_a_multiple_of_sixteen_columns() -> None:
    table = np.arange(34).reshape(2, 17)
    assert widened(table).shape == (2, 32)
    assert (widened(table)[:, :17] == table).all()
    assert widened(table[:, :16]).shape == (2, 16)


def test_a_mixed_batch_s_ragged_tables() -> None:
    def item(uid: int, start: int, end: int, blocks: list[int]) -> ScheduledSequence:
        params = SamplingParams(max_tokens=1)
        tokens = [100 * uid + place for place in range(end)]
        sequence = Sequence(uid, "", tokens, end, params, block_table=blocks)
        return ScheduledSequence(sequence, start, end - start, completes=True)

    builder = BatchBuilder(
        MetadataBuilder(CacheShape(8, 2), [None], torch.float32, CPU),
        block_size=8,
        device=CPU,
        ragged=True,
    )
    plan = StepPlan(
        (
            item(1, 3, 6, [7]),
            item(2, 9, 10, [5, 2]),
            item(3, 14, 18, [3, 1, 9]),
            item(4, 20, 21, [4, 6, 8]),
        )
    )
    batch = builder.build(plan)
    assert batch.order == (3, 1, 0, 2)  # decodes first, the longest first
    assert batch.token_ids.tolist() == [420, 209, 103, 104, 105, 314, 315, 316, 317]
    assert batch.positions.tolist() == [20, 9, 3, 4, 5, 14, 15, 16, 17]
    ragged = batch.metadata.ragged
    assert ragged is not None
    assert ragged.slots.tolist() == [68, 17, 59, 60, 61, 14, 15, 72, 73]
    assert ragged.decode_lengths.tolist() == [21, 10]
    assert ragged.decode_blocks[:, :3].tolist() == [[4, 6, 8], [5, 2, 0]]
    assert ragged.chunk_lengths.tolist() == [6, 18]
    assert ragged.chunk_blocks[:, :3].tolist() == [[7, 0, 0], [3, 1, 9]]
    assert ragged.cu_seqlens.tolist() == [2, 5, 9]
    assert ragged.longest == 4
