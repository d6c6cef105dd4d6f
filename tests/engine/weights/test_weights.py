"""Weights that do not fit are refused by name; random ones are reproducible and sane."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.architecture.config import load_model_config
from engine.architecture.encoder_config import load_encoder_config
from engine.architecture.errors import WeightsError
from engine.messages import SamplingParams
from engine.model import bert
from engine.run.loader import (
    DecoderOptions,
    LoadSettings,
    load_decoder,
    load_encoder,
    parameter_shapes,
)
from engine.weights.weights import (
    CheckpointWeights,
    RandomWeights,
    Shapes,
    checkpoint_files,
    opened,
)
from tests.engine.driving import Engine, load_runner
from tests.engine.quantized.making import quantize_directory
from tests.engine.tiny_encoders import SCORERS, save_encoder
from tests.engine.tiny_models import VARIANTS, Variant, save_model

CPU = torch.device("cpu")


def load(directory: Path, progress: Callable[[str, int, int], None] | None = None) -> int:
    config = load_model_config(directory)
    return load_decoder(
        config,
        LoadSettings(directory, torch.float32, CPU, progress or (lambda phase, done, total: None)),
        DecoderOptions(max_positions=64),
    ).num_parameters


def edit(directory: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    path = directory / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_model(VARIANTS["qwen3"], tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["qwen3", "qwen3_tied_biases", "gpt2", "qwen2"])
def test_parameters_are_counted_as_transformers_counts_them(tmp_path: Path, name: str) -> None:
    oracle = save_model(VARIANTS[name], tmp_path)
    assert load(tmp_path) == oracle.num_parameters()


def test_progress_ends_at_the_number_of_parameters(model: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    total = load(model, lambda *call: calls.append(call))
    assert calls[-1] == ("weights", total, total)
    assert [done for _, done, _ in calls] == sorted(done for _, done, _ in calls)


def test_a_missing_tensor_is_named(model: Path) -> None:
    edit(model, lambda tensors: tensors.pop("model.layers.1.self_attn.q_norm.weight"))
    with pytest.raises(WeightsError, match=r"missing: model\.layers\.1\.self_attn\.q_norm\.weight"):
        load(model)


def test_an_unexpected_tensor_is_named(model: Path) -> None:
    edit(model, lambda tensors: tensors.update({"model.extra.weight": torch.ones(2)}))
    with pytest.raises(WeightsError, match=r"unexpected: model\.extra\.weight"):
        load(model)


def test_a_misshapen_tensor_is_named_with_both_shapes(model: Path) -> None:
    edit(model, lambda tensors: tensors.update({"model.norm.weight": torch.ones(7)}))
    with pytest.raises(WeightsError, match=r"model\.norm\.weight \[7\] instead of \[64\]"):
        load(model)


def test_a_tensor_of_integers_is_refused(model: Path) -> None:
    ones = torch.ones(64, dtype=torch.int16)
    edit(model, lambda tensors: tensors.update({"model.norm.weight": ones}))
    with pytest.raises(WeightsError, match=r"model\.norm\.weight of type I16"):
        load(model)


@pytest.mark.parametrize("name", ["gptq", "ct_int4", "ct_int8", "fp8"])
@pytest.mark.parametrize("model_impl", ["native", "transformers"])
def test_few_bits_that_config_json_does_not_describe_are_refused(
    name: str, model_impl: str, model: Path
) -> None:
    config = (model / "config.json").read_text()
    quantize_directory(model, name, 32)
    (model / "config.json").write_text(config)
    with pytest.raises(
        WeightsError,
        match=r"down_proj\.\w+ is quantized, but neither a quantization_config in config\.json nor "
        r"any of hf_quant_config\.json, quantize_config\.json, quant_config\.json says how; add",
    ):
        load_runner(model, model_impl=model_impl)


def greedy(model: Path, model_impl: str) -> list[int]:
    params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
    return Engine(model, model_impl=model_impl).generate([[3, 1, 4, 1, 5]], params)[0].token_ids


@pytest.mark.parametrize("model_impl", ["native", "transformers"])
def test_few_bits_that_a_file_of_the_tool_describes_are_read(model_impl: str, model: Path) -> None:
    config = (model / "config.json").read_text()
    quantize_directory(model, "gptq", 32)
    described = json.loads((model / "config.json").read_text())
    expected = greedy(model, model_impl)
    (model / "config.json").write_text(config)
    own = {name: described["quantization_config"][name] for name in ("bits", "group_size")}
    (model / "quantize_config.json").write_text(json.dumps(own))
    assert greedy(model, model_impl) == expected


def test_a_copy_of_the_tied_head_and_recomputed_buffers_are_ignored(tmp_path: Path) -> None:
    save_model(VARIANTS["llama_tied"], tmp_path)

    def add(tensors: dict[str, torch.Tensor]) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)

    edit(tmp_path, add)
    load(tmp_path)


def test_names_without_the_decoders_prefix_are_found(tmp_path: Path) -> None:
    save_model(VARIANTS["gpt2"], tmp_path)
    path = tmp_path / "model.safetensors"
    bare = {name.removeprefix("transformer."): t for name, t in load_file(path).items()}
    save_file(bare, path)
    load(tmp_path)


def test_no_weights_and_broken_weights_are_distinguished(model: Path) -> None:
    (model / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(WeightsError, match="cannot read"):
        load(model)
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(WeightsError, match="only safetensors"):
        load(model)


def test_the_single_file_comes_before_an_index(model: Path) -> None:
    """As in transformers: an index from before the files were merged names other weights."""
    index = model / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "old-00001-of-00001.safetensors"}}))
    assert checkpoint_files(model) == [model / "model.safetensors"]


def test_shards_may_be_in_a_folder_of_the_directory(tmp_path: Path) -> None:
    save_model(VARIANTS["llama_sharded"], tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    (tmp_path / "sub").mkdir()
    for shard in tmp_path.glob("*.safetensors"):
        shard.rename(tmp_path / "sub" / shard.name)
    content["weight_map"] = {name: f"sub/{file}" for name, file in content["weight_map"].items()}
    index.write_text(json.dumps(content))
    load(tmp_path)


@pytest.mark.parametrize("elsewhere", ["../elsewhere.safetensors", "/etc/x.safetensors"])
def test_a_shard_outside_the_directory_is_refused(tmp_path: Path, elsewhere: str) -> None:
    index = {"weight_map": {"x": elsewhere}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(WeightsError, match="outside its directory"):
        checkpoint_files(tmp_path)


@pytest.mark.parametrize("name", ["a\0.safetensors", "\ud800.safetensors"], ids=["nul", "half"])
def test_a_shard_whose_name_no_file_can_have_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": name}}))
    with pytest.raises(WeightsError, match=r"cannot be the name of a file") as refused:
        checkpoint_files(tmp_path)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("mapped", ["a.safetensors", "b.safetensors"])
def test_of_a_tensor_in_two_shards_the_one_that_the_index_names_counts(
    tmp_path: Path, mapped: str
) -> None:
    write_twice(tmp_path, {"x": mapped})
    with ExitStack() as ends:
        assert opened(tmp_path, ends)["x"].file.path == tmp_path / mapped


@pytest.mark.parametrize("mapped", [{}, {"x": "c.safetensors"}], ids=["unnamed", "elsewhere"])
def test_a_tensor_in_two_shards_is_refused_if_the_index_names_neither(
    tmp_path: Path, mapped: dict[str, str]
) -> None:
    write_twice(tmp_path, mapped)
    with (
        ExitStack() as ends,
        pytest.raises(WeightsError, match=r"x is in a\.safetensors and b\.safetensors"),
    ):
        opened(tmp_path, ends)


def write_twice(directory: Path, mapped: dict[str, str]) -> None:
    """Write three shards, of which two have the tensor x."""
    shards = {"a": ("x", "y"), "b": ("x", "z"), "c": ("v",)}
    for file, names in shards.items():
        save_file({name: torch.zeros(2) for name in names}, directory / f"{file}.safetensors")
    weight_map = {"y": "a.safetensors", "z": "b.safetensors", "v": "c.safetensors"} | mapped
    index = {"weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def test_a_shard_that_is_missing_is_named(tmp_path: Path) -> None:
    save_model(VARIANTS["llama_sharded"], tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    first = sorted(set(content["weight_map"].values()))[0]
    assert len(set(content["weight_map"].values())) > 2
    (tmp_path / first).unlink()
    with pytest.raises(WeightsError, match=first):
        load(tmp_path)


@pytest.mark.parametrize("name", ["qwen3", "llama_biases", "gpt2", "bert"])
def test_parameters_are_listed_in_the_order_in_which_they_are_loaded(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    tensor = CheckpointWeights.tensor

    def recording(checkpoint: CheckpointWeights, name: str) -> torch.Tensor:
        asked.append(name)
        return tensor(checkpoint, name)

    monkeypatch.setattr(CheckpointWeights, "tensor", recording)
    shapes: Shapes
    if name == "bert":
        save_encoder(SCORERS["bert"], tmp_path, num_labels=1)
        config = load_encoder_config(tmp_path)
        shapes = bert.parameter_shapes(config)
        load_encoder(
            config, LoadSettings(tmp_path, torch.float32, CPU, lambda phase, done, total: None)
        )
    else:
        save_model(VARIANTS[name], tmp_path)
        shapes = parameter_shapes(load_model_config(tmp_path))
        load(tmp_path)
    assert set(asked) == set(shapes)
    assert layers_passed(asked) == layers_passed(shapes)


def layers_passed(names: Iterable[str]) -> list[str | None]:
    """The layers that follow one another; None: what is outside of them."""
    layers = [found and found[1] for found in (re.search(r"\.(\d+)\.", n) for n in names)]
    return [layer for layer, _ in itertools.groupby(layers)]


def random_weights(directory: Path, seed: int) -> RandomWeights:
    shapes = parameter_shapes(load_model_config(directory))
    return RandomWeights(
        shapes, seed=seed, dtype=torch.float32, device=CPU, progress=lambda done, total: None
    )


def test_random_weights_depend_on_seed_and_name_only(model: Path) -> None:
    name, other = "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.gate_proj.weight"
    first = random_weights(model, 1)
    up = first.tensor(name)
    second = random_weights(model, 1)
    gate = second.tensor(other)
    assert torch.equal(second.tensor(name), up)
    assert not torch.equal(gate, up)
    assert not torch.equal(random_weights(model, 2).tensor(name), up)


def test_random_weights_are_spread_as_for_training(tmp_path: Path) -> None:
    save_model(Variant("qwen2"), tmp_path)
    source = random_weights(tmp_path, 0)
    weight = source.tensor("model.embed_tokens.weight")
    assert weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert abs(weight.mean().item()) < 0.02 / math.sqrt(weight.numel()) * 4
    assert source.tensor("model.norm.weight").eq(1).all()
    assert source.tensor("model.layers.0.self_attn.q_proj.bias").eq(0).all()
