"""A model whose ranks run the kernels gives the tokens of transformers, and those of one process
where they are drawn. The ranks are processes: the interpreter has no threads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from engine.gpu.kernels.launch import INTERPRETED
from engine.messages import SamplingParams
from tests.engine.driving import Engine
from tests.engine.ranks.processes import process_engine
from tests.engine.test_parity import prompt
from tests.engine.tiny_models import VARIANTS, save_model

pytestmark = pytest.mark.skipif(
    not INTERPRETED and torch.cuda.device_count() < 2, reason="needs two GPUs"
)

# Prompts in parts, among other sequences' tokens.
SETTINGS = {"block_size": 8, "num_kv_blocks": 40, "max_num_seqs": 4, "max_num_batched_tokens": 16}
DRAWN = [
    SamplingParams(max_tokens=4, temperature=0.0),
    SamplingParams(max_tokens=4, seed=3, temperature=1.2, top_p=0.9),
    SamplingParams(max_tokens=4, seed=4, presence_penalty=1.0, min_tokens=2, logprobs=1),
]


@pytest.mark.parametrize("name", ["qwen3_tied_biases", "qwen3_moe"])
def test_two_ranks_of_kernels_equal_transformers_and_one_process(
    device: torch.device, tmp_path: Path, name: str
) -> None:
    variant = VARIANTS[name]
    few_layers = variant.settings | {"num_hidden_layers": 2}
    oracle = save_model(replace(variant, settings=few_layers), tmp_path)
    prompts = [prompt(17, seed=1), prompt(3, seed=2), prompt(6, seed=3)]
    settings = SETTINGS | {"gpu_path": "triton", "device": device.type, "async_scheduling": True}
    with process_engine(tmp_path, 2, **settings) as engine:
        greedy = engine.generate(prompts, SamplingParams(max_tokens=4, temperature=0.0))
        drawn = engine.generate(prompts, DRAWN)
    for prompt_ids, output in zip(prompts, greedy, strict=True):
        tokens = prompt_ids + output.token_ids
        with torch.inference_mode():
            best = oracle(torch.tensor([tokens])).logits[0].argmax(dim=-1)
        assert output.token_ids == best[len(prompt_ids) - 1 : -1].tolist()
    alone = Engine(tmp_path, cpu_path="torch", num_kv_blocks=40).generate(prompts, DRAWN)
    assert [output.token_ids for output in drawn] == [output.token_ids for output in alone]
