"""A decoder of transformers is chosen, loaded and described; what it does not serve is refused."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.architecture.errors import ModelError
from engine.cpu.library import LibraryUnavailableError, library
from engine.messages import SamplingParams
from engine.plugin.products import CompiledLinear
from engine.plugin.reading import read_plugin_config
from engine.run.loader import LoadSettings
from engine.run.plugged import load_plugged
from tests.engine.driving import Engine, load_runner
from tests.engine.plugin.families import prompt, save_family
from tests.engine.tiny_models import VARIANTS, save_model

GREEDY = SamplingParams(max_tokens=40, temperature=0.0, ignore_eos=True)


@pytest.fixture(scope="module")
def exaone4(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("exaone4")
    save_family("exaone4", directory)
    return directory


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("llama")
    save_model(VARIANTS["llama"], directory)
    return directory


def test_a_family_that_is_not_ours_is_computed_by_transformers(
    exaone4: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    info = load_runner(exaone4).info
    assert (info.implementation, info.architecture) == ("transformers", "Exaone4ForCausalLM")
    assert (info.vocab_size, info.embedding_size, info.max_model_len) == (199, 64, 256)
    assert (
        info.num_parameters == 199 * 64 * 2 + 4 * (4 * 64 * 64 + 3 * 64 * 96 + 2 * 64 + 2 * 16) + 64
    )
    assert "Exaone4ForCausalLM is computed by transformers' code" in caplog.text


def test_our_own_code_comes_first_and_gives_the_same_tokens(llama: Path) -> None:
    prompts = [prompt(20, seed=1), prompt(7, seed=2)]
    engines = [Engine(llama, model_impl=name) for name in ("auto", "native", "transformers")]
    assert load_runner(llama).info.implementation == "native"
    native, same, other = (
        [
            output.token_ids
            for output in engine.generate([[t % 150 for t in p] for p in prompts], GREEDY)
        ]
        for engine in engines
    )
    assert native == same == other


def test_a_llama_with_what_our_code_lacks_is_computed_by_transformers(
    llama: Path, tmp_path: Path
) -> None:
    values = json.loads((llama / "config.json").read_text())
    values["rope_parameters"] = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    (tmp_path / "config.json").write_text(json.dumps(values))
    info = load_runner(tmp_path, load_format="dummy").info
    assert (info.architecture, info.implementation) == ("LlamaForCausalLM", "transformers")
    with pytest.raises(ModelError, match="rope type 'dynamic' is not supported"):
        load_runner(tmp_path, load_format="dummy", model_impl="native")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"model_impl": "native"}, r"Exaone4ForCausalLM is not supported; .* decoders \(Llama"),
        ({"quantization": "int8"}, "--quantization int8 needs Quire's own code"),
        ({"deterministic": True}, "--deterministic needs Quire's own code"),
        ({"gpu_path": "triton"}, "--gpu-path triton needs Quire's own code"),
        ({"attention": "triton"}, "--attention triton needs Quire's own code"),
        ({"max_model_len": 257}, "exceeds the model's 256 positions"),
    ],
)
def test_what_needs_our_own_code_is_refused(
    exaone4: Path, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ModelError, match=reason):
        load_runner(exaone4, **settings)


def test_a_family_of_nobody_is_refused_with_both_reasons(tmp_path: Path) -> None:
    config = {"architectures": ["NoneSuchForCausalLM"], "model_type": "nonesuch"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError) as refused:
        load_runner(tmp_path)
    assert "NoneSuchForCausalLM is not supported; supported: decoders (Llama" in str(refused.value)
    assert "nor is it by transformers' code" in str(refused.value)


def test_random_weights_follow_the_seed(exaone4: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((exaone4 / "config.json").read_text())

    def tokens(seed: int) -> list[int]:
        engine = Engine(tmp_path, load_format="dummy", seed=seed)
        return engine.generate([prompt(9, seed=3)], GREEDY)[0].token_ids

    assert tokens(1) == tokens(1)
    assert tokens(1) != tokens(2)


@pytest.mark.parametrize("passes", [True, False])
def test_compiled_products_are_used_where_they_pass_the_trial(
    exaone4: Path, passes: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    try:
        products = library()
    except LibraryUnavailableError as error:
        pytest.skip(str(error))
    if not passes:
        real = CompiledLinear.forward
        monkeypatch.setattr(CompiledLinear, "forward", lambda self, x: real(self, x) + 1)
    config = read_plugin_config(exaone4)
    settings = LoadSettings(exaone4, torch.float32, torch.device("cpu"), lambda *call: None)
    loaded = load_plugged(config, settings, 64, products)
    body = loaded.decoder._model.body
    packed = [module for module in body.modules() if isinstance(module, CompiledLinear)]
    assert len(packed) == (4 * 7 if passes else 0)
    assert ("computing by torch alone" in caplog.text) is not passes


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_runs_in_each_precision_of_a_cpu(exaone4: Path, dtype: str) -> None:
    runner = load_runner(exaone4, dtype=dtype)
    assert runner.info.dtype == dtype
    [output] = Engine(exaone4, runner=runner).generate([prompt(9, seed=3)], GREEDY)
    assert len(output.token_ids) == 40
