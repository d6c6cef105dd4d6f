"""Every served family and variant gives the tokens and logprobs that transformers gives."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.messages import SamplingParams, TokenLogprobs
from engine.weights.quantization import quantise
from tests.engine.driving import Engine, Output
from tests.engine.tiny_models import VARIANTS, VOCABULARY, save_model

LENGTH = 200
GREEDY = SamplingParams(max_tokens=LENGTH, temperature=0.0)


# What the compiled path does not take is computed by torch anyway; these are enough to hold torch's
# own way through the switches that the compiled one also has.
ALSO_BY_TORCH = (
    *("llama_biases", "llama_bfloat16_checkpoint", "mistral_sliding_window"),
    *("qwen2_sliding_upper_layers", "qwen3", "smollm3", "phi3_partial", "granite", "olmo3"),
    *("gemma3", "ministral3", "qwen3_moe", "gemma4", "gemma4_inputs", "gemma4_experts"),
)
# Launching ahead changes nothing inside a pass; these are enough to hold it to the same tokens.
ALSO_AHEAD = ("gpt2", "mistral_sliding_window", "qwen3")
WAYS: dict[str, dict[str, Any]] = {
    "compiled": {},
    "torch": {"cpu_path": "torch"},
    "ahead": {"async_scheduling": True},
    "int8_by_torch": {"quantization": "int8", "cpu_path": "torch"},
}


@dataclass(frozen=True)
class Subject:
    directory: Path
    oracle: PreTrainedModel
    way: str

    def engine(self, **settings: Any) -> Engine:
        return Engine(self.directory, **WAYS[self.way], **settings)


@pytest.fixture(
    scope="module",
    params=[
        *((name, "compiled") for name in VARIANTS),
        *((name, "torch") for name in ALSO_BY_TORCH),
        *((name, "ahead") for name in ALSO_AHEAD),
        ("qwen3", "int8_by_torch"),
        ("gemma4_inputs", "int8_by_torch"),
    ],
    ids="-".join,
)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    torch.set_num_threads(1)
    name, way = request.param
    directory = tmp_path_factory.mktemp(name)
    oracle = save_model(VARIANTS[name], directory)
    if "quantization" in WAYS[way]:
        dequantise(oracle)
    return Subject(directory, oracle, way)


def dequantise(oracle: PreTrainedModel) -> None:
    """What int8 weights mean: the oracle computes with the same numbers, as floats."""
    for weight in oracle.parameters():
        if weight.dim() == 2:
            weight.data = quantise(weight.data, "int8").dequantised().to(weight.dtype)


def prompt(length: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(VOCABULARY), k=length)


def oracle_logprobs(oracle: PreTrainedModel, token_ids: list[int]) -> Tensor:
    """[tokens, vocabulary]: row i is the distribution of token i + 1."""
    with torch.inference_mode():
        return torch.log_softmax(oracle(torch.tensor([token_ids])).logits[0].float(), dim=-1)


def assert_greedy(oracle: PreTrainedModel, prompt_ids: list[int], output: Output) -> None:
    """Each token is the oracle's most likely one after all before it; by induction this is what
    greedy generation from the prompt gives."""
    assert len(output.token_ids) == LENGTH
    expected = oracle_logprobs(oracle, prompt_ids + output.token_ids).argmax(dim=-1)
    assert output.token_ids == expected[len(prompt_ids) - 1 : -1].tolist()


def assert_logprobs(expected: Tensor, token_ids: list[int], found: list[TokenLogprobs]) -> None:
    assert len(found) == len(token_ids)
    for row, token_id, logprobs in zip(expected, token_ids, found, strict=True):
        assert logprobs.logprob == pytest.approx(row[token_id].item(), abs=1e-4)
        # Two tokens that differ by less than rounding may be in either order.
        own = row[token_id]
        assert (row > own + 1e-4).sum() < logprobs.rank <= (row >= own - 1e-4).sum()
        best = row.topk(len(logprobs.top)).values.tolist()
        ids = [top.token_id for top in logprobs.top]
        assert len(set(ids)) == len(ids)
        assert row[ids].tolist() == pytest.approx(best, abs=1e-4)
        assert [top.logprob for top in logprobs.top] == pytest.approx(best, abs=1e-4)


def test_a_sequence_alone_equals_transformers_in_tokens_and_logprobs(subject: Subject) -> None:
    engine = subject.engine()
    prompt_ids = prompt(45, seed=1)
    params = SamplingParams(max_tokens=LENGTH, temperature=0.0, logprobs=3, prompt_logprobs=2)
    [output] = engine.generate([prompt_ids], params)
    assert_greedy(subject.oracle, prompt_ids, output)
    expected = oracle_logprobs(subject.oracle, prompt_ids + output.token_ids)
    last = len(prompt_ids) - 1
    assert_logprobs(expected[last:-1], output.token_ids, output.logprobs)
    assert_logprobs(expected[:last], prompt_ids[1:], output.prompt_logprobs)
    assert all(len(logprobs.top) == 3 for logprobs in output.logprobs)
    assert all(len(logprobs.top) == 2 for logprobs in output.prompt_logprobs)


def test_mixed_batches_with_chunks_prefix_hits_and_preemption_equal_transformers(
    subject: Subject,
) -> None:
    engine = subject.engine(block_size=8, num_kv_blocks=72, max_num_batched_tokens=23)
    shared = prompt(50, seed=2)
    first = prompt(9, seed=3)
    engine.generate([shared + first], SamplingParams(max_tokens=1, temperature=0.0))
    prompts = [shared + prompt(17, seed=4), prompt(1, seed=5), shared + first, prompt(38, seed=6)]
    outputs = engine.generate(prompts, GREEDY)
    for prompt_ids, output in zip(prompts, outputs, strict=True):
        assert_greedy(subject.oracle, prompt_ids, output)
    records = [output.finished for output in outputs]
    assert sum(record.preemptions for record in records if record) > 0
    assert records[0] is not None
    assert records[0].cached_tokens == 48  # whole blocks of the shared prefix


def test_prompt_logprobs_do_not_depend_on_how_the_prompt_is_cut(subject: Subject) -> None:
    engine = subject.engine(max_num_batched_tokens=16)
    prompt_ids = prompt(61, seed=7)
    params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0)
    outputs = engine.generate([prompt_ids, prompt(30, seed=8)], params)
    expected = oracle_logprobs(subject.oracle, prompt_ids)
    assert_logprobs(expected[:-1], prompt_ids[1:], outputs[0].prompt_logprobs)


def test_generate_of_transformers_gives_the_same_text(tmp_path: Path) -> None:
    oracle = save_model(VARIANTS["qwen3"], tmp_path)
    prompt_ids = prompt(20, seed=9)
    [output] = Engine(tmp_path).generate([prompt_ids], GREEDY)
    inputs = torch.tensor([prompt_ids])
    expected = oracle.generate(
        inputs,
        attention_mask=torch.ones_like(inputs),
        max_new_tokens=LENGTH,
        do_sample=False,
        pad_token_id=0,
    )
    assert prompt_ids + output.token_ids == expected[0].tolist()
