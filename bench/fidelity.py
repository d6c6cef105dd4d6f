"""How far are logits of a GGUF file from exact ones, ours and llama.cpp's?

    make peers                       # once: llama.cpp, in a separate environment
    python -m bench.fidelity         # pocket, and 234M random weights, as Q8_0 and Q4_K_M

Exact: the file's dequantized weights multiplied in float64. ``KL``: mean over tokens of the
divergence of the second distribution from the first, in nats; ``agree``: share of tokens with the
same most likely next one; ``error``: root mean square difference of the logits from the exact ones,
relative to how much these vary over the vocabulary.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from bench.cpu_peers import ROOT, converted
from bench.gguf_directory import write_gguf_directory
from bench.report import print_table, write_result
from engine.architecture.config import ModelConfig, load_model_config
from engine.attention.cache import PagedKVCache
from engine.attention.layout import Rows
from engine.cpu.library import library
from engine.gguf.names import LINK
from engine.gguf.weights import GgufWeights
from engine.run.loader import DecoderOptions, LoadSettings, load_decoder, parameter_shapes
from pocket import MODEL_DIR
from pocket.gates import gates

CPU = torch.device("cpu")
BLOCK_SIZE = 16
LONGEST = 512
KINDS = ("q8_0", "q4_k_m")
Sequences = list[list[int]]


def pocket_texts(count: int) -> Sequences:
    """Return questions of pocket's gates with the answers hoped for."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL_DIR)
    cases = [case for gate in gates(count) for case in gate.cases]
    random.Random(0).shuffle(cases)
    found = []
    for case in cases:
        prompt = tokenizer.apply_chat_template(
            case.messages,
            tools=[*case.tools] or None,
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=case.enable_thinking,
        )
        answer = "" if case.tools or case.enable_thinking else case.expected
        tokens = tokenizer(str(prompt) + answer)["input_ids"]
        if len(tokens) <= LONGEST:
            found.append(tokens)
    return found[:count]


def random_texts(count: int, vocabulary: int) -> Sequences:
    chance = random.Random(0)
    return [chance.choices(range(3, vocabulary), k=128) for _ in range(count)]


def pocket_file(kind: str, peers: Path, folder: Path) -> Path:
    out = folder / f"pocket-{kind}.gguf"
    command = [str(peers / "bin" / "python"), "-m", "bench.peers.convert", "gguf", kind]
    subprocess.run([*command, str(MODEL_DIR), str(out)], cwd=ROOT, check=True, capture_output=True)
    return out


def directory_of(path: Path, folder: Path) -> Path:
    made = folder / path.stem
    made.mkdir()
    write_gguf_directory(path, made)
    return made


def exact_logits(directory: Path, config: ModelConfig, texts: Sequences) -> Tensor:
    """Return float64 [tokens, vocabulary]."""
    stated = json.loads((directory / "config.json").read_text())
    made = AutoConfig.for_model("qwen3", **stated)
    model: Any = AutoModelForCausalLM.from_config(made).double()  # type: ignore[no-untyped-call]
    shapes = parameter_shapes(config)
    with GgufWeights(
        directory / LINK,
        shapes,
        head_dim=config.head_dim,
        dtype=torch.float32,
        device=CPU,
        progress=lambda done, total: None,
    ) as source:
        state = {name: source.tensor(name).double() for name in shapes}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert set(missing) <= {"lm_head.weight"}, missing  # tied
    model.tie_weights()
    with torch.inference_mode():
        return torch.cat([model(torch.tensor([tokens])).logits[0] for tokens in texts])


def our_logits(directory: Path, config: ModelConfig, texts: Sequences) -> Tensor:
    """Return float32 [tokens, vocabulary]."""
    settings = LoadSettings(directory, torch.float32, CPU, lambda phase, done, total: None)
    options = DecoderOptions(max_positions=LONGEST, library=library())
    blocks = LONGEST // BLOCK_SIZE
    found = []
    with torch.inference_mode():
        decoder = load_decoder(config, settings, options).decoder
        cache = PagedKVCache(
            num_layers=config.num_layers,
            num_blocks=blocks,
            num_kv_heads=config.num_kv_heads,
            block_size=BLOCK_SIZE,
            head_dim=config.head_dim,
            dtype=torch.float32,
            device=CPU,
        )
        for tokens in texts:
            count = len(tokens)
            layout = Rows(
                torch.arange(blocks).unsqueeze(0), torch.zeros(count, dtype=torch.int64), count
            )
            states = decoder.hidden_states(
                torch.tensor(tokens), torch.arange(count), cache, layout, None
            )
            found.append(decoder.logits(states))
    return torch.cat(found)


def their_logits(path: Path, texts: Sequences, peers: Path, folder: Path) -> Tensor:
    tokens, out = folder / "tokens.json", folder / "logits.npy"
    tokens.write_text(json.dumps(texts))
    python = str(peers / "bin" / "python")
    command = [python, "-m", "bench.peers.llama_cpp_logits", str(path), str(tokens), str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return torch.from_numpy(np.load(out))


def divergence(first: Tensor, second: Tensor) -> float:
    one, other = (each.double().log_softmax(-1) for each in (first, second))
    return float((one.exp() * (one - other)).sum(-1).mean())


def agreement(first: Tensor, second: Tensor) -> float:
    return float((first.argmax(-1) == second.argmax(-1)).double().mean())


def error(found: Tensor, exact: Tensor) -> float:
    """Of what softmax sees: logits less their mean."""
    centred = [each.double() - each.double().mean(-1, keepdim=True) for each in (found, exact)]
    return float(
        (centred[0] - centred[1]).square().mean().sqrt() / centred[1].square().mean().sqrt()
    )


@dataclass(frozen=True, slots=True)
class Row:
    model: str
    kind: str
    tokens: int
    kl_theirs_ours: float
    agree: float
    agree_exact_ours: float
    agree_exact_theirs: float
    kl_exact_ours: float
    kl_exact_theirs: float
    error_ours: float
    error_theirs: float
    error_ratio: float


def measure(model: str, kind: str, path: Path, texts: Sequences, peers: Path) -> Row:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        directory = directory_of(path, folder)
        config = load_model_config(directory)
        exact = exact_logits(directory, config, texts)
        ours = our_logits(directory, config, texts)
        theirs = their_logits(path, texts, peers, folder)
    return Row(
        model,
        kind,
        len(exact),
        divergence(theirs, ours),
        agreement(theirs, ours),
        agreement(exact, ours),
        agreement(exact, theirs),
        divergence(exact, ours),
        divergence(exact, theirs),
        error(ours, exact),
        error(theirs, exact),
        error(ours, exact) / error(theirs, exact),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", default=["pocket", "234m"])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--texts", type=int, default=60)
    parser.add_argument("--peers", type=Path, default=ROOT / "build" / "peers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for model in options.models:
            for kind in options.kinds:
                if model == "pocket":
                    path = pocket_file(kind, options.peers, Path(name))
                    texts = pocket_texts(options.texts)
                else:
                    path = converted(model, f"gguf {kind}", options.peers)
                    texts = random_texts(4, 32000)
                rows.append(measure(model, kind, path, texts, options.peers))
    table = [asdict(row) for row in rows]
    print_table(table)
    print(write_result("fidelity", table))


if __name__ == "__main__":
    main()
