"""``python -m tests.engine.plugin.loading_memory KIND``: what loading takes besides the weights.

Writes a checkpoint of about 1 GB of random bfloat16 weights, loads it in another process, and
prints the peak memory of loading as a multiple of the weights that the model then keeps.
"""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from engine.cpu.library import library
from engine.plugin.loading import loaded_model
from engine.plugin.products import Products, weight_bytes
from engine.plugin.reading import read_plugin_config

_SIZES: dict[str, dict[str, Any]] = {
    "olmo2": {
        "hidden_size": 1536,
        "intermediate_size": 4608,
        "num_hidden_layers": 14,
        "num_attention_heads": 12,
        "num_key_value_heads": 12,
        "vocab_size": 32_000,
    },
    "olmoe": {
        "hidden_size": 768,
        "intermediate_size": 512,
        "num_hidden_layers": 14,
        "num_attention_heads": 12,
        "num_key_value_heads": 12,
        "num_experts": 24,
        "vocab_size": 32_000,
    },
}
KINDS = tuple(_SIZES)


def write_checkpoint(kind: str, directory: Path) -> None:
    config = AutoConfig.for_model(kind, **_SIZES[kind])
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        parameter.data.view(-1)[:] = torch.randn(1 << 16, dtype=torch.bfloat16).repeat(
            -(-parameter.numel() // (1 << 16))
        )[: parameter.numel()]
    model.save_pretrained(directory, max_shard_size="300MB")


def peak_share(kind: str) -> float:
    """Return the peak of memory while loading, as a multiple of the weights kept."""
    with tempfile.TemporaryDirectory() as folder:
        for step in ("write", "load"):
            command = [sys.executable, "-m", __spec__.name, kind, step, folder]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(out.split()[-1])


def _load(directory: Path) -> float:
    config = read_plugin_config(directory)
    products = Products(library(), torch.get_num_threads())
    gc.collect()
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
    model = loaded_model(config, directory, torch.device("cpu"), torch.float32, products)
    return (_memory("VmHWM") - before) / weight_bytes(model)


def _memory(name: str) -> int:
    """Return bytes."""
    found = re.search(rf"{name}:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


if __name__ == "__main__":
    given = sys.argv[1:]
    if len(given) == 1:
        print(f"{given[0]}: {peak_share(given[0]):.2f} times the weights")
    elif given[1] == "write":
        write_checkpoint(given[0], Path(given[2]))
    else:
        print(_load(Path(given[2])))
