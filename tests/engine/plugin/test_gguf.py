"""A GGUF file of gpt-oss or Qwen3.5 gives transformers' model the weights that it was made from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from engine.architecture.errors import WeightsError
from engine.cpu.library import LibraryUnavailableError, library
from engine.plugin.gguf import GgufTensors
from engine.plugin.loading import loaded_model
from engine.plugin.products import Products
from engine.plugin.reading import read_plugin_config
from tests.engine.driving import Engine
from tests.engine.gguf.directories import file_directory
from tests.engine.gguf.qwen35_files import FUSES_EXPERTS, add_predictor, change_config
from tests.engine.plugin.families import GGUF_KINDS, save_family
from tests.engine.plugin.test_tensors import difference, differences

CPU = torch.device("cpu")


# Embeddings, biases of experts, and small matrices that files have in F32.
IN_FLOATS = (
    "_bias",
    ".embed_tokens.",
    ".embed_tokens_per_layer.",
    ".altup.correction_coefs.",
    ".altup.prediction_coefs.",
    ".embeddings.",
    ".mlp.gate.",
    ".mlp.router.",
    ".mixer.gate.",
    ".shared_expert_gate.",
    ".conv1d.",
    ".A_log",
    ".conv.conv.",
    "_norm.",
    ".feed_forward.gate.",
    ".block_sparse_moe.router.",
    # Of keys, files have the transpose.
    ".kv_b_proj.",
)


@pytest.fixture
def original(tmp_path: Path) -> Path:
    return tmp_path / "original"


@pytest.fixture
def oracle(original: Path) -> PreTrainedModel:
    return save_family("gpt_oss", original)


def compiled() -> Products:
    try:
        return Products(library(), 1)
    except LibraryUnavailableError as error:
        pytest.skip(str(error))


def recording(read: Callable[..., Tensor], names: list[str]) -> Callable[..., Tensor]:
    def recorded(self: GgufTensors, name: str, memory: Tensor | None = None) -> Tensor:
        names.append(name)
        return read(self, name, memory)

    return recorded


def parameters(directory: Path) -> dict[str, Tensor]:
    """And buffers that are stored."""
    model = loaded_model(read_plugin_config(directory), directory, CPU, torch.float32)
    return model.state_dict()


def assert_equals(found: dict[str, Tensor], oracle: PreTrainedModel, most: float) -> None:
    expected = oracle.state_dict()
    assert found.keys() == expected.keys()
    for name, values in found.items():
        assert torch.allclose(values, expected[name], rtol=0, atol=most), name


@pytest.mark.parametrize("kind", GGUF_KINDS)
def test_each_parameter_is_that_of_the_checkpoint(
    kind: str, original: Path, tmp_path: Path
) -> None:
    oracle = save_family(kind, original)
    most = 0.0 if kind == "gpt_oss" else 1e-6
    assert_equals(parameters(file_directory(original, tmp_path, "F32")), oracle, most)


@pytest.mark.parametrize(
    "kind", ["glm4_moe", "minimax_m2#files", "dots1#files", "nemotron_h#files"]
)
def test_stored_buffers_are_read_too(kind: str, original: Path, tmp_path: Path) -> None:
    save_family(kind, original)
    path = original / "model.safetensors"
    tensors = load_file(path)
    biases = {name: torch.randn_like(v) for name, v in tensors.items() if "e_score" in name}
    save_file(tensors | biases, path, {"format": "pt"})
    found = parameters(file_directory(original, tmp_path, "F32"))
    assert biases
    expected = {
        name.replace("block_sparse_moe", "mlp").replace("backbone", "model"): each
        for name, each in biases.items()
    }
    assert all(torch.equal(found[name], values) for name, values in expected.items())


@pytest.mark.parametrize("kind", ["qwen3_5_text#heads", "qwen3_5_moe_text#heads"])
def test_layers_that_predict_further_tokens_are_left_out(
    kind: str, original: Path, tmp_path: Path
) -> None:
    oracle = save_family(kind, original)
    add_predictor(original)
    directory = file_directory(original, tmp_path, "F32")
    assert_equals(parameters(directory), oracle, 1e-6)
    assert difference(Engine(directory, cpu_path="torch"), oracle) < 1e-4


def test_gate_and_up_of_experts_may_be_one_tensor(original: Path, tmp_path: Path) -> None:
    oracle = save_family("qwen3_5_moe_text#heads", original)
    change_config(original, **{FUSES_EXPERTS: True})
    assert_equals(parameters(file_directory(original, tmp_path, "F32")), oracle, 1e-6)


@pytest.mark.parametrize(
    ("family", "kind"), [("gpt_oss", "MXFP4"), *((kind, "Q8_0") for kind in GGUF_KINDS)]
)
def test_matrices_stay_in_few_bits_and_logits_are_those_of_transformers(
    family: str,
    kind: str,
    original: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    products = compiled()
    oracle = save_family(family, original)
    directory = file_directory(original, tmp_path, kind)
    config = read_plugin_config(directory)
    assert config.dtype == "bfloat16"
    floats = loaded_model(config, directory, CPU, torch.float32)
    oracle.load_state_dict(floats.state_dict())
    assert difference(Engine(directory, dtype="float32", cpu_path="torch"), oracle) < 1e-4
    read: list[str] = []
    monkeypatch.setattr(GgufTensors, "read", recording(GgufTensors.read, read))
    loaded_model(config, directory, CPU, torch.float32, products)
    matrices = {name for name in read if floats.state_dict()[name].dim() > 1}
    assert matrices
    assert all(any(part in name for part in IN_FLOATS) for name in matrices)
    # Inputs are rounded to 8 bits, so that some tokens choose other experts.
    assert median(differences(Engine(directory, dtype="float32"), oracle)) < 0.02
    assert "computing by torch alone" not in caplog.text


def test_a_missing_tensor_is_named(original: Path, oracle: PreTrainedModel, tmp_path: Path) -> None:
    directory = file_directory(original, tmp_path, "F32")
    config = read_plugin_config(directory)
    path = directory / "model.gguf"
    damaged = path.read_bytes().replace(b"blk.0.attn_sinks.weight", b"blk.0.attn_sinkz.weight")
    path.unlink()
    path.write_bytes(damaged)
    with pytest.raises(WeightsError, match=r"missing: blk\.0\.attn_sinks\.weight"):
        loaded_model(config, directory, CPU, torch.float32)
