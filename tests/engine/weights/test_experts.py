"""Experts that are stored together are those of transformers, one matrix each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForImageTextToText

from engine.architecture.config import ModelConfig, load_model_config
from engine.architecture.errors import WeightsError
from engine.architecture.features import ExpertStorage
from engine.messages import SamplingParams
from engine.model.parameters import parameter_shapes
from engine.sharding.shard import Shard
from engine.weights.experts import ExpertWeights, expert_storage, stacked_shapes
from engine.weights.sharded import ShardedWeights
from engine.weights.weights import CheckpointWeights, Shapes, text_shapes
from tests.engine.driving import Engine, load_runner
from tests.engine.plugin.families import prompt
from tests.engine.plugin.image_text import save_image_text
from tests.engine.quantized.making import quantize_directory

KIND = "qwen3_vl_moe:qwen3_vl_moe_text#dense"
INNER = 48
STACKED = (ExpertStorage.ROWS, ExpertStorage.COLUMNS)
CPU = torch.device("cpu")


def tensors_of(directory: Path) -> dict[str, Tensor]:
    return load_file(directory / "model.safetensors")


def write(directory: Path, tensors: dict[str, Tensor]) -> None:
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def transpose_experts(directory: Path) -> None:
    """Store them as on the hub."""
    tensors = tensors_of(directory)
    turned = {
        name: each.transpose(1, 2).contiguous() if ".experts." in name else each
        for name, each in tensors.items()
    }
    write(directory, turned)


@pytest.fixture(scope="module", params=STACKED)
def saved(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Any, ExpertStorage]:
    """A checkpoint, what transformers reads from it, and how it has experts."""
    directory = tmp_path_factory.mktemp("stacked")
    save_image_text(KIND, directory)
    if request.param is ExpertStorage.COLUMNS:
        transpose_experts(directory)
    oracle = AutoModelForImageTextToText.from_pretrained(directory, dtype=torch.float32)
    return directory, oracle, request.param


def config_of(directory: Path) -> ModelConfig:
    return replace(load_model_config(directory), tie_word_embeddings=False)


@contextmanager
def opened(
    directory: Path, config: ModelConfig, storage: ExpertStorage
) -> Iterator[tuple[ExpertWeights, Shapes]]:
    shapes = parameter_shapes(config)
    with CheckpointWeights(
        directory,
        stacked_shapes(shapes, storage),
        unused=[],
        dtype=torch.float32,
        device=CPU,
        progress=lambda done, total: None,
        text_part=config.text_part,
    ) as checkpoint:
        yield ExpertWeights(checkpoint, shapes, storage), shapes


def expected(oracle: Any, name: str) -> Tensor:
    """What a parameter is in transformers, by the name that it has here."""
    found = re.fullmatch(r"model\.(.*)\.experts\.(\d+)\.(gate|up|down)_proj\.weight", name)
    if found is None:
        place = name.replace("model.", "model.language_model.", 1)
        return oracle.get_parameter(place)  # type: ignore[no-any-return]
    experts = oracle.get_submodule(f"model.language_model.{found[1]}.experts")
    number = int(found[2])
    if found[3] == "down":
        return experts.down_proj[number]  # type: ignore[no-any-return]
    gate, up = experts.gate_up_proj[number].split(INNER)
    return gate if found[3] == "gate" else up  # type: ignore[no-any-return]


def test_each_parameter_is_that_of_transformers(saved: tuple[Path, Any, ExpertStorage]) -> None:
    directory, oracle, storage = saved
    with opened(directory, config_of(directory), storage) as (weights, shapes):
        for name, shape in shapes.items():
            found = weights.tensor(name)
            assert found.shape == shape
            assert found.is_contiguous()
            assert torch.equal(found, expected(oracle, name))
        assert not weights._held


def test_ranks_have_parts_of_each_expert(saved: tuple[Path, Any, ExpertStorage]) -> None:
    directory, oracle, storage = saved
    config = config_of(directory)
    kinds = ("gate", "up", "down")
    names = [f"model.layers.2.mlp.experts.5.{kind}_proj.weight" for kind in kinds]
    found: dict[str, list[Tensor]] = {name: [] for name in names}
    for rank in range(2):
        with opened(directory, config, storage) as (weights, _):
            source = ShardedWeights(weights, config, Shard(rank, 2))
            for name in names:
                found[name].append(source.tensor(name))
    for name, parts in found.items():
        dim = int("down" in name)
        assert parts[0].shape[dim] == INNER // 2
        assert torch.equal(torch.cat(parts, dim), expected(oracle, name))


def test_files_show_how_experts_are_stored(saved: tuple[Path, Any, ExpertStorage]) -> None:
    directory, _, storage = saved
    config = config_of(directory)
    shapes = parameter_shapes(config)
    assert config.text_part is not None
    stored = text_shapes(directory, config.text_part)
    usual = config.expert_storage
    assert usual is ExpertStorage.COLUMNS
    assert expert_storage(stored, shapes, usual) is storage
    assert expert_storage(shapes, shapes, usual) is ExpertStorage.APART
    codes = {name.replace(".weight", ".qweight"): shape for name, shape in shapes.items()}
    assert expert_storage(codes, shapes, usual) is ExpertStorage.APART
    assert expert_storage({"model.norm.weight": (64,)}, shapes, usual) is usual
    assert expert_storage(stored, shapes, ExpertStorage.APART) is ExpertStorage.APART


@pytest.mark.parametrize("usual", STACKED)
def test_files_that_do_not_show_how_have_experts_as_usual(usual: ExpertStorage) -> None:
    prefix = "model.layers.0.mlp.experts.0."
    square: Shapes = {
        **{f"{prefix}{name}_proj.weight": (32, 64) for name in ("gate", "up")},
        f"{prefix}down_proj.weight": (64, 32),
    }
    stored = stacked_shapes(square, usual)
    assert stored["model.layers.0.mlp.experts.gate_up_proj"] == (1, 64, 64)
    assert expert_storage(stored, square, usual) is usual


STACK = "model.language_model.layers.2.mlp.experts.{}_proj"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"down": None}, r"missing: model\.layers\.2\.mlp\.experts\.down_proj"),
        ({"down": torch.ones(7, 64, INNER)}, r"experts\.down_proj \[7, 64, 48\] instead of \[8"),
        ({"gate_up": torch.ones(8, 64, 2 * INNER)}, r"gate_up_proj \[8, 64, 96\] instead of \[8"),
        ({"gate": torch.ones(8, 64, INNER)}, r"unexpected: .*experts\.gate_proj"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(
    changes: dict[str, Tensor | None], complaint: str, tmp_path: Path
) -> None:
    save_image_text(KIND, tmp_path)
    tensors = tensors_of(tmp_path)
    for kind, tensor in changes.items():
        tensors.pop(STACK.format(kind), None)
        if tensor is not None:
            tensors[STACK.format(kind)] = tensor
    write(tmp_path, tensors)
    with pytest.raises(WeightsError, match=complaint):
        load_runner(tmp_path)


def store_apart(directory: Path) -> None:
    """Store each expert by itself, as tools do that quantize them."""
    parted: dict[str, Tensor] = {}
    for name, tensor in tensors_of(directory).items():
        prefix, _, kind = name.rpartition(".")
        if not prefix.endswith(".experts"):
            parted[name] = tensor
            continue
        for number, matrix in enumerate(tensor):
            halves = matrix.chunk(2) if kind == "gate_up_proj" else (matrix,)
            kinds = ("gate_proj", "up_proj") if kind == "gate_up_proj" else (kind,)
            for half, own in zip(halves, kinds, strict=True):
                parted[f"{prefix}.{number}.{own}.weight"] = half.contiguous()
    write(directory, parted)


def answer(directory: Path, **settings: Any) -> list[float]:
    params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0)
    [output] = Engine(directory, **settings).generate([prompt(40, seed=1)], params)
    return [each.logprob for each in output.prompt_logprobs]


@pytest.mark.parametrize("settings", [{}, {"cpu_path": "torch"}])
def test_experts_that_are_stored_apart_are_the_same(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    save_image_text(KIND, tmp_path)
    together = answer(tmp_path, **settings)
    transpose_experts(tmp_path)
    assert answer(tmp_path, **settings) == together
    transpose_experts(tmp_path)
    store_apart(tmp_path)
    assert answer(tmp_path, **settings) == together


def test_experts_in_few_bits_are_read(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    save_image_text(KIND, tmp_path)
    store_apart(tmp_path)
    quantize_directory(tmp_path, "fp8", 32, only="language_model.")
    found = answer(tmp_path, cpu_path="torch")
    assert load_runner(tmp_path).info.quantization.startswith("fp8")
    write(tmp_path, load_file(tmp_path / "meaning.safetensors"))
    config = json.loads((tmp_path / "config.json").read_text())
    del config["quantization_config"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert found == pytest.approx(answer(tmp_path, cpu_path="torch"), abs=1e-4)


def test_experts_of_llama_4_may_be_stored_apart_and_in_few_bits(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    save_image_text("llama4:llama4_text#maverick", tmp_path)
    together = answer(tmp_path)
    transpose_experts(tmp_path)
    store_apart(tmp_path)
    assert answer(tmp_path) == together
    quantize_directory(tmp_path, "fp8", 32, only="language_model.")
    found = answer(tmp_path)
    write(tmp_path, load_file(tmp_path / "meaning.safetensors"))
    config = json.loads((tmp_path / "config.json").read_text())
    del config["quantization_config"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert found == pytest.approx(answer(tmp_path), abs=1e-4)


def test_experts_of_together_stored_weights_may_be_quantized(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    save_image_text(KIND, tmp_path)
    together = answer(tmp_path, quantization="int8")
    store_apart(tmp_path)
    assert answer(tmp_path, quantization="int8") == together
