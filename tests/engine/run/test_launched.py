"""What is made of a step's hidden states."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.attention.tables import RowsBuilder
from engine.messages import SamplingParams, token_mask
from engine.run.batch import BatchBuilder
from engine.run.launched import NewestTokens, on_device
from engine.sampling.sampler import SamplingError
from engine.step.step import PENDING, DeviceLostError, SampledToken, ScheduledSequence, StepPlan
from tests.engine.driving import load_runner
from tests.engine.run.plans import sequence, whole
from tests.engine.tiny_models import VARIANTS, VOCABULARY, save_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    save_model(VARIANTS["qwen3"], directory)
    return directory


def test_parameters_that_contradict_each_other_say_nothing_of_the_models_numbers(
    model: Path,
) -> None:
    """Else any client could make every block be zeroed before reuse from then on."""
    runner = load_runner(model)
    nothing = SamplingParams(
        max_tokens=1, allowed_tokens=token_mask([3]), bad_words_token_ids=((3,),)
    )
    result = runner.execute(whole(sequence(1, [1, 2], [0], nothing), sequence(2, [1, 2], [1])))
    assert isinstance(result.sampled[0], SamplingError)
    assert isinstance(result.sampled[1], SampledToken)
    assert not runner.clears_blocks


def test_prompt_logprobs_of_a_long_prompt_come_in_bounded_pieces(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = load_runner(model)
    params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=1)
    prompt = [i * 31 % VOCABULARY for i in range(400)]
    rows: list[int] = []
    decoder_logits = runner._decoder.logits

    def watched(hidden: torch.Tensor) -> torch.Tensor:
        rows.append(hidden.shape[0])
        return decoder_logits(hidden)

    monkeypatch.setattr(runner._decoder, "logits", watched, raising=True)
    result = runner.execute(whole(sequence(1, prompt, list(range(26)), params)))
    assert len(result.prompt_logprobs[0]) == 399
    assert max(rows) <= 256


def test_newest_tokens_go_where_a_later_batch_waits_for_them() -> None:
    rows = {uid: sequence(uid, [1, 2, PENDING], [uid]) for uid in (4, 5, 6)}
    known = sequence(7, [8, 9], [7])
    items = [ScheduledSequence(rows[uid], 2, 1, completes=True) for uid in (6, 4)]
    items += [ScheduledSequence(known, 0, 2, completes=True)]
    items += [ScheduledSequence(rows[5], 0, 3, completes=True)]
    newest = NewestTokens({4: 0, 5: 1, 6: 2, 99: 3}, torch.tensor([40, 50, 60, 990]))
    batch = BatchBuilder(RowsBuilder(), block_size=4).build(StepPlan(tuple(items)), newest.places)
    newest.fill(batch)
    assert [batch.items[place].sequence.uid for place in (0, 1)] == [6, 4]
    assert batch.token_ids.tolist() == [60, 40, 8, 9, 1, 2, 50]


def test_a_batch_of_pending_tokens_alone_takes_them_all_in_its_own_order() -> None:
    items = [
        ScheduledSequence(sequence(uid, [1] * length + [PENDING], [uid]), length, 1, completes=True)
        for uid, length in ((4, 1), (5, 3), (6, 2))
    ]
    newest = NewestTokens({4: 0, 5: 1, 6: 2}, torch.tensor([40, 50, 60], dtype=torch.int32))
    batch = BatchBuilder(RowsBuilder(), block_size=4).build(StepPlan(tuple(items)), newest.places)
    newest.fill(batch)
    assert batch.token_ids.tolist() == [50, 60, 40]


def test_a_pending_token_that_no_step_samples_is_an_error() -> None:
    item = ScheduledSequence(sequence(4, [8, PENDING], [4]), 1, 1, completes=True)
    with pytest.raises(KeyError):
        BatchBuilder(RowsBuilder(), block_size=4).build(StepPlan((item,)), {99: 0})


def test_a_batch_that_waits_for_nothing_is_left_alone() -> None:
    item = ScheduledSequence(sequence(4, [8, 9], [4]), 0, 2, completes=True)
    batch = BatchBuilder(RowsBuilder(), block_size=4).build(StepPlan((item,)))
    NewestTokens({99: 0}, torch.tensor([990])).fill(batch)
    assert batch.token_ids.tolist() == [8, 9]


def test_an_accelerator_s_error_means_that_the_device_is_lost_and_no_other_does() -> None:
    gpu = torch.device("cuda", 0)
    with pytest.raises(DeviceLostError, match="cuda:0 failed: gone"), on_device(gpu):
        raise torch.AcceleratorError("gone")
    with pytest.raises(RuntimeError, match="mine") as caught, on_device(gpu):
        raise RuntimeError("mine")
    assert not isinstance(caught.value, DeviceLostError)
    with on_device(gpu):
        assert torch.is_inference_mode_enabled()
    assert not torch.is_inference_mode_enabled()
