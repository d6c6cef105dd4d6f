"""The engine over GPU kernels gives the tokens of transformers, however a batch is mixed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

pytest.importorskip("triton")

from triton.runtime import interpreter

from engine.architecture.errors import ModelError
from engine.attention.layout import Ragged
from engine.cpu.llama import CompiledLlama
from engine.gpu.fresh import FreshAttention
from engine.gpu.kernels.launch import INTERPRETED
from engine.gpu.llama import KernelLlama
from engine.messages import SamplingParams
from engine.model.llama import LlamaModel
from engine.run.model_runner import ModelRunner
from tests.engine.driving import Engine, load_runner
from tests.engine.tiny_models import VARIANTS, VOCABULARY, Variant, save_model

# Two layers, as the interpreter is slow; the second is where kept rows and windows differ.
SMALL = {"num_hidden_layers": 2}
SUBJECTS: dict[str, Variant] = {
    name: replace(VARIANTS[name], settings=VARIANTS[name].settings | SMALL)
    for name in (
        *("llama_biases", "llama_multi_query", "llama_yarn_mscale", "mistral_sliding_window"),
        *("phi3_partial", "mixtral", "qwen3_moe"),
    )
} | {
    "qwen2_sliding_upper_layer": Variant(
        "qwen2",
        SMALL | {"use_sliding_window": True, "sliding_window": 13, "max_window_layers": 1},
    ),
    "smollm3": Variant("smollm3", SMALL | {"no_rope_layers": [1, 0]}),
    "qwen3_tied_three_heads_a_key": Variant(
        "qwen3", SMALL | {"head_dim": 80, "num_attention_heads": 3, "num_key_value_heads": 1}
    ),
}


def prompt(length: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(VOCABULARY), k=length)


# What these have, others have too, or the CPU's tests cover.
SLOW = ("llama_yarn_mscale", "mistral_sliding_window", "mixtral")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in SUBJECTS],
)
def test_chunks_decodes_and_prefix_hits_in_one_batch_equal_transformers(
    device: torch.device, tmp_path: Path, name: str
) -> None:
    oracle = save_model(SUBJECTS[name], tmp_path)
    engine = Engine(
        tmp_path,
        device=device.type,
        gpu_path="triton",
        block_size=8,
        num_kv_blocks=40,
        max_num_batched_tokens=27,
        async_scheduling="biases" not in name,
    )
    shared = prompt(33, seed=1)
    once = SamplingParams(max_tokens=1, temperature=0.0)
    engine.generate([shared], once)
    prompts = [shared + prompt(9, seed=2), prompt(1, seed=3), prompt(30, seed=4)]
    outputs = engine.generate(prompts, SamplingParams(max_tokens=5, temperature=0.0))
    for prompt_ids, output in zip(prompts, outputs, strict=True):
        tokens = prompt_ids + output.token_ids
        with torch.inference_mode():
            best = oracle(torch.tensor([tokens])).logits[0].argmax(dim=-1)
        assert output.token_ids == best[len(prompt_ids) - 1 : -1].tolist()
    assert outputs[0].finished is not None
    assert outputs[0].finished.cached_tokens == 32


def test_prompts_attended_in_the_batch_leave_the_same_cache_and_tokens(
    device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with ``--attention cudnn``, by torch's own formula."""
    oracle = save_model(SUBJECTS["qwen2_sliding_upper_layer"], tmp_path)
    fresh = FreshAttention(SDPBackend.MATH, fewest=4)
    taken: list[tuple[int, ...]] = []
    attend = FreshAttention.__call__

    def noted(self: FreshAttention, query: torch.Tensor, *args: Any, **options: Any) -> None:
        taken.append(tuple(query.shape))
        attend(self, query, *args, **options)

    monkeypatch.setattr(FreshAttention, "__call__", noted)
    monkeypatch.setattr("engine.gpu.attention.FreshAttention", lambda: fresh)
    monkeypatch.setattr("engine.run.setup.require_cudnn", lambda device, **heads: None)
    engine = Engine(
        tmp_path,
        device=device.type,
        gpu_path="triton",
        attention="cudnn",
        block_size=8,
        num_kv_blocks=40,
        max_num_batched_tokens=27,
    )
    prepared, rows = len(taken), []
    prompts = [prompt(33, seed=1), prompt(9, seed=2), prompt(1, seed=3), prompt(12, seed=4)]
    outputs = engine.generate(prompts, SamplingParams(max_tokens=3, temperature=0.0))
    for prompt_ids, output in zip(prompts, outputs, strict=True):
        tokens = prompt_ids + output.token_ids
        with torch.inference_mode():
            best = oracle(torch.tensor([tokens])).logits[0].argmax(dim=-1)
        assert output.token_ids == best[len(prompt_ids) - 1 : -1].tolist()
    rows = [shape[0] for shape in taken[prepared:]]
    # Of 27 tokens the lower layer's alone, as the upper one sees only 13.
    assert rows.count(27) == 1
    assert rows.count(9) == 2


def test_the_loader_takes_the_kernels_where_they_know_the_model(
    device: torch.device, tmp_path: Path
) -> None:
    save_model(VARIANTS["qwen3"], tmp_path / "qwen3")
    save_model(VARIANTS["gpt2"], tmp_path / "gpt2")
    save_model(VARIANTS["gemma3"], tmp_path / "gemma3")
    settings = {"device": device.type, "num_kv_blocks": 128}

    def decoder(name: str, gpu_path: str) -> object:
        return load_runner(tmp_path / name, gpu_path=gpu_path, **settings)._decoder

    assert isinstance(decoder("qwen3", "triton"), KernelLlama)
    assert not isinstance(decoder("qwen3", "torch"), KernelLlama)
    assert not isinstance(decoder("gpt2", "triton"), KernelLlama)
    # A family of ours with what the kernels do not compute is left to other code of ours.
    ours = decoder("gemma3", "triton")
    assert isinstance(ours, LlamaModel if device.type == "cuda" else (LlamaModel, CompiledLlama))
    assert isinstance(decoder("qwen3", "auto"), KernelLlama) == (device.type == "cuda")


def test_kernels_that_cannot_run_report_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(VARIANTS["qwen3"], tmp_path)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ModelError, match="--gpu-path triton: triton compiles for GPUs only"):
        load_runner(tmp_path, device="cpu", gpu_path="triton")


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 0.25), ("float16", 0.03)])
def test_narrow_types_give_the_logprobs_of_the_torch_path(
    device: torch.device, tmp_path: Path, dtype: str, tolerance: float
) -> None:
    save_model(SUBJECTS["qwen3_tied_three_heads_a_key"], tmp_path)
    params = SamplingParams(max_tokens=2, temperature=0.0, logprobs=0, prompt_logprobs=0)
    found = []
    for gpu_path in ("triton", "torch"):
        engine = Engine(
            tmp_path,
            device=device.type,
            dtype=dtype,
            gpu_path=gpu_path,
            num_kv_blocks=8,
            max_num_batched_tokens=16,
            max_model_len=64,
        )
        [output] = engine.generate([prompt(25, seed=6)], params)
        values = [*output.prompt_logprobs, *output.logprobs[:1]]
        found.append(torch.tensor([value.logprob for value in values]))
    assert found[0].shape == (25,)
    # Both round at every layer, though not at the same places.
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=tolerance)


class Launches(TorchDispatchMode):
    """Counts what torch computes, besides views and new tensors."""

    FREE = ("view", "slice", "select.", "empty", "expand", "split", "as_strided", "detach", "alias")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not any(free in str(func) for free in self.FREE)
        return func(*args, **(kwargs or {}))


@pytest.mark.skipif(not INTERPRETED, reason="counts what the interpreter runs")
@pytest.mark.parametrize(("rows", "launches"), [(1, 6), (2, 9)])
def test_a_layer_takes_six_launches_for_one_row_and_nine_for_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, launches: int
) -> None:
    counts = []
    for layers in (1, 2):
        config = VARIANTS["qwen3"].settings | {"num_hidden_layers": layers}
        save_model(replace(VARIANTS["qwen3"], settings=config), tmp_path / str(layers))
        runner = load_runner(
            tmp_path / str(layers), device="cpu", gpu_path="triton", num_kv_blocks=40
        )
        counts.append(launches_of(runner, rows, monkeypatch))
    assert counts[1] - counts[0] == launches


def launches_of(runner: ModelRunner, rows: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of a decode step of so many rows, each with a context that is split."""
    decoder = runner._decoder
    assert isinstance(decoder, KernelLlama)
    ints = partial(torch.zeros, dtype=torch.int32)
    tables = Ragged(
        slots=ints(rows),
        decode_lengths=ints(rows) + 20,
        decode_blocks=ints(rows, 2),
        chunk_lengths=ints(0),
        chunk_blocks=ints(0, 1),
        cu_seqlens=ints(1),
        longest=0,
    )
    kernels = 0
    run = interpreter.GridExecutor.__call__

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal kernels
        kernels += 1
        return unseen(run)(self, *args, **kwargs)

    with monkeypatch.context() as patch, torch.inference_mode(), Launches() as torchs:
        patch.setattr(interpreter.GridExecutor, "__call__", counted)
        tokens = torch.zeros(rows, dtype=torch.int64)
        decoder.hidden_states(tokens, tokens, runner._cache, tables)
    return kernels + torchs.count


def unseen(function: Callable[..., Any]) -> Callable[..., Any]:
    """What the interpreter asks of torch does not count as a launch."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return function(*args, **kwargs)

    return run
