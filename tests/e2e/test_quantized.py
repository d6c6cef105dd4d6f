"""``quire serve DIRECTORY`` serves a quantized checkpoint, and says how its weights are stored."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pocket import MODEL_DIR
from tests.e2e.quire_server import QuireServer
from tests.e2e.test_gguf import answer_of

GROUP = 32


def written(directory: Path) -> Path:
    """pocket's linear maps as 8-bit integers, in groups of inputs."""
    shutil.copytree(MODEL_DIR, directory)
    path = directory / "model.safetensors"
    stored: dict[str, Tensor] = {}
    for name, weight in load_file(path).items():
        if not name.endswith("_proj.weight"):
            stored[name] = weight
            continue
        groups = weight.float().view(weight.shape[0], -1, GROUP)
        scales = (groups.abs().amax(2) / 127).half()
        codes = (groups / scales.float().unsqueeze(2)).round().clamp(-128, 127)
        stored[name] = codes.to(torch.int8).view(weight.shape)
        stored[f"{name}_scale"] = scales
    save_file(stored, path)
    weights = {"num_bits": 8, "type": "int", "strategy": "group", "group_size": GROUP}
    config = json.loads((directory / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.fixture(scope="module")
def quantized_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuireServer]:
    directory = written(tmp_path_factory.mktemp("models") / "pocket-int8")
    with QuireServer(str(directory)) as running:
        yield running


def test_the_answer_is_that_of_the_original(
    server: QuireServer, quantized_server: QuireServer
) -> None:
    name, found = answer_of(quantized_server)
    assert name == "pocket-int8"
    assert found
    assert found == answer_of(server)[1]


def test_it_says_how_weights_are_stored(quantized_server: QuireServer) -> None:
    said = "compressed-tensors, int8, groups of 32"
    [card] = json.loads(quantized_server.get("/v1/models")[1])["data"]
    assert card["quantization"] == said
    assert json.loads(quantized_server.get("/health")[1])["engine"]["quantization"] == said
    assert any(f'quantization="{said}"' in key for key in quantized_server.metrics())
    assert f"{said}: " in quantized_server.output()
