"""Matrices in few bits stay so under the kernels, which give what the weights mean."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("triton")

from engine.gpu.feed_forward import Mixture
from engine.gpu.kernels.few_bits import FewBitWeight
from engine.gpu.llama import KernelLlama
from engine.messages import SamplingParams
from engine.run.model_runner import ModelRunner
from tests.engine.driving import Engine, load_runner
from tests.engine.quantized.making import quantize_directory
from tests.engine.tiny_models import VOCABULARY, Variant, save_model

ONE_LAYER = Variant("qwen3", {"head_dim": 32, "num_hidden_layers": 1})


def kinds(runner: ModelRunner) -> list[type]:
    decoder = runner._parts.decoder
    assert isinstance(decoder, KernelLlama)
    layer = decoder._layers[0]
    return [
        type(each.weight) for each in (layer.qkv, layer.output, layer.feed.gate_up, layer.feed.down)
    ]


@pytest.mark.parametrize(
    ("name", "is_kept"),
    [
        ("awq", True),
        ("ct_int8", True),
        ("fp8_blocks", True),
        ("gptq_act_order", False),
        # Held like awq and fp8_blocks.
        pytest.param("gptq", True, marks=pytest.mark.slow),
        pytest.param("ct_fp8", True, marks=pytest.mark.slow),
    ],
)
def test_a_quantized_checkpoint_gives_the_tokens_of_what_it_means(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, *, is_kept: bool
) -> None:
    oracle = save_model(ONE_LAYER, tmp_path)
    quantize_directory(tmp_path, name, 32)
    oracle.load_state_dict(load_file(tmp_path / "meaning.safetensors"), strict=False)
    with caplog.at_level(logging.INFO):
        runner = load_runner(tmp_path, gpu_path="triton", dtype="float32")
    assert kinds(runner) == [FewBitWeight if is_kept else torch.Tensor] * 4
    assert ("few bits on the GPU" in caplog.text) == is_kept
    prompts = [random.Random(size).choices(range(VOCABULARY), k=size) for size in (3, 20)]
    params = SamplingParams(max_tokens=3, temperature=0.0)
    for prompt, output in zip(
        prompts, Engine(tmp_path, runner=runner).generate(prompts, params), strict=True
    ):
        with torch.inference_mode():
            logits = oracle(torch.tensor([prompt + output.token_ids])).logits[0]
        assert output.token_ids == logits.argmax(-1)[len(prompt) - 1 : -1].tolist()


@pytest.mark.parametrize("kind", ["int4", "fp8"])
def test_quantized_at_load_and_with_deterministic_in_floats(tmp_path: Path, kind: str) -> None:
    save_model(ONE_LAYER, tmp_path)
    quantized = load_runner(tmp_path, gpu_path="triton", quantization=kind)
    assert kinds(quantized) == [FewBitWeight] * 4
    exact = load_runner(tmp_path, gpu_path="triton", quantization=kind, deterministic=True)
    assert kinds(exact) == [torch.Tensor] * 4
    prompt = random.Random(1).choices(range(VOCABULARY), k=9)
    params = SamplingParams(max_tokens=3, temperature=0.0)
    found, expected = (
        Engine(tmp_path, runner=runner).generate([prompt], params)[0].token_ids
        for runner in (quantized, exact)
    )
    assert found == expected


def test_experts_stay_as_they_are_when_other_matrices_are_quantized(tmp_path: Path) -> None:
    save_model(Variant("qwen3_moe", {"head_dim": 32, "num_hidden_layers": 1}), tmp_path)
    layers = []
    for quantization in ("none", "int4"):
        runner = load_runner(tmp_path, gpu_path="triton", quantization=quantization)
        decoder = runner._parts.decoder
        assert isinstance(decoder, KernelLlama)
        layers.append(decoder._layers[0])
    exact, quantized = layers
    assert isinstance(quantized.output.weight, FewBitWeight)
    assert isinstance(exact.feed, Mixture)
    assert isinstance(quantized.feed, Mixture)
    for name in ("router", "gate_up", "down"):
        assert torch.equal(getattr(quantized.feed, name), getattr(exact.feed, name))
