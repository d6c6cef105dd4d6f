"""The bench's sequences take blocks as the scheduler gives them: one at a time, from anywhere."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from bench.gpu.company import Chunk, Company, spread
from bench.gpu.model import Subject, load, shape_of
from bench.gpu.timing import Ceilings, Machine


@pytest.fixture(scope="module")
def subject() -> Subject:
    machine = Machine(torch.device("cpu"), Ceilings(1e12, 1e15), dry=True)
    return load(shape_of("llama-8b", machine), machine)[0]


def test_tables_grow_by_a_block_as_tokens_need_them(subject: Subject) -> None:
    company = Company(subject, spread(3, 32, 16))
    sizes = []
    for _ in range(4):
        plan = company.plan()
        sizes.append([len(item.sequence.block_table) for item in plan.scheduled])
    # Contexts of 32, 31 and 30 tokens: each new block comes in another step.
    assert sizes == [[3, 2, 2], [3, 3, 2], [3, 3, 3], [3, 3, 3]]
    blocks = [block for item in plan.scheduled for block in item.sequence.block_table]
    assert len(set(blocks)) == len(blocks)


def test_steps_run_ahead_with_a_part_of_a_prompt_and_a_grammar(subject: Subject) -> None:
    company = Company(subject, [5, 20], chunk=Chunk(4, 8), guides=[1])
    assert len(company.ahead(2)) == 2
    tokens = [sequence.token_ids for sequence in company._sequences]
    assert [len(each) for each in tokens] == [9, 24]
    # The grammar allows even tokens only; the last one was sampled by the last step.
    assert all(token % 2 == 0 for token in tokens[1][21:])
    company.leave()


def test_contexts_that_do_not_fit_are_refused(subject: Subject) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        Company(subject, [16 * subject.runner.info.num_kv_blocks])
