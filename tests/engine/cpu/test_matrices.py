"""Fused matrices have the rows of their parts, in few bits where all parts are."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.architecture.config import ModelConfig, load_model_config
from engine.cpu.blocks import packed_blocks
from engine.cpu.integers import IntegerKind
from engine.cpu.library import LibraryUnavailableError, library
from engine.cpu.llama import CompiledLlama
from engine.cpu.matrices import embedded, fused_qkv_matrices, gate_up_matrix
from engine.cpu.packed import PackedWeight, interleaved
from engine.gguf.config import config_json
from engine.gguf.names import LINK
from engine.gguf.parts import read_gguf_header
from engine.gguf.weights import GgufWeights
from engine.messages import SamplingParams
from engine.model.parameters import EMBEDDING, fused_qkv
from engine.run.loader import parameter_shapes
from engine.weights.blocks import BlockRows
from engine.weights.grouped import GroupedWeight
from engine.weights.quantization import QuantisedWeights, matrix, quantise
from tests.engine.driving import Engine, load_runner
from tests.engine.gguf.making import write_gguf
from tests.engine.tiny_models import VARIANTS, VOCABULARY, Variant, save_model

LAYER = 1
MLP = "model.layers.1.mlp."
PANEL = 16


class Source:
    """Random weights, some in few bits."""

    def __init__(self, config: ModelConfig, in_floats: str = "", in_nibbles: str = "") -> None:
        self._config = config
        self._shapes = parameter_shapes(config)
        self._in_floats, self._in_nibbles = in_floats, in_nibbles

    def tensor(self, name: str) -> Tensor:
        chance = torch.Generator().manual_seed(list(self._shapes).index(name))
        values = torch.randn(self._shapes[name], generator=chance)
        return values if self.is_float(name) else quantise(values, self._bits(name)).dequantised()

    def grouped(self, name: str) -> GroupedWeight | None:
        chance = torch.Generator().manual_seed(list(self._shapes).index(name))
        values = torch.randn(self._shapes[name], generator=chance)
        return None if self.is_float(name) else quantise(values, self._bits(name))

    def is_float(self, name: str) -> bool:
        return len(self._shapes[name]) != 2 or (self._in_floats != "" and self._in_floats in name)

    def _bits(self, name: str) -> str:
        return "int4" if self._in_nibbles and self._in_nibbles in name else "int8"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    directory: Path = tmp_path_factory.mktemp("model")
    save_model(VARIANTS["qwen3"], directory)
    return load_model_config(directory)


@pytest.mark.parametrize(
    ("in_floats", "in_nibbles"), [("", ""), ("v_proj", ""), ("_proj", ""), ("", "v_proj")]
)
def test_query_key_and_value_are_fused(
    config: ModelConfig, in_floats: str, in_nibbles: str
) -> None:
    source = Source(config, in_floats, in_nibbles)
    [found] = fused_qkv_matrices(config, source, LAYER)
    assert isinstance(found, GroupedWeight) == (not in_floats)
    values = found.dequantised() if isinstance(found, GroupedWeight) else found
    assert torch.equal(values, fused_qkv(config, source, LAYER, "weight"))


@pytest.mark.parametrize(
    ("in_floats", "in_nibbles"), [("", ""), ("up_proj", ""), ("_proj", ""), ("", "up_proj")]
)
def test_gate_and_up_take_turns(config: ModelConfig, in_floats: str, in_nibbles: str) -> None:
    source = Source(config, in_floats, in_nibbles)
    found = gate_up_matrix(source, MLP, PANEL)
    assert isinstance(found, GroupedWeight) == (not in_floats)
    values = found.dequantised() if isinstance(found, GroupedWeight) else found
    gate, up = (source.tensor(f"{MLP}{name}_proj.weight") for name in ("gate", "up"))
    assert torch.equal(values, interleaved(gate, up, PANEL))


@pytest.mark.parametrize("in_floats", ["", "embed"])
def test_tokens_are_looked_up_in_either_form(config: ModelConfig, in_floats: str) -> None:
    try:
        opened = library()
    except LibraryUnavailableError as error:
        pytest.skip(str(error))
    source = Source(config, in_floats)
    ids = torch.tensor([5, 0, 5, 150])
    for each in (source, QuantisedWeights(source, "int8")):
        expected = each.tensor(EMBEDDING)[ids]
        embedding = matrix(each, EMBEDDING)
        packed = PackedWeight(embedding, None, opened.panel)
        assert torch.equal(embedded(packed, opened, ids), expected)
        if isinstance(embedding, Tensor):
            assert torch.equal(embedded(embedding, opened, ids), expected)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize(
    ("kinds", "in_blocks"),
    [
        ({}, True),
        ({"k_proj": "Q5_0", "up_proj": "Q8_0"}, True),
        ({"v_proj": "Q8_0", "gate_proj": "Q5_0"}, True),
        ({"k_proj": "Q4_1", "up_proj": "Q4_1"}, False),
        ({"q_proj": "F16", "gate_proj": "BF16"}, False),
    ],
)
def test_blocks_of_a_file_give_the_same_weights(
    tmp_path: Path, family: str, kinds: dict[str, str], *, in_blocks: bool
) -> None:
    """As those that are decoded in Python; also rows that a family stores in another order."""
    try:
        opened = library()
    except LibraryUnavailableError as error:
        pytest.skip(str(error))
    save_model(Variant(family, {"intermediate_size": 96, "head_dim": 32}), tmp_path)
    config = load_model_config(tmp_path)
    shapes = parameter_shapes(config)
    named = {name: kind for name in shapes for part, kind in kinds.items() if part in name}
    path = write_gguf(tmp_path, tmp_path / "m.gguf", "Q4_0", kinds=named, tokenizer=False)
    with GgufWeights(
        path,
        shapes,
        head_dim=config.head_dim,
        dtype=torch.float32,
        device=torch.device("cpu"),
        progress=lambda done, total: None,
    ) as source:
        for found, expected in (
            (
                fused_qkv_matrices(config, source, LAYER),
                fused_qkv(config, source, LAYER, "weight"),
            ),
            (
                [gate_up_matrix(source, MLP, opened.panel)],
                interleaved(
                    *(source.tensor(f"{MLP}{name}_proj.weight") for name in ("gate", "up")),
                    opened.panel,
                ),
            ),
        ):
            rows = []
            for part in found:
                assert isinstance(part, BlockRows) is in_blocks
                whole = part
                if isinstance(part, BlockRows):
                    whole = packed_blocks(part, opened, opened.team(1))
                packed = PackedWeight(whole, None, opened.panel)
                rows.append(packed.rows(opened, torch.arange(packed.outputs)))
            assert torch.equal(torch.cat(rows), expected)


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_value_is_apart_if_it_is_packed_as_another_kind(
    tmp_path: Path, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which changes no result. qwen2 has biases."""
    try:
        library()
    except LibraryUnavailableError as error:
        pytest.skip(str(error))
    save_model(Variant(family, {"intermediate_size": 96, "head_dim": 32}), tmp_path)
    shapes = parameter_shapes(load_model_config(tmp_path))
    kinds = {name: "Q8_0" for name in shapes if "v_proj.weight" in name}
    path = write_gguf(tmp_path, tmp_path / "m.gguf", "Q4_0", kinds=kinds, tokenizer=False)
    served = tmp_path / "served"
    served.mkdir()
    (served / LINK).symlink_to(path)
    (served / "config.json").write_text(json.dumps(config_json(read_gguf_header(path))))
    prompt = random.Random(1).choices(range(VOCABULARY), k=40)
    params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0)

    def logprobs(*, is_apart: bool) -> Tensor:
        runner = load_runner(served)
        decoder = runner._parts.decoder
        assert isinstance(decoder, CompiledLlama)
        assert all(bool(layer.value.weight) == is_apart for layer in decoder._layers)
        [output] = Engine(served, runner=runner).generate([prompt], params)
        return torch.tensor([each.logprob for each in output.prompt_logprobs])

    apart = logprobs(is_apart=True)
    monkeypatch.setattr("engine.cpu.matrices.kind_of_blocks", lambda rows: IntegerKind.BYTES)
    torch.testing.assert_close(apart, logprobs(is_apart=False), rtol=0, atol=1e-5)
