"""Model shapes that benchmarks run with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import Qwen3Config

SHAPES: dict[str, dict[str, Any]] = {
    "pocket": {
        "vocab_size": 1280,
        "hidden_size": 192,
        "intermediate_size": 512,
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
    "13m": {
        "vocab_size": 8192,
        "hidden_size": 384,
        "intermediate_size": 1152,
        "num_hidden_layers": 6,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
    },
    "234m": {
        "vocab_size": 32000,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 16,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
    },
    "1b": {
        "vocab_size": 32000,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 20,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
}


def shape_config(name: str, max_positions: int) -> Qwen3Config:
    return Qwen3Config(
        head_dim=64,
        max_position_embeddings=max_positions,
        tie_word_embeddings=True,
        architectures=["Qwen3ForCausalLM"],
        **SHAPES[name],
    )


def save_shape(name: str, directory: Path, *, max_positions: int) -> None:
    """Write a model directory without weights (for ``--load-format dummy``)."""
    shape_config(name, max_positions).save_pretrained(directory)
