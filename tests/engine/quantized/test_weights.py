"""Quantized checkpoints are served with the logits that transformers gives to what they mean."""

from __future__ import annotations

import json
import logging
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine.architecture.config import load_model_config
from engine.architecture.errors import WeightsError
from engine.architecture.quantization import read_quantization
from engine.cpu.library import LibraryUnavailableError, library
from engine.messages import SamplingParams
from engine.quantized.weights import QuantizedCheckpoint
from engine.run.loader import parameter_shapes
from tests.engine.driving import Engine, load_runner
from tests.engine.plugin.families import save_family
from tests.engine.quantized.making import FORMATS, quantize_directory
from tests.engine.tiny_models import VARIANTS, VOCABULARY, Variant, save_model

CPU = torch.device("cpu")
# The last group of the inner inputs is shorter, where the format allows it.
MODEL = Variant("qwen3", {"head_dim": 32})
GROUP = 32


def checkpoint(directory: Path, name: str, variant: Variant = MODEL) -> PreTrainedModel:
    """Write a checkpoint; what it means, in transformers, is the oracle."""
    if name == "ct_mxfp4":
        variant = replace(variant, settings=variant.settings | {"intermediate_size": 96})
    oracle = save_model(variant, directory)
    quantize_directory(directory, name, GROUP)
    oracle.load_state_dict(load_file(directory / "meaning.safetensors"), strict=False)
    return oracle


def difference(engine: Engine, oracle: PreTrainedModel) -> tuple[float, bool]:
    """Return the largest difference of a logarithm of a probability, as a share of the logits'
    range, and whether greedy decoding gives the same tokens."""
    prompt = random.Random(1).choices(range(VOCABULARY), k=60)
    params = SamplingParams(max_tokens=20, temperature=0.0, prompt_logprobs=0)
    [output] = engine.generate([prompt], params)
    with torch.inference_mode():
        logits = oracle(torch.tensor([prompt + output.token_ids])).logits[0]
    expected = torch.log_softmax(logits, dim=-1)[torch.arange(59), prompt[1:]]
    found = torch.tensor([each.logprob for each in output.prompt_logprobs])
    worst = float((found - expected).abs().max() / (logits.max() - logits.min()))
    return worst, output.token_ids == logits.argmax(dim=-1)[59:-1].tolist()


@pytest.mark.parametrize("name", FORMATS)
def test_logits_are_those_of_transformers_with_inputs_in_floats(name: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    oracle = checkpoint(tmp_path, name)
    worst, is_same = difference(Engine(tmp_path, cpu_path="torch"), oracle)
    assert worst < 1e-4
    assert is_same


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("phi3#partial", "gptq"),
        ("gemma3_text#linear", "awq"),
        ("mixtral", "ct_int8"),
        ("qwen3_moe#renormalised", "fp8_blocks"),
    ],
)
def test_every_family_is_computed_by_our_own_code(kind: str, name: str, tmp_path: Path) -> None:
    """The oracle is transformers with what the weights mean."""
    torch.set_num_threads(1)
    save_family(kind, tmp_path)
    quantize_directory(tmp_path, name, GROUP)
    meant = tmp_path / "meant"
    meant.mkdir()
    config = json.loads((tmp_path / "config.json").read_text())
    del config["quantization_config"]
    (meant / "config.json").write_text(json.dumps(config))
    (tmp_path / "meaning.safetensors").rename(meant / "model.safetensors")
    oracle = AutoModelForCausalLM.from_pretrained(
        meant, dtype=torch.float32, attn_implementation="eager"
    )
    runner = load_runner(tmp_path, cpu_path="torch")
    assert runner.info.implementation == "native"
    worst, is_same = difference(Engine(tmp_path, runner=runner), oracle.eval())
    assert worst < 1e-4
    assert is_same


@pytest.mark.parametrize("name", FORMATS)
def test_logits_are_near_those_of_transformers_with_inputs_in_8_bits(
    name: str, tmp_path: Path
) -> None:
    try:
        library()
    except LibraryUnavailableError as error:
        pytest.skip(str(error))
    torch.set_num_threads(1)
    oracle = checkpoint(tmp_path, name)
    worst, _ = difference(Engine(tmp_path), oracle)
    assert worst < 0.02
    # What stays in few bits has its inputs rounded, too; the rest has not.
    assert (worst > 1e-5) == FORMATS[name].few_bits


@pytest.mark.parametrize(
    "variant",
    [
        *("llama_tied", "llama_biases", "qwen2", "mistral"),
        *("phi3_partial", "gemma3", "granite", "olmo2", "smollm3"),
    ],
)
def test_every_family_is_read(variant: str, tmp_path: Path) -> None:
    oracle = checkpoint(tmp_path, "gptq", VARIANTS[variant])
    worst, is_same = difference(Engine(tmp_path, cpu_path="torch"), oracle)
    assert worst < 1e-4
    assert is_same


def test_what_is_no_small_integer_is_rounded_to_the_dtype_of_the_model(tmp_path: Path) -> None:
    oracle = checkpoint(tmp_path, "fp8_blocks", replace(MODEL, dtype=torch.bfloat16))
    worst, is_same = difference(Engine(tmp_path, cpu_path="torch"), oracle)
    assert worst < 1e-4
    assert is_same
    with opened(tmp_path) as source:
        name = "model.layers.0.mlp.up_proj.weight"
        assert torch.equal(source.tensor(name), source.tensor(name).bfloat16().float())


def opened(directory: Path) -> QuantizedCheckpoint:
    quantized = read_quantization(directory)
    assert quantized is not None
    config = load_model_config(directory)
    return QuantizedCheckpoint(
        directory,
        parameter_shapes(config),
        quantized,
        unused=[],
        dtype=torch.float32,
        rounded=getattr(torch, config.dtype),
        device=CPU,
        progress=lambda *_: None,
    )


def test_a_part_is_that_of_the_whole(tmp_path: Path) -> None:
    checkpoint(tmp_path, "awq")
    name = "model.layers.1.self_attn.q_proj.weight"
    with opened(tmp_path) as source:
        whole = source.tensor(name)
        part = source.part(name, 1, ((32, 40), (0, 8)))
    assert torch.equal(part, torch.cat([whole[:, 32:40], whole[:, :8]], 1))


def test_the_log_says_what_was_read_in_few_bits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint(tmp_path, "gptq")
    with caplog.at_level(logging.INFO), opened(tmp_path) as source:
        source.grouped("model.layers.0.mlp.up_proj.weight")
        source.tensor("model.layers.0.mlp.down_proj.weight")
        assert source.grouped("model.embed_tokens.weight") is None
    assert caplog.messages == [
        "gptq, 4 bits, groups of 32: matrices read in few bits: 1, dequantized: 1"
    ]


def test_tensors_that_do_not_fit_the_model_are_named(tmp_path: Path) -> None:
    checkpoint(tmp_path, "gptq")
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    name = "model.layers.0.mlp.up_proj"
    tensors[f"{name}.qweight"] = tensors[f"{name}.qweight"][:4].contiguous()
    tensors[f"{name}.qzeros"] = tensors[f"{name}.qzeros"][:1].contiguous()
    tensors[f"{name}.scales"] = tensors[f"{name}.scales"][:1].contiguous()
    tensors[f"{name}.g_idx"] = tensors[f"{name}.g_idx"][:32].contiguous()
    tensors["model.layers.0.self_attn.k_scale"] = torch.ones(())
    tensors["model.layers.0.stray_scale"] = torch.ones(())
    save_file(tensors, path)
    with pytest.raises(WeightsError) as refused, opened(tmp_path):
        pass
    assert str(refused.value) == (
        f"the weights in {tmp_path} do not fit its config.json; misshapen: {name}.weight [80, 32] "
        "instead of [80, 64]; unexpected: model.layers.0.stray_scale"
    )
