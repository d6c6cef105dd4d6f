"""Weights arrive as transformers reads them, or the checkpoint is refused with what is wrong."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from engine.architecture.errors import WeightsError
from engine.cpu.library import library
from engine.plugin.loading import loaded_model, random_model
from engine.plugin.products import Products
from engine.plugin.reading import read_plugin_config
from engine.plugin.trial import round_weights
from tests.engine.plugin import loading_memory
from tests.engine.plugin.families import save_family

FEW = ("olmo2", "mixtral", "gpt2", "phi3")
MANY = (
    *("gemma4_text#moe", "qwen3_moe", "gpt_oss", "deepseek_v3", "opt", "cohere2", "granitemoe"),
    *("minimax_m2", "ernie4_5_moe", "glm4_moe", "starcoder2"),
)
CPU = torch.device("cpu")
NORM = "model.norm.weight"


@pytest.mark.parametrize("kind", [*FEW, *(pytest.param(k, marks=pytest.mark.slow) for k in MANY)])
def test_each_parameter_and_buffer_is_that_of_transformers(kind: str, tmp_path: Path) -> None:
    oracle = save_family(kind, tmp_path)
    model = loaded_model(read_plugin_config(tmp_path), tmp_path, CPU, torch.float32)
    for found, expected in (
        (dict(model.named_parameters()), dict(oracle.named_parameters())),
        (dict(model.named_buffers()), dict(oracle.named_buffers())),
    ):
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["hunyuan_v1_moe", "falcon_h1"])
def test_products_take_every_linear_map_and_leave_the_rest_as_it_is(
    kind: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    save_family(kind, tmp_path)
    path = tmp_path / "model.safetensors"
    stored = {name: each.to(dtype) for name, each in load_file(path).items()}
    save_file(stored, path, {"format": "pt"})
    config = read_plugin_config(tmp_path)
    plain = dict(loaded_model(config, tmp_path, CPU, dtype).named_parameters())
    model = loaded_model(config, tmp_path, CPU, dtype, Products(library(), 1))
    assert not [name for name, part in model.named_modules() if type(part) is torch.nn.Linear]
    left = dict(model.named_parameters())
    assert left
    for name, found in left.items():
        assert torch.equal(found.float(), plain[name].float()), name


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    save_family("olmo2", tmp_path)
    return tmp_path


def edit(directory: Path, **changes: torch.Tensor | None) -> None:
    """Replace tensors, None: remove; dots in names are written as two underscores."""
    path = directory / "model.safetensors"
    tensors = load_file(path)
    for key, tensor in changes.items():
        name = key.replace("__", ".")
        if tensor is None:
            del tensors[name]
        else:
            tensors[name] = tensor
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model__norm__weight": None}, f"missing: {NORM}"),
        ({"model__norm__weight": torch.ones(5)}, f"misshapen: {NORM}"),
        ({"model__norm__spare": torch.ones(5)}, "unexpected: model.norm.spare"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(
    changes: dict[str, torch.Tensor | None], complaint: str, checkpoint: Path
) -> None:
    edit(checkpoint, **changes)
    config = read_plugin_config(checkpoint)
    with pytest.raises(WeightsError, match="do not fit its config") as refused:
        loaded_model(config, checkpoint, CPU, torch.float32)
    assert complaint in str(refused.value)


def test_layers_for_multi_token_prediction_are_left_out_and_named(
    checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = checkpoint / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "num_nextn_predict_layers": 1}))
    extra = f"model.layers.{config['num_hidden_layers']}.eh_proj.weight"
    edit(checkpoint, **{extra.replace(".", "__"): torch.ones(5)})
    with caplog.at_level(logging.INFO):
        loaded_model(read_plugin_config(checkpoint), checkpoint, CPU, torch.float32)
    assert f"left out what only multi-token prediction needs: {extra}" in caplog.messages


def test_a_layer_beyond_the_configured_number_is_refused_not_left_out(checkpoint: Path) -> None:
    path = checkpoint / "config.json"
    config = json.loads(path.read_text())
    last = config["num_hidden_layers"] - 1
    changed = {"num_hidden_layers": last, "num_nextn_predict_layers": 1, "layer_types": None}
    path.write_text(json.dumps({**config, **changed}))
    with pytest.raises(WeightsError, match=rf"unexpected.* model\.layers\.{last}\."):
        loaded_model(read_plugin_config(checkpoint), checkpoint, CPU, torch.float32)


def test_pickled_weights_are_never_read(checkpoint: Path) -> None:
    tensors = load_file(checkpoint / "model.safetensors")
    torch.save(tensors, checkpoint / "pytorch_model.bin")
    (checkpoint / "model.safetensors").unlink()
    config = read_plugin_config(checkpoint)
    with pytest.raises(WeightsError, match="only safetensors weights are read"):
        loaded_model(config, checkpoint, CPU, torch.float32)


def test_a_file_that_is_cut_short_is_refused_in_a_sentence(checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    config = read_plugin_config(checkpoint)
    with pytest.raises(WeightsError, match="cannot read"):
        loaded_model(config, checkpoint, CPU, torch.float32)


def test_random_weights_depend_on_the_seed_alone(checkpoint: Path) -> None:
    config = read_plugin_config(checkpoint)
    models = [random_model(config, seed, CPU, torch.float32) for seed in (1, 1, 2)]
    name = "model.layers.0.mlp.up_proj.weight"
    first, again, other = (model.get_parameter(name) for model in models)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(models[0].get_parameter(NORM), torch.ones(64))


def test_the_index_of_a_sharded_checkpoint_may_not_leave_its_directory(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {NORM: "../model.safetensors"}}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
    config = read_plugin_config(checkpoint)
    with pytest.raises(WeightsError, match="outside its directory"):
        loaded_model(config, checkpoint, CPU, torch.float32)


def test_a_missing_expert_is_named(tmp_path: Path) -> None:
    save_family("qwen3_moe", tmp_path)
    edit(tmp_path, model__layers__1__mlp__experts__3__up_proj__weight=None)
    with pytest.raises(WeightsError, match=r"missing: model\.layers\.1\.mlp\.experts\.3\.up_proj"):
        loaded_model(read_plugin_config(tmp_path), tmp_path, CPU, torch.float32)


def test_parameters_are_rounded_as_transformers_rounds_them(tmp_path: Path) -> None:
    save_family("glm4_moe", tmp_path)
    oracle = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    model = loaded_model(read_plugin_config(tmp_path), tmp_path, CPU, torch.bfloat16)
    expected = oracle.state_dict()
    found = model.state_dict()
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert value.dtype == expected[name].dtype
        assert torch.equal(value, expected[name])
    assert {value.dtype for value in found.values()} == {torch.bfloat16, torch.float32}


def test_tied_parameters_that_are_stored_apart_and_differ_stay_apart(checkpoint: Path) -> None:
    path = checkpoint / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"tie_word_embeddings": True}))
    model = loaded_model(read_plugin_config(checkpoint), checkpoint, CPU, torch.float32)
    stored = load_file(checkpoint / "model.safetensors")
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        assert torch.equal(model.get_parameter(name), stored[name])


@pytest.mark.parametrize("stays", ["lm_head.weight", "model.embed_tokens.weight"])
def test_of_tied_parameters_either_is_enough(stays: str, checkpoint: Path) -> None:
    path = checkpoint / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"tie_word_embeddings": True}))
    stored = load_file(checkpoint / "model.safetensors")
    names = {"lm_head.weight", "model.embed_tokens.weight"}
    [goes] = names - {stays}
    edit(checkpoint, **{goes.replace(".", "__"): None})
    model = loaded_model(read_plugin_config(checkpoint), checkpoint, CPU, torch.float32)
    assert all(torch.equal(model.get_parameter(name), stored[stays]) for name in names)


def test_packed_weights_take_no_more_memory_than_stored_ones(tmp_path: Path) -> None:
    """Of bfloat16 weights, in a model that computes in float32."""
    oracle = save_family("qwen3_moe", tmp_path)
    stored = {
        name: each.bfloat16() for name, each in load_file(tmp_path / "model.safetensors").items()
    }
    save_file(stored, tmp_path / "model.safetensors", metadata={"format": "pt"})
    config = read_plugin_config(tmp_path)
    model = loaded_model(config, tmp_path, CPU, torch.float32, Products(library(), 1))
    parameters = list(model.parameters())
    assert (
        sum(each.nbytes for each in parameters)
        < sum(each.nbytes for each in oracle.parameters()) / 3
    )
    ids = torch.randint(3, 199, (1, 9))
    round_weights(oracle)
    with torch.inference_mode():
        model.set_attn_implementation("eager")
        found, expected = (each(input_ids=ids).logits for each in (model, oracle))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", loading_memory.KINDS)
def test_loading_takes_little_more_memory_than_the_weights(kind: str) -> None:
    assert loading_memory.peak_share(kind) <= 1.15
