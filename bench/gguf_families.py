"""Does llama.cpp read the same model from a GGUF file as we do, and as transformers from its
checkpoint?

    make develop; make peers             # once; llama.cpp is in a separate environment
    python -m bench.gguf_families

For each family, a file of tiny random float32 weights, written by the tests. Printed: how far our
logits and llama.cpp's are from those of transformers, as a share of their range: each token's
largest difference, as the median and the maximum over tokens; our log-probabilities of a prompt's
tokens, where transformers' code computes the checkpoint too. (Where two experts have nearly the
same score, rounding decides which one is chosen. llama.cpp ignores the sliding windows of Phi-3
and StarCoder2.)
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from bench.cpu_peers import ROOT
from bench.fidelity import directory_of, their_logits
from bench.report import print_table, write_result
from tests.engine.driving import Engine
from tests.engine.gguf.directories import all_logits
from tests.engine.gguf.family_files import FAMILY_FILES
from tests.engine.gguf.making import write_gguf
from tests.engine.plugin.families import (
    DEEP_GGUF_KINDS,
    GGUF_KINDS,
    NATIVE_GGUF_KINDS,
    save_family,
)
from tests.engine.plugin.test_tensors import differences as of_log_probabilities
from tests.engine.tiny_models import VOCABULARY, save_model

# llama.cpp reads these only at published depths: DeepSeek without latent queries at 26 or 27
# layers, Cohere's norms of queries and keys and EXAONE's sliding window at 64, Gemma 3n with 20
# layers that have keys. It scores DeepSeek V2's groups of experts like V3's.
NOT_IN_LLAMA_CPP = {
    *("deepseek_v2#files", "deepseek_v3#queries", "cohere#norms", "exaone4#files"),
    "gemma3n_text#files",
}
LENGTHS = (40, 300)  # the longer one exceeds the original context of phi3_long


def differences(name: str, found: Tensor, expected: Tensor) -> dict[str, float]:
    each = (found - expected).abs().amax(-1) / (expected.max() - expected.min())
    return {f"{name}, median": float(each.median()), f"{name}, largest": float(each.max())}


def measure_plugin(kind: str, peers: Path, folder: Path) -> dict[str, Any]:
    """Measure a family of which transformers' code computes checkpoints."""
    model: Any = save_family(kind, folder / "original")
    path = write_gguf(folder / "original", folder / "tiny.gguf", tokenizer=False)
    vocabulary = model.config.vocab_size
    tokens = random.Random(0).choices(range(vocabulary), k=LENGTHS[0])
    with torch.inference_mode():
        expected = model(torch.tensor([tokens])).logits[0]
    engine = Engine(directory_of(path, folder), cpu_path="torch")
    ours = of_log_probabilities(engine, model)
    return {
        "family": kind,
        "ours, median": median(ours),
        "ours, largest": max(ours),
        **differences("llama.cpp", their_logits(path, [tokens], peers, folder), expected),
    }


def measure(name: str, peers: Path, folder: Path) -> dict[str, Any]:
    chance = random.Random(0)
    texts = [chance.choices(range(VOCABULARY), k=length) for length in LENGTHS]
    model: Any = save_model(FAMILY_FILES[name], folder / "original")
    path = write_gguf(folder / "original", folder / f"{name}.gguf", tokenizer=False)
    with torch.inference_mode():
        expected = torch.cat([model(torch.tensor([tokens])).logits[0] for tokens in texts])
    directory = directory_of(path, folder)
    ours = torch.cat([all_logits(directory, torch.tensor(tokens)) for tokens in texts])
    theirs = their_logits(path, texts, peers, folder)
    return {
        "family": name,
        **differences("ours", ours, expected),
        **differences("llama.cpp", theirs, expected),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    kinds = (*GGUF_KINDS, *DEEP_GGUF_KINDS, *NATIVE_GGUF_KINDS)
    names = [*FAMILY_FILES, *(kind for kind in kinds if kind not in NOT_IN_LLAMA_CPP)]
    parser.add_argument("--families", nargs="+", choices=names, default=names)
    parser.add_argument("--peers", type=Path, default=ROOT / "build" / "peers")
    options = parser.parse_args()
    rows = []
    for name in options.families:
        with tempfile.TemporaryDirectory() as folder:
            measured = measure if name in FAMILY_FILES else measure_plugin
            rows.append(measured(name, options.peers, Path(folder)))
    print_table(rows)
    print(write_result("gguf_families", rows))


if __name__ == "__main__":
    main()
