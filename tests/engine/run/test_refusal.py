"""What would be refused once its weights are there is known before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.run.refusal import main, reason_to_refuse

_SIZES = {
    **{"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64},
    **{"num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64},
}
SERVED = {"architectures": ["StableLmForCausalLM"], "model_type": "stablelm", **_SIZES}
REFUSED = {"architectures": ["BloomForCausalLM"], "model_type": "bloom", **_SIZES}


def write(directory: Path, config: object) -> str:
    (directory / "config.json").write_text(json.dumps(config))
    return str(directory)


def test_it_is_what_the_engine_says(tmp_path: Path) -> None:
    model = write(tmp_path, REFUSED)
    auto = reason_to_refuse(EngineConfig(model=model))
    assert "BloomForCausalLM is not supported" in auto
    assert "nor is it by transformers' code: BloomForCausalLM cannot run in steps" in auto
    theirs = reason_to_refuse(EngineConfig(model=model, model_impl="transformers"))
    assert theirs.startswith("BloomForCausalLM cannot run in steps")


def test_a_model_without_its_weights_is_not_refused_for_that(tmp_path: Path) -> None:
    assert reason_to_refuse(EngineConfig(model=write(tmp_path, SERVED))) == ""


@pytest.mark.parametrize(("config", "said"), [(SERVED, ""), (REFUSED, "BloomForCausalLM cannot")])
def test_only_the_reason_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], config: object, said: str
) -> None:
    assert main([write(tmp_path, config), "--model-impl=transformers"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(said)
    assert bool(printed) == bool(said)
