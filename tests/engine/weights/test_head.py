"""Heads that are stored although config.json ties them to the embeddings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from engine.messages import SamplingParams
from engine.weights.head import has_own_head, stores_head
from tests.engine.driving import Engine, load_runner
from tests.engine.quantized.making import quantize_directory
from tests.engine.tiny_models import VARIANTS, Variant, save_model

EMBEDDINGS = {"gpt2": "transformer.wte.weight"}
LLAMA = "model.embed_tokens.weight"
FAMILIES = ["llama", "qwen2", "gemma3", "gpt2"]


def stored_with_head(directory: Path, family: str, *, own: bool) -> str:
    """Return the name of the embeddings."""
    settings = VARIANTS[family].settings | {"tie_word_embeddings": True}
    save_model(Variant(family, settings), directory)
    path, name = directory / "model.safetensors", EMBEDDINGS.get(family, LLAMA)
    tensors = load_file(path)
    assert "lm_head.weight" not in tensors
    head = tensors[name].flip(0) if own else tensors[name].clone()
    save_file(tensors | {"lm_head.weight": head.contiguous()}, path, metadata={"format": "pt"})
    return name


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_that_differs_is_used_as_transformers_does(family: str, tmp_path: Path) -> None:
    name = stored_with_head(tmp_path, family, own=True)
    assert has_own_head(tmp_path, name, torch.float32, None)
    oracle: Any = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    prompt = [1, 2, 3]
    with torch.no_grad():
        wanted = oracle(torch.tensor([prompt])).logits[0, -1].log_softmax(-1)
    params = SamplingParams(max_tokens=1, temperature=0.0, logprobs=5)
    (output,) = Engine(tmp_path, max_model_len=64).generate([prompt], params)
    assert output.token_ids == [int(wanted.argmax())]
    assert [top.logprob for top in output.logprobs[0].top] == pytest.approx(
        wanted.topk(5).values.tolist(), abs=1e-3
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_a_copy_of_the_embeddings_stays_tied(family: str, tmp_path: Path) -> None:
    name = stored_with_head(tmp_path, family, own=False)
    assert not has_own_head(tmp_path, name, torch.float32, None)
    tied = load_runner(tmp_path).info.num_parameters
    tensors = load_file(tmp_path / "model.safetensors")
    assert tied == sum(each.numel() for key, each in tensors.items() if key != "lm_head.weight")


@pytest.mark.parametrize("name", ["ct_int4", "ct_int8", "gptq", "fp8"])
@pytest.mark.parametrize("model_impl", ["native", "transformers"])
def test_a_head_in_few_bits_is_used(name: str, model_impl: str, tmp_path: Path) -> None:
    """The oracle is transformers without the tie: it cannot load such a head with it."""
    oracle: Any = save_model(Variant("qwen3", {"head_dim": 32}), tmp_path)
    quantize_directory(tmp_path, name, 16, linear=re.compile(r"(_proj|lm_head)\.weight$"))
    oracle.load_state_dict(load_file(tmp_path / "meaning.safetensors"))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    assert has_own_head(tmp_path, LLAMA, torch.float32, None)
    prompt = [1, 2, 3]
    with torch.no_grad():
        wanted = oracle(torch.tensor([prompt])).logits[0, -1].log_softmax(-1)
    params = SamplingParams(max_tokens=1, temperature=0.0, logprobs=5)
    engine = Engine(tmp_path, max_model_len=64, cpu_path="torch", model_impl=model_impl)
    (output,) = engine.generate([prompt], params)
    assert [top.logprob for top in output.logprobs[0].top] == pytest.approx(
        wanted.topk(5).values.tolist(), abs=1e-3
    )


@pytest.mark.parametrize("parts", [{"lm_head.bias"}, {"lm_head.input_scale"}, set()])
def test_other_tensors_of_a_head_are_not_one(parts: set[str], tmp_path: Path) -> None:
    tensors = {name: torch.ones(4) for name in {LLAMA, *parts}}
    save_file(tensors, tmp_path / "model.safetensors")
    assert not has_own_head(tmp_path, LLAMA, torch.float32, None)


def test_a_head_of_embeddings_in_few_bits_is_used(tmp_path: Path) -> None:
    tensors = {
        LLAMA: torch.ones(4, 8, dtype=torch.int8),
        "lm_head.weight": torch.ones(4, 8),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    assert has_own_head(tmp_path, LLAMA, torch.float32, None)


def test_only_what_the_served_dtype_shows_makes_a_difference(tmp_path: Path) -> None:
    one = torch.ones(4, 8)
    save_file({LLAMA: one, "lm_head.weight": one + 1e-6}, tmp_path / "model.safetensors")
    assert has_own_head(tmp_path, LLAMA, torch.float32, None)
    assert not has_own_head(tmp_path, LLAMA, torch.bfloat16, None)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("lm_head.weight", True), ("lm_head.qweight", True), (LLAMA, False), ("my_lm_head.w", False)],
)
def test_a_head_is_stored_in_any_form(name: str, expected: bool, tmp_path: Path) -> None:
    save_file({name: torch.ones(4, 8)}, tmp_path / "model.safetensors")
    assert stores_head(tmp_path, None) is expected
