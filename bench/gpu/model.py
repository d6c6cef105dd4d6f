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
MODELS: Final = {"qwen3-0.6b": QWEN3_06B, "llama-8b": LLAMA_8B}
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
# Twice the bits of a weight with its share of the scales. Embeddings and logits stay in 16 bits.
_BITS: Final = {"none": 32, "int8": 17, "int4": 9}
MAX_SEQS: Final = 256
# A context of 128k tokens, and what is generated after it.
_LONGEST: Final = 131_072 + 1024


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

    def decode_floor(self, contexts: Items[int], ceilings: Ceilings) -> float:
        """Return the least time of a step of one token for each of ``contexts``."""
        products = ceilings.floor(moved=self.read, computed=self.products * len(contexts))
        return products + ceilings.floor(
            moved=sum(contexts) * self.kv_bytes_per_token,
            computed=sum(contexts) * self.attention,
        )

    def prefill_operations(self, tokens: int, behind: int = 0) -> float:
        """Return those of a prompt's part up to its first token. Two bytes an element, and two
        operations for each."""
        pairs = tokens * behind + tokens * (tokens + 1) / 2
        return (self.products - self.head) * tokens + self.head + self.attention * pairs


def shape_of(name: str, machine: Machine) -> dict[str, Any]:
    return MODELS[name] | (_TINY if machine.dry else {})


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
