"""Write a checkpoint as a model directory: `python -m pocket.export --run DIR --out DIR`."""

import argparse
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from pocket.gates import MAX_TOKENS
from pocket.model import Pocket, PocketShape
from pocket.text.mix import SHARES
from pocket.tokenizer import END, STOP
from pocket.train import restored

TEMPLATE: Final = Path(__file__).parent / "template.jinja"
MANIFEST: Final = "MANIFEST.json"
RESPONSE_TEMPLATE: Final[dict[str, Any]] = {
    "version": 1,
    "start_anchor": "<|im_start|>assistant\n",
    "defaults": {"role": "assistant"},
    "fields": {
        "reasoning_content": {"open": "<think>", "close": "</think>", "content": "text"},
        "tool_calls": {
            "open": "<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {
                "type": "function",
                "function": {"name": "{content.name}", "arguments": "{content.arguments}"},
            },
        },
        # The line break between two calls is content too; joined, it does not overwrite the rest.
        "content": {"close": "<|im_end|>", "content": "text", "repeats": True, "join": ""},
    },
}
"""How to read an answer, in the format of transformers 5 (`transformers.utils.chat_parsing`)."""


def config(shape: PocketShape, tokenizer: Tokenizer) -> dict[str, Any]:
    """config.json, with the rotary base spelled both before and after transformers 5."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": shape.positions,
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.theta},
        "tie_word_embeddings": True,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_sliding_window": False,
        "initializer_range": 0.02,
        "use_cache": True,
        "bos_token_id": None,
        "eos_token_id": tokenizer.token_to_id(END),
        "pad_token_id": tokenizer.token_to_id("<|endoftext|>"),
        # The type to compute in; the file holds bfloat16. At this size float32 costs nothing, and
        # in it an answer does not depend on the batch it was computed in.
        "dtype": "float32",
    }


def write(out: Path, model: Pocket, tokenizer: Tokenizer, facts: dict[str, Any]) -> None:
    """Write all files of the model directory; each appears whole, the manifest last."""
    out.mkdir(parents=True, exist_ok=True)
    generation = {
        "eos_token_id": [tokenizer.token_to_id(mark) for mark in STOP],
        "pad_token_id": tokenizer.token_to_id("<|endoftext|>"),
        "max_new_tokens": MAX_TOKENS,
        "do_sample": False,
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": "<|endoftext|>",
        "bos_token": None,
        "unk_token": None,
        "model_max_length": model.shape.positions,
        "clean_up_tokenization_spaces": False,
        "add_bos_token": False,
        "response_template": RESPONSE_TEMPLATE,
    }
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".export-") as name:
        fresh = Path(name)
        weights = {
            key: value.to(torch.bfloat16).contiguous() for key, value in model.state_dict().items()
        }
        save_file(weights, fresh / "model.safetensors", metadata={"format": "pt"})
        tokenizer.save(str(fresh / "tokenizer.json"), pretty=False)
        for file, value in (
            ("config.json", config(model.shape, tokenizer)),
            ("generation_config.json", generation),
            ("tokenizer_config.json", settings),
        ):
            (fresh / file).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
        (fresh / "chat_template.jinja").write_bytes(TEMPLATE.read_bytes())
        for path in sorted(fresh.iterdir()):
            path.chmod(0o644)
            os.replace(path, out / path.name)
    write_manifest(out, facts)


def blend(model: Pocket, other: Mapping[str, Tensor], share: float) -> None:
    """Make the model's weights the average of its own, `share` of it, and those of another.

    A model and its fine-tuned self may be averaged so: the average keeps more of what was learnt
    before, and often answers better what neither was trained on.
    """
    with torch.no_grad():
        for name, own in model.state_dict().items():
            own.lerp_(other[name].float(), 1 - share)


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def generator_digest() -> str:
    """SHA-256 over the generator's sources, names and bytes, in order of name."""
    total = hashlib.sha256()
    for path in sorted((Path(__file__).parent / "text").glob("*.py")):
        total.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def write_manifest(out: Path, facts: dict[str, Any]) -> None:
    """Write or renew the manifest: what is known of the model, and the digests of its files."""
    files = {
        path.name: digest(path)
        for path in sorted(out.iterdir())
        if path.is_file() and path.name != MANIFEST and not path.name.startswith(".")
    }
    partial = out / f".{MANIFEST}.partial"
    partial.write_text(json.dumps({**facts, "files": files}, indent=2, ensure_ascii=False) + "\n")
    os.replace(partial, out / MANIFEST)


def main() -> None:
    """Export a training run's latest checkpoint."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--run", type=Path, required=True, help="--out of the training")
    parser.add_argument("--out", type=Path, required=True, help="model directory to write")
    parser.add_argument("--note", default="", help="a remark for the manifest")
    parser.add_argument("--blend", type=Path, help="model directory to average the run with")
    parser.add_argument("--share", type=float, default=0.5, help="the run's part of that average")
    given = parser.parse_args()
    model, state = restored(given.run / "checkpoint.pt")
    if given.blend:
        blend(model, load_file(given.blend / "model.safetensors"), given.share)
    write(
        given.out,
        model,
        Tokenizer.from_file(str(given.run / "tokenizer.json")),
        {
            "name": "pocket",
            "what": "a protocol-complete demonstration, trained from scratch; not an assistant",
            "parameters": sum(p.numel() for p in model.parameters()),
            "generator_sha256": generator_digest(),
            "seed": state["seed"],
            "steps": state["step"],
            "tokens_seen": state["tokens"],
            "training_seconds": round(state["seconds"]),
            "share_of_run": round(state["share"], 3),
            "mix": SHARES,
            "note": given.note,
            "gates": {},
        },
    )


if __name__ == "__main__":
    main()
