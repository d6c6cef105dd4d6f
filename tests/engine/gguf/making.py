"""Writes checkpoints as GGUF files, by the format's own library, as llama.cpp's converter does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from engine.gguf.container import GgufHeader
from engine.gguf.names import ROPE_FACTORS
from engine.gguf.parts import read_gguf_header
from tests.engine.gguf.file_keys import add_family
from tests.engine.gguf.file_names import architecture_of, count_layers, in_hub_layout
from tests.engine.gguf.file_tensors import file_tensors
from tests.engine.gguf.mixture_files import add_apertus

# Matrices that stay in F32.
_IN_FLOATS = {
    *("altup_correct_coef", "altup_predict_coef"),
    *("attn_k_norm", "attn_q_norm", "conv", "ffn_gate_inp"),
    *("ssm_a", "ssm_conv1d", "ssm_d", "ssm_norm"),
    *("ssm_conv1d_k", "ssm_conv1d_q", "ssm_conv1d_v"),
}


def write_gguf(
    directory: Path,
    path: Path,
    kind: str = "F32",
    *,
    kinds: Mapping[str, str] | None = None,
    tokenizer: bool = True,
    rope_factors: Tensor | None = None,
    most_tensors: int = 0,
    keys_apart: bool = False,
) -> Path:
    """Write the checkpoint in ``directory``: matrices as ``kind``, or as ``kinds`` says by name;
    the rest as F32. ``rope_factors``: instead of the configuration's. ``most_tensors``: in each of
    several files, of which the path of the first is returned; 0: one file has all. ``keys_apart``:
    the first has no tensors."""
    config = in_hub_layout(json.loads((directory / "config.json").read_text()))
    tensors = load_file(directory / "model.safetensors")
    architecture = architecture_of(config)
    writer = gguf.GGUFWriter(
        path, architecture, split_max_tensors=most_tensors, small_first_shard=keys_apart
    )
    _add_config(writer, config)
    if tokenizer:
        _add_tokenizer(writer, directory, config)
    else:
        writer.add_tokenizer_model("none")
    if architecture == "apertus":
        add_apertus(writer, tensors, config["num_hidden_layers"])
    if rope_factors is not None:
        writer.add_tensor(ROPE_FACTORS, rope_factors.numpy())
    for name, stored, values in file_tensors(tensors, config):
        if stored == ROPE_FACTORS and rope_factors is not None:
            continue
        is_matrix = values.dim() > 1 and not stored.endswith(".bias")
        is_small = stored.removesuffix(".weight").rpartition(".")[2] in _IN_FLOATS
        wanted = (kinds or {}).get(name, kind) if is_matrix and not is_small else "F32"
        dtype = getattr(gguf.GGMLQuantizationType, wanted)
        if wanted == "BF16":
            data = values.bfloat16().view(torch.uint8).numpy()
        else:
            data = gguf.quantize(values.numpy(), dtype)
        writer.add_tensor(stored, data, raw_dtype=dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    count = len(writer.tensors)
    return path if count == 1 else path.with_name(f"{path.stem}-00001-of-{count:05d}.gguf")


def write_header(
    folder: Path,
    architecture: str,
    keys: Mapping[str, float | list[bool]] | None = None,
    tensors: Mapping[str, np.ndarray] | None = None,
) -> GgufHeader:
    """Write a file with these keys of the architecture, and return its header."""
    writer = gguf.GGUFWriter(folder / "t.gguf", architecture)
    for name, value in (keys or {}).items():
        key = f"{architecture}.{name}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_uint32(key, value)
    for name, values in (tensors or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read_gguf_header(folder / "t.gguf")


def _add_config(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_name("tiny")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(count_layers(config))
    if "intermediate_size" in config:
        writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    names = ("layer_norm_eps", "norm_epsilon")
    if (epsilon := next((config[name] for name in names if name in config), None)) is not None:
        writer.add_layer_norm_eps(epsilon)
    else:
        of_rms = ("rms_norm_eps", "norm_eps", "layer_norm_epsilon")
        writer.add_layer_norm_rms_eps(next(config[name] for name in of_rms if name in config))
    rope = config.get("rope_parameters") or {}
    rope = rope.get("full_attention", rope)
    writer.add_rope_freq_base(rope.get("rope_theta", config.get("rope_theta", 10000.0)))
    if rope.get("rope_type") in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
        if rope["rope_type"] == "yarn":
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
            if "attention_factor" in rope:
                writer.add_rope_scaling_yarn_attn_factor(rope["attention_factor"])
    writer.add_vocab_size(config["vocab_size"])
    add_family(writer, config)


def _add_tokenizer(writer: gguf.GGUFWriter, directory: Path, config: dict[str, Any]) -> None:
    whole = (directory / "tokenizer.json").read_text()
    made = json.loads(whole)
    texts = {number: text for text, number in made["model"]["vocab"].items()}
    texts |= {one["id"]: one["content"] for one in made["added_tokens"]}
    special = {one["id"] for one in made["added_tokens"]}
    size = config["vocab_size"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([texts.get(number, f"[PAD{number}]") for number in range(size)])
    writer.add_token_types(
        [
            gguf.TokenType.CONTROL
            if number in special
            else gguf.TokenType.NORMAL
            if number in texts
            else gguf.TokenType.UNUSED
            for number in range(size)
        ]
    )
    writer.add_token_merges([" ".join(merge) for merge in made["model"]["merges"]])
    names = json.loads((directory / "tokenizer_config.json").read_text())
    numbers = {text: number for number, text in texts.items()}
    if names.get("eos_token"):
        writer.add_eos_token_id(numbers[names["eos_token"]])
    if names.get("pad_token"):
        writer.add_pad_token_id(numbers[names["pad_token"]])
    writer.add_add_bos_token(False)
    template = directory / "chat_template.jinja"
    if template.exists():
        writer.add_chat_template(template.read_text())
    # Its pattern is of no known family.
    writer.add_string("tokenizer.huggingface.json", whole)
