"""What is made of a step's hidden states."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.messages import SamplingParams, token_mask
from engine.sampling.sampler import SamplingError
from engine.step.step import SampledToken
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
