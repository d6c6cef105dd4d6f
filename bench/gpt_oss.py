"""Layers of gpt-oss-20b on this machine's CPU, compared with the time to read their weights.

    python -m bench.gpt_oss                # one and two threads

Two layers in the shape of the 20b, with random weights in its own format (experts in MXFP4, the
rest in bfloat16) and a small vocabulary, run by the whole engine core. A round measures the rate at
which memory is read (``bench.peers.machine_limits``), and steps of one and of ``--batch``
sequences. A round's figure is its fastest step's; the table has medians over rounds.

floor: the time to read, at that rate, the weights that a step needs as the checkpoint stores them.
One row needs its 4 experts of each layer; ``--batch`` rows need those that they hit if each chooses
at random.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import GptOssConfig

from bench.mixtures import Ours
from bench.peers.machine_limits import Machine
from bench.report import print_table, write_result
from engine.config import EngineConfig

LAYERS = 2
VOCABULARY = 1024
HIDDEN = 2880
INNER = 2880
HEADS, KV_HEADS, HEAD_DIM = 64, 8, 64
EXPERTS, CHOSEN = 32, 4
MXFP4_BITS = 4.25
MAX_POSITIONS = 512


def write_checkpoint(directory: Path) -> None:
    config = GptOssConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        num_local_experts=EXPERTS,
        num_experts_per_tok=CHOSEN,
        layer_types=["sliding_attention", "full_attention"],
        architectures=["GptOssForCausalLM"],
        dtype="bfloat16",
        eos_token_id=1,
    )
    config.save_pretrained(directory)
    path = directory / "config.json"
    said = json.loads(path.read_text())
    said["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": []}
    path.write_text(json.dumps(said))
    chance = torch.Generator().manual_seed(0)

    def floats(*shape: int) -> Tensor:
        return (torch.randn(shape, generator=chance) * 0.02).bfloat16()

    def octets(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=chance, dtype=torch.uint8)

    stored = {
        "model.embed_tokens.weight": floats(VOCABULARY, HIDDEN),
        "lm_head.weight": floats(VOCABULARY, HIDDEN),
        "model.norm.weight": torch.ones(HIDDEN).bfloat16(),
    }
    for number in range(LAYERS):
        prefix = f"model.layers.{number}."
        attention = prefix + "self_attn."
        for name, outputs in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            stored[f"{attention}{name}_proj.weight"] = floats(outputs * HEAD_DIM, HIDDEN)
            stored[f"{attention}{name}_proj.bias"] = floats(outputs * HEAD_DIM)
        stored[attention + "o_proj.weight"] = floats(HIDDEN, HEADS * HEAD_DIM)
        stored[attention + "o_proj.bias"] = floats(HIDDEN)
        stored[attention + "sinks"] = floats(HEADS)
        for name in ("input_layernorm", "post_attention_layernorm"):
            stored[f"{prefix}{name}.weight"] = torch.ones(HIDDEN).bfloat16()
        stored[prefix + "mlp.router.weight"] = floats(EXPERTS, HIDDEN)
        stored[prefix + "mlp.router.bias"] = floats(EXPERTS)
        for name, outputs, inputs in (
            ("gate_up_proj", 2 * INNER, HIDDEN),
            ("down_proj", HIDDEN, INNER),
        ):
            own = f"{prefix}mlp.experts.{name}"
            stored[own + "_blocks"] = octets(0, 256, EXPERTS, outputs, inputs // 32, 16)
            stored[own + "_scales"] = octets(118, 122, EXPERTS, outputs, inputs // 32)
            stored[own + "_bias"] = floats(EXPERTS, outputs)
    save_file(stored, directory / "model.safetensors", metadata={"format": "pt"})


def bytes_read(rows: int) -> float:
    """Return the bytes of weights that a step of ``rows`` sequences needs, on average."""
    hit = EXPERTS * (1 - (1 - CHOSEN / EXPERTS) ** rows)
    experts = hit * 3 * HIDDEN * INNER * MXFP4_BITS / 8
    attention = HIDDEN * HEAD_DIM * (2 * HEADS + 2 * KV_HEADS) * 2
    return LAYERS * (experts + attention) + VOCABULARY * HIDDEN * 2


def measure(options: argparse.Namespace, directory: str, threads: int) -> dict[str, Any]:
    """Return the table's row for so many threads."""
    torch.set_num_threads(threads)
    machine = Machine()
    settings = EngineConfig(
        model=directory,
        device="cpu",
        threads=threads,
        max_num_seqs=options.batch,
        max_model_len=MAX_POSITIONS,
    )
    ours = Ours(settings, options.batch, VOCABULARY)
    rounds = []
    for _ in range(options.rounds):
        read = machine.limits(threads).read
        one, many = (min(ours.steps(rows, options.steps)) for rows in (1, options.batch))
        floors = [bytes_read(rows) / read for rows in (1, options.batch)]
        rounds.append(
            {
                "GB/s": read / 1e9,
                "1 row, ms a layer": one / LAYERS * 1e3,
                "floor, ms": floors[0] / LAYERS * 1e3,
                "of floor": floors[0] / one,
                f"{options.batch} rows, ms a layer": many / LAYERS * 1e3,
                "of its floor": floors[1] / many,
                "times": options.batch * one / many,
            }
        )
    return {"threads": threads} | {
        key: statistics.median(each[key] for each in rounds) for key in rounds[0]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8, help="of each kind in a round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        write_checkpoint(Path(directory))
        rows = [measure(options, directory, threads) for threads in options.threads]
    print_table(rows)
    print(write_result("gpt_oss", rows, batch=options.batch))


if __name__ == "__main__":
    main()
