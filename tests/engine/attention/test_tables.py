"""A batch's ragged tables say where its rows are."""

from __future__ import annotations

import torch

from engine.attention.layout import Ragged
from engine.attention.tables import RaggedBuilder
from engine.messages import SamplingParams
from engine.run.batch import BatchBuilder
from engine.step.sequence import Sequence
from engine.step.step import ScheduledSequence, StepPlan

CPU = torch.device("cpu")


def test_a_mixed_batch_s_ragged_tables() -> None:
    def item(uid: int, start: int, end: int, blocks: list[int]) -> ScheduledSequence:
        params = SamplingParams(max_tokens=1)
        tokens = [100 * uid + place for place in range(end)]
        sequence = Sequence(uid, "", tokens, end, params, block_table=blocks)
        return ScheduledSequence(sequence, start, end - start, completes=True)

    builder = BatchBuilder(RaggedBuilder(8, CPU), block_size=8)
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
    ragged = batch.layout
    assert isinstance(ragged, Ragged)
    assert ragged.slots.tolist() == [68, 17, 59, 60, 61, 14, 15, 72, 73]
    assert ragged.decode_lengths.tolist() == [21, 10]
    assert ragged.decode_blocks[:, :3].tolist() == [[4, 6, 8], [5, 2, 0]]
    assert ragged.chunk_lengths.tolist() == [6, 18]
    assert ragged.chunk_blocks[:, :3].tolist() == [[7, 0, 0], [3, 1, 9]]
    assert ragged.cu_seqlens.tolist() == [2, 5, 9]
    assert ragged.longest == 4
    assert (ragged.sizes, ragged.num_fresh) == ((3, 4), 0)


def test_chunks_that_begin_a_context_come_last_and_by_size() -> None:
    def item(uid: int, start: int, end: int) -> ScheduledSequence:
        sequence = Sequence(
            uid, "", [uid] * end, end, SamplingParams(max_tokens=1), block_table=[uid, uid + 10]
        )
        return ScheduledSequence(sequence, start, end - start, completes=True)

    builder = BatchBuilder(RaggedBuilder(8, CPU), block_size=8)
    plan = StepPlan((item(1, 0, 9), item(2, 4, 10), item(3, 0, 1), item(4, 0, 3), item(5, 1, 3)))
    batch = builder.build(plan)
    assert batch.order == (2, 1, 4, 3, 0)
    assert batch.token_ids.tolist() == [3] + [2] * 6 + [5] * 2 + [4] * 3 + [1] * 9
    ragged = batch.layout
    assert isinstance(ragged, Ragged)
    assert (ragged.sizes, ragged.num_fresh) == ((6, 2, 3, 9), 2)
    assert ragged.chunk_lengths.tolist() == [10, 3, 3, 9]
