"""Only a rank's part of the weights is read, and every reader gets the same part."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from engine.architecture.config import ModelConfig, load_model_config
from engine.run.loader import parameter_shapes
from engine.sharding.shard import Part, Shard, parts_of
from engine.weights.file import TensorFile
from engine.weights.sharded import ShardedWeights
from engine.weights.weights import CheckpointWeights, RandomWeights
from tests.engine.tiny_models import VARIANTS, save_model


def config_of(name: str, directory: Path) -> ModelConfig:
    save_model(VARIANTS[name], directory)
    return load_model_config(directory)


@pytest.mark.parametrize("name", ["qwen3_tied_biases", "gpt2"])
def test_only_a_rank_s_part_of_a_divided_parameter_is_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(name, tmp_path)
    shapes, shard = parameter_shapes(config), Shard(1, 2)
    divided = parts_of(shapes, config, shard)
    assert len(divided) >= 6 * config.num_layers
    done: list[int] = []

    def opened(parts: dict[str, Part]) -> CheckpointWeights:
        return CheckpointWeights(
            tmp_path,
            shapes,
            unused=["lm_head.weight"],
            dtype=torch.float32,
            device=torch.device("cpu"),
            progress=lambda so_far, total: done.append(so_far),
            parts=parts,
        )

    with opened({}) as checkpoint:
        wholes = {key: checkpoint.tensor(key) for key in shapes}
        total = done[-1]
    read = 0
    real_read = TensorFile.read_into

    def counting_read(file: TensorFile, buffer: memoryview, offset: int) -> None:
        nonlocal read
        with lock:
            read += len(buffer)
        real_read(file, buffer, offset)

    lock = threading.Lock()
    monkeypatch.setattr(TensorFile, "read_into", counting_read)
    with opened(divided) as checkpoint:
        source = ShardedWeights(checkpoint, config, shard)
        parts = {key: source.tensor(key) for key in shapes}
    for key, whole in wholes.items():
        if key in divided:
            dim, ranges = divided[key].dim, divided[key].ranges
            held = torch.cat([whole.narrow(dim, a, b - a) for a, b in ranges], dim)
            assert parts[key].equal(held)
    assert done[-1] == total  # progress covers the whole model
    header = 8 + int.from_bytes((tmp_path / "model.safetensors").read_bytes()[:8], "little")
    assert read == header + sum(part.nbytes for part in parts.values())


def test_random_weights_are_the_same_for_every_reader_and_part(tmp_path: Path) -> None:
    config = config_of("gpt2", tmp_path)
    shapes = parameter_shapes(config)
    source = RandomWeights(
        shapes,
        seed=3,
        dtype=torch.float32,
        device=torch.device("cpu"),
        progress=lambda done, total: None,
    )
    name = "transformer.h.1.mlp.c_fc.weight"
    parts = [ShardedWeights(source, config, Shard(rank, 2)).tensor(name) for rank in range(2)]
    assert torch.cat(parts, dim=1).equal(source.tensor(name))
