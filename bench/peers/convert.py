"""Converts a checkpoint to the peers' formats: ``convert gguf TYPE MODEL OUT``, ``convert openvino
MODEL OUT``. The checkpoint is a Qwen3 model in Hugging Face format, with tied embeddings."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# llama.cpp's names of the parts of a Hugging Face layer.
LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OTHER_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}


def gguf_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in OTHER_NAMES:
        return f"{OTHER_NAMES[stem]}.weight"
    layer, _, part = stem.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{LAYER_NAMES[part]}.weight"


# Those that only llama.cpp itself makes, from a bf16 file, by the number of its file type.
MADE_BY_LLAMA_CPP = {"q4_k_m": 15}


def to_gguf(kind: str, model: Path, out: Path) -> None:
    if kind in MADE_BY_LLAMA_CPP:
        halved = out.with_name(f"{out.name}.bf16")
        to_gguf("bf16", model, halved)
        quantised_by_llama_cpp(halved, out, MADE_BY_LLAMA_CPP[kind])
        halved.unlink()
        return
    import gguf
    from safetensors.torch import load_file

    config: dict[str, Any] = json.loads((model / "config.json").read_text())
    quantised = getattr(gguf.GGMLQuantizationType, kind.upper())
    writer = gguf.GGUFWriter(str(out), "qwen3")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(rope_theta(config))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(getattr(gguf.LlamaFileType, FILE_TYPES[kind]))
    for name, tensor in load_file(model / "model.safetensors").items():
        values = tensor.float().numpy()
        if values.ndim == 1:
            writer.add_tensor(gguf_name(name), values)
        else:
            packed = gguf.quants.quantize(values, quantised)
            writer.add_tensor(gguf_name(name), packed, raw_dtype=quantised)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


FILE_TYPES = {
    "f32": "ALL_F32",
    "f16": "MOSTLY_F16",
    "bf16": "MOSTLY_BF16",
    "q8_0": "MOSTLY_Q8_0",
    "q4_0": "MOSTLY_Q4_0",
}


def quantised_by_llama_cpp(source: Path, out: Path, file_type: int) -> None:
    import ctypes

    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = file_type
    if llama_cpp.llama_model_quantize(
        str(source).encode(), str(out).encode(), ctypes.byref(params)
    ):
        raise SystemExit(f"llama.cpp could not quantize {source}")


def rope_theta(config: dict[str, Any]) -> float:
    """Newer configurations have it in a separate table."""
    parameters = config.get("rope_parameters") or {}
    return float(config.get("rope_theta") or parameters["rope_theta"])


def to_openvino(model: Path, out: Path) -> None:
    """OpenVINO's pipeline needs a tokenizer, but these models have no vocabulary: create one whose
    words are the token ids."""
    import openvino
    from openvino_tokenizers import convert_tokenizer
    from optimum.intel import OVModelForCausalLM
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    size = json.loads((model / "config.json").read_text())["vocab_size"]
    words = Tokenizer(models.WordLevel({str(i): i for i in range(size)}, "0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = dict(zip(("unk_token", "bos_token", "eos_token", "pad_token"), "0120", strict=True))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **special)
    OVModelForCausalLM.from_pretrained(model, export=True, compile=False).save_pretrained(out)
    encoder, decoder = convert_tokenizer(tokenizer, with_detokenizer=True)
    openvino.save_model(encoder, out / "openvino_tokenizer.xml")
    openvino.save_model(decoder, out / "openvino_detokenizer.xml")


def main() -> None:
    match sys.argv[1:]:
        case ["gguf", kind, model, out]:
            to_gguf(kind, Path(model), Path(out))
        case ["openvino", model, out]:
            to_openvino(Path(model), Path(out))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
