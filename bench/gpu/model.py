"""Models of random weights in the shapes that are measured, and the bytes and operations of their
steps."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence as Items
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from bench.gpu.timing import Ceilings, Machine
from engine.attention.cache import PagedKVCache
from engine.config import EngineConfig
from engine.ranks.runner import ParallelRunner
from engine.run.assembly import load_model_runner
from engine.run.model_runner import ModelRunner

LLAMA_8B: Final[dict[str, Any]] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128_256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 262_144,
    "rope_theta": 500_000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
QWEN3_06B: Final[dict[str, Any]] = {
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 151_936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 262_144,
    "rope_theta": 1_000_000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
QWEN3_30B_A3B: Final[dict[str, Any]] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "vocab_size": 151_936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "max_position_embeddings": 262_144,
    "rope_theta": 1_000_000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
MODELS: Final = {"qwen3-0.6b": QWEN3_06B, "llama-8b": LLAMA_8B}
SHAPES: Final = MODELS | {"qwen3-30b-a3b": QWEN3_30B_A3B}
# Replaced in a dry run.
_TINY: Final = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
}
_TINY_EXPERTS: Final = {"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}
# Twice the bits of a weight with its share of the scales. Embeddings and logits stay in 16 bits.
_BITS: Final = {"none": 32, "int8": 17, "fp8": 16, "int4": 9}
MAX_SEQS: Final = 256
# A context of 128k tokens, and what is generated after it.
_LONGEST: Final = 131_072 + 1024


@dataclass(frozen=True)
class ExpertBytes:
    """``bytes`` of all experts of all layers, of which each token takes ``top_k`` of ``count``."""

    bytes: int
    count: int
    top_k: int

    def unused(self, rows: int) -> float:
        """Return the bytes of those that none of ``rows`` tokens takes, if each chooses evenly."""
        return self.bytes * (1 - self.top_k / self.count) ** rows

    @property
    def idle(self) -> float:
        """Bytes that are not multiplied for a token."""
        return self.bytes * (1 - self.top_k / self.count)


NO_EXPERTS: Final = ExpertBytes(0, 1, 1)


@dataclass(frozen=True)
class Subject:
    """A model that is loaded. ``products``: bytes of all matrices in 16 bits, the last of which
    (``head``) is multiplied only for tokens that are sampled; ``read``: as they are stored.
    ``attention``: operations for a pair of a query and a key, in all layers."""

    runner: ModelRunner | ParallelRunner
    products: int
    read: int
    head: int
    kv_bytes_per_token: int
    attention: int
    vocab_size: int
    block_size: int
    slowdown: float  # that a server allows prompts
    experts: ExpertBytes = NO_EXPERTS

    def decode_floor(self, contexts: Items[int], ceilings: Ceilings) -> float:
        """Return the least time of a step of one token for each of ``contexts``."""
        rows = len(contexts)
        products = ceilings.floor(
            moved=self.read - self.experts.unused(rows),
            computed=(self.products - self.experts.idle) * rows,
        )
        return products + ceilings.floor(
            moved=sum(contexts) * self.kv_bytes_per_token,
            computed=sum(contexts) * self.attention,
        )

    def prefill_operations(self, tokens: int, behind: int = 0) -> float:
        """Return those of a prompt's part up to its first token. Two bytes an element, and two
        operations for each."""
        pairs = tokens * behind + tokens * (tokens + 1) / 2
        active = self.products - self.experts.idle
        return (active - self.head) * tokens + self.head + self.attention * pairs


def shape_of(name: str, machine: Machine) -> dict[str, Any]:
    shape = SHAPES[name]
    if not machine.dry:
        return shape
    return shape | _TINY | (_TINY_EXPERTS if "num_experts" in shape else {})


def config_of(
    shape: dict[str, Any], machine: Machine, directory: str, **settings: Any
) -> EngineConfig:
    """Return the configuration of a model of random weights, which is described in ``directory``
    from now on."""
    Path(directory, "config.json").write_text(json.dumps(shape))
    defaults: dict[str, Any] = {
        "device": machine.device.type,
        "max_model_len": machine.size(_LONGEST, 256),
        "max_num_seqs": machine.size(MAX_SEQS, 8),
        "max_num_batched_tokens": machine.size(8192, 64),
        "block_size": 16,
        "num_kv_blocks": 96 if machine.dry else None,
        "async_scheduling": True,
    }
    return EngineConfig(
        model=directory, load_format="dummy", gpu_path="triton", **(defaults | settings)
    )


def subject_of(
    shape: dict[str, Any], config: EngineConfig, runner: ModelRunner | ParallelRunner
) -> Subject:
    """Return the model with the bytes and operations of one rank."""
    ranks = config.tensor_parallel_size
    head = 2 * shape["vocab_size"] * shape["hidden_size"]
    read = 2 * runner.info.num_parameters - (0 if shape["tie_word_embeddings"] else head)
    kv_size = shape["num_hidden_layers"] * shape["num_key_value_heads"] * shape["head_dim"]
    query_size = shape["num_hidden_layers"] * shape["num_attention_heads"] * shape["head_dim"]
    experts = NO_EXPERTS
    if "num_experts" in shape:
        each = 3 * 2 * shape["hidden_size"] * shape["moe_intermediate_size"]
        count = shape["num_experts"]
        total = each * count * shape["num_hidden_layers"] // ranks
        experts = ExpertBytes(total, count, shape["num_experts_per_tok"])
    element = 1 if config.kv_cache_dtype == "fp8" else 2
    return Subject(
        runner,
        products=read // ranks,
        read=(head + (read - head) * _BITS[config.quantization] // 32) // ranks,
        head=head // ranks,
        kv_bytes_per_token=2 * element * kv_size // ranks,
        attention=4 * query_size // ranks,
        vocab_size=shape["vocab_size"],
        block_size=runner.info.block_size,
        slowdown=config.max_decode_slowdown,
        experts=experts,
    )


def load(
    shape: dict[str, Any], machine: Machine, **settings: Any
) -> tuple[Subject, dict[str, float]]:
    """Return the model and the seconds that each phase of its start took."""
    times = {"total_s": time.perf_counter()}

    def on_progress(phase: str, done: int, total: int) -> None:
        times.setdefault(f"{phase}_s", time.perf_counter())
        if done == total:
            times[f"{phase}_s"] = time.perf_counter() - times[f"{phase}_s"]

    with tempfile.TemporaryDirectory() as directory:
        config = config_of(shape, machine, directory, **settings)
        runner = load_model_runner(config, on_progress)
    times["total_s"] = time.perf_counter() - times["total_s"]
    if config.kv_cache_dtype == "auto":
        # Not zeros, which are faster to read than real contents.
        assert isinstance(runner._cache, PagedKVCache)
        with torch.inference_mode():
            for layer in range(shape["num_hidden_layers"]):
                runner._cache.layer(layer).normal_()
    subject = subject_of(shape, config, runner)
    return subject, {name: round(value, 2) for name, value in times.items()}
