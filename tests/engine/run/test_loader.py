"""From a model directory to a decoder or an encoder."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from engine.messages import SamplingParams
from tests.engine.driving import load_runner
from tests.engine.run.plans import sequence, whole
from tests.engine.tiny_models import VARIANTS, VOCABULARY, save_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    save_model(VARIANTS["qwen3"], directory)
    return directory


def test_random_weights_need_no_weight_files_and_follow_the_seed(
    model: Path, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text((model / "config.json").read_text())
    params = SamplingParams(max_tokens=1, temperature=0.0, logprobs=5)

    def first_token(seed: int) -> Any:
        runner = load_runner(tmp_path, load_format="dummy", seed=seed)
        return runner.execute(whole(sequence(1, [1, 2, 3], [0], params))).sampled[0]

    assert first_token(1) == first_token(1)
    assert first_token(1) != first_token(2)
    for top in first_token(1).logprobs.top:
        assert math.log(1 / VOCABULARY) - 2 < top.logprob < math.log(1 / VOCABULARY) + 2
