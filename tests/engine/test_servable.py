"""Which settings are refused from config.json alone, and that it takes neither torch nor numpy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.architecture.config import ModelConfig
from engine.architecture.errors import ConfigError, ModelError, UnsupportedError
from engine.config import EngineConfig
from engine.servable import check_settings, find_native
from tests.engine.tiny_models import MAX_POSITIONS, VARIANTS, save_model


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("llama")
    save_model(VARIANTS["llama"], directory)
    return directory


def config_of(directory: Path, **settings: Any) -> EngineConfig:
    return EngineConfig(model=str(directory), **settings)


def renamed(source: Path, target: Path, **values: Any) -> Path:
    found = json.loads((source / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(found | values))
    return target


def strange(source: Path, target: Path) -> Path:
    """Write a config.json that only transformers' code may compute."""
    return renamed(source, target, architectures=["OtherForCausalLM"], model_type="other")


def test_what_fits_is_accepted(llama: Path) -> None:
    assert isinstance(find_native(config_of(llama)).config, ModelConfig)
    for settings in (
        {"max_model_len": MAX_POSITIONS},
        {"tensor_parallel_size": 2},
        {"quantization": "int8", "deterministic": True},
    ):
        assert check_settings(config_of(llama, **settings))
    assert not check_settings(config_of(llama, model_impl="transformers"))


@pytest.mark.parametrize(
    ("kind", "positions"),
    [
        ({"rope_type": "yarn", "original_max_position_embeddings": 400}, 1600),
        ({"rope_type": "linear"}, 4 * MAX_POSITIONS),
        ({"rope_type": "llama3", "low_freq_factor": 1, "high_freq_factor": 4}, MAX_POSITIONS),
    ],
    ids=["yarn", "linear", "llama3"],
)
def test_scaled_rotary_embeddings_allow_longer_sequences(
    llama: Path, tmp_path: Path, kind: dict[str, Any], positions: int
) -> None:
    scaling = {"factor": 4.0, **kind}
    directory = renamed(llama, tmp_path, rope_scaling=scaling, rope_parameters=None)
    check_settings(config_of(directory, max_model_len=positions))
    with pytest.raises(ModelError, match=f"exceeds the model's {positions} positions"):
        check_settings(config_of(directory, max_model_len=positions + 1))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"max_model_len": MAX_POSITIONS + 1}, f"the model's {MAX_POSITIONS} positions"),
        ({"tensor_parallel_size": 64}, "--tensor-parallel-size 64 does not divide this model"),
        ({"tensor_parallel_size": 2, "quantization": "int8"}, "int8 supports a single device"),
        ({"tensor_parallel_size": 2, "deterministic": True}, "--deterministic supports a single"),
        (
            {"model_impl": "transformers", "quantization": "int8"},
            "--quantization int8 needs Quire's own code, which --model-impl transformers excludes",
        ),
    ],
)
def test_what_does_not_fit_our_own_code_is_refused(
    llama: Path, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ModelError, match=reason):
        check_settings(config_of(llama, **settings))


def test_a_model_of_transformers_code_gets_no_setting_that_needs_ours(
    llama: Path, tmp_path: Path
) -> None:
    directory = strange(llama, tmp_path)
    assert isinstance(find_native(config_of(directory)).why_not, UnsupportedError)
    check_settings(config_of(directory))  # transformers may know it
    with pytest.raises(UnsupportedError, match="OtherForCausalLM is not supported"):
        check_settings(config_of(directory, model_impl="native"))
    for settings, flag in (
        ({"tensor_parallel_size": 2}, "--tensor-parallel-size"),
        ({"quantization": "int4"}, "--quantization int4"),
        ({"deterministic": True}, "--deterministic"),
        ({"gpu_path": "triton"}, "--gpu-path triton"),
        ({"attention": "cudnn"}, "--attention cudnn"),
    ):
        with pytest.raises(ConfigError, match=f"^{flag} needs Quire's own code, which does not"):
            check_settings(msgspec.structs.replace(config_of(directory), **settings))


def test_weights_that_no_reader_knows_are_refused_whoever_computes(
    llama: Path, tmp_path: Path
) -> None:
    directory = strange(llama, tmp_path)
    renamed(directory, directory, quantization_config={"quant_method": "hqq"})
    with pytest.raises(ConfigError, match="quant_method must be one of fp8, "):
        check_settings(config_of(directory))


@pytest.mark.parametrize(
    ("settings", "flag"),
    [
        ({"tensor_parallel_size": 2}, "--tensor-parallel-size"),
        ({"quantization": "int8"}, "--quantization"),
        ({"deterministic": True}, "--deterministic"),
    ],
)
def test_an_encoder_gets_no_setting_of_decoders(
    settings: dict[str, Any], flag: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["BertModel"]}))
    check_settings(config_of(tmp_path))
    with pytest.raises(ModelError, match=f"{flag} supports decoders only"):
        check_settings(config_of(tmp_path, **settings))


def test_an_encoders_length_and_weights_are_looked_at(tmp_path: Path) -> None:
    values = {"architectures": ["BertModel"], "max_position_embeddings": 64}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    check_settings(config_of(tmp_path, max_model_len=64))
    with pytest.raises(ModelError, match="--max-model-len 65 exceeds the model's 64 positions"):
        check_settings(config_of(tmp_path, max_model_len=65))
    path.write_text(json.dumps(values | {"quantization_config": {"quant_method": "hqq"}}))
    check_settings(config_of(tmp_path, load_format="dummy"))
    with pytest.raises(ConfigError, match="quant_method must be one of fp8, "):
        check_settings(config_of(tmp_path))


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "OtherForCausalLM", "BertModel"])
def test_modules_that_are_not_served_are_refused(
    llama: Path, tmp_path: Path, architecture: str
) -> None:
    directory = renamed(llama, tmp_path, architectures=[architecture])
    check_settings(config_of(directory))
    modules = [{"type": f"sentence_transformers.models.{kind}"} for kind in ("Pooling", "Dense")]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ConfigError, match="has Dense; supported: "):
        check_settings(config_of(directory))


@pytest.mark.parametrize("implementation", ["auto", "transformers"])
def test_a_model_that_no_code_computes_is_refused(
    llama: Path, tmp_path: Path, implementation: str
) -> None:
    directory = renamed(llama, tmp_path, architectures=["MPNetModel"], model_type="mpnet")
    with pytest.raises(UnsupportedError, match="MPNetModel is not supported"):
        check_settings(config_of(directory, model_impl=implementation))


def test_it_takes_neither_torch_nor_numpy(llama: Path) -> None:
    code = (
        "import sys; from engine.config import EngineConfig; from engine.servable import *;"
        f"check_settings(EngineConfig(model={str(llama)!r}));"
        "print([name for name in ('torch', 'numpy', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
