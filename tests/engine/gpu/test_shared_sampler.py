"""Ranks that each compute a part of the vocabulary sample what one process does, and all hold the
tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from engine.gpu.edits import RowEditor
from engine.gpu.sampler import KernelSampler
from engine.gpu.shared_sampler import SharedKernelSampler
from engine.messages import token_mask
from engine.sampling.device import Draws, sampling_tensors
from engine.sampling.sampler import Sampler
from engine.sampling.sharded import Vocabulary
from engine.sharding.collectives import Collectives
from engine.step.sequence import Sequence
from engine.step.step import SampledToken
from tests.engine.ranks.threads import ThreadCollectives, together
from tests.engine.sampling.rows import EOS, VOCABULARY, params, sequence, some_logits

CPU = torch.device("cpu")
RANKS = 3  # the last one has fewer tokens
MIXED: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"seed": 1, "temperature": 1.3, "top_p": 0.8},
    {"seed": 2, "repetition_penalty": 1.8},
    {"seed": 3, "allowed_tokens": token_mask((1, 9, 30)), "logprobs": 2},
]


def rows_of(wanted: list[dict[str, Any]]) -> tuple[list[Sequence], Draws]:
    rows = [sequence(number, params(**asked)) for number, asked in enumerate(wanted)]
    positions = torch.tensor([row.num_tokens for row in rows], dtype=torch.int32)
    return rows, Draws(sampling_tensors([r.params for r in rows], VOCABULARY, CPU), positions)


def plain() -> Sampler:
    return Sampler(vocab_size=VOCABULARY, eos_token_ids=EOS, device=CPU)


def shared(ranks: Collectives) -> tuple[SharedKernelSampler, slice]:
    vocabulary = Vocabulary(VOCABULARY, ranks)
    subject = SharedKernelSampler(plain(), lambda hidden: hidden, vocabulary)
    return subject, slice(*ranks.shard.vocabulary(VOCABULARY))


@pytest.mark.parametrize(
    ("wanted", "calls"),
    [(MIXED, 2), ([{"temperature": 0.0}] * 3, 1)],  # gathering and telling; one small exchange
    ids=["mixed", "greedy"],
)
def test_all_ranks_hold_the_tokens_of_one_process(wanted: list[dict[str, Any]], calls: int) -> None:
    rows, draws = rows_of(wanted)
    logits = some_logits(4, len(rows)).bfloat16()
    alone = KernelSampler(plain(), lambda hidden: hidden).choose(logits, rows, {}, draws)
    expected = alone.read()

    def work(ranks: ThreadCollectives) -> tuple[Any, list[int], int]:
        subject, own = shared(ranks)
        choice = subject.choose(logits[:, own].contiguous(), rows, {}, draws)
        sampled = choice.read() if subject.leads else None
        return sampled, choice.tokens.tolist(), ranks.calls

    found = together(RANKS, work)
    assert found[0][0] == expected
    tokens = [one.token_id for one in expected if isinstance(one, SampledToken)]
    assert [(told, made) for _, told, made in found] == [(tokens, calls)] * RANKS


def test_if_rank_0_cannot_sample_the_others_do_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, draws = rows_of(MIXED)
    logits = some_logits(4, len(rows))

    def run_out(*_: Any) -> Any:
        raise RuntimeError("no memory")

    def work(ranks: ThreadCollectives) -> tuple[str, int]:
        subject, own = shared(ranks)
        try:
            subject.choose(logits[:, own].contiguous(), rows, {}, draws)
        except RuntimeError as error:
            return str(error), ranks.calls
        return "", ranks.calls

    monkeypatch.setattr(RowEditor, "edit", run_out)
    assert together(RANKS, work) == [("no memory", 2), ("", 2), ("", 2)]


def test_whether_a_row_is_plain_does_not_depend_on_what_only_rank_0_knows() -> None:
    subject, _ = together(1, shared)[0]
    assert subject.is_plain(sequence(0, params(temperature=0.7, top_k=3)))
    reached = sequence(1, params(min_tokens=2))
    assert KernelSampler(plain(), lambda hidden: hidden).is_plain(reached)
    assert not subject.is_plain(reached)
