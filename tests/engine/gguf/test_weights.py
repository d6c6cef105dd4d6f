"""A GGUF file gives the tensors of the checkpoint that it was made from."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from engine.architecture.config import load_model_config
from engine.architecture.errors import WeightsError
from engine.gguf import weights
from engine.gguf.weights import GgufWeights
from engine.run.loader import parameter_shapes
from engine.weights.blocks import BlockRows
from engine.weights.weights import Shapes
from tests.engine.gguf import making
from tests.engine.gguf.family_files import FAMILY_FILES
from tests.engine.gguf.file_tensors import file_tensors
from tests.engine.gguf.making import write_gguf
from tests.engine.tiny_models import VARIANTS, Variant, save_model

CPU = torch.device("cpu")
# Rows of every matrix are multiples of 32.
EVEN = {"intermediate_size": 96, "head_dim": 32}


def opened(
    path: Path, shapes: Shapes, *, head_dim: int, dtype: torch.dtype = torch.float32
) -> GgufWeights:
    return GgufWeights(
        path, shapes, head_dim=head_dim, dtype=dtype, device=CPU, progress=lambda *_: None
    )


@pytest.mark.parametrize(
    "name", ["llama", "llama_biases", "llama_tied", "mistral", "qwen2", "qwen3_tied_biases"]
)
def test_every_tensor_is_that_of_the_checkpoint(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "_PIECE_BYTES", 5000)  # so that a matrix has several pieces
    save_model(VARIANTS[name], tmp_path)
    config = load_model_config(tmp_path)
    shapes = parameter_shapes(config)
    expected = load_file(tmp_path / "model.safetensors")
    path = write_gguf(tmp_path, tmp_path / "model.gguf", tokenizer=False)
    told: list[tuple[int, int]] = []
    with GgufWeights(
        path,
        shapes,
        head_dim=config.head_dim,
        dtype=torch.float32,
        device=CPU,
        progress=lambda *call: told.append(call),
    ) as source:
        for tensor in shapes:
            assert torch.equal(source.tensor(tensor), expected[tensor]), tensor
    total = sum(math.prod(shape) for shape in shapes.values())
    assert told[-1] == (total, total)


def test_leading_dimensions_of_one_element_may_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wide(tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> Any:
        for name, stored, values in file_tensors(tensors, config):
            yield name, stored, values.unsqueeze(0) if values.dim() == 1 else values

    monkeypatch.setattr(making, "file_tensors", wide)
    save_model(VARIANTS["llama_biases"], tmp_path)
    config = load_model_config(tmp_path)
    shapes = parameter_shapes(config)
    expected = load_file(tmp_path / "model.safetensors")
    path = write_gguf(tmp_path, tmp_path / "model.gguf", tokenizer=False)
    with opened(path, shapes, head_dim=config.head_dim) as source:
        for tensor in shapes:
            assert torch.equal(source.tensor(tensor), expected[tensor]), tensor


def read_back(blocks: BlockRows, dtype: gguf.GGMLQuantizationType) -> torch.Tensor:
    block, size = gguf.GGML_QUANT_SIZES[dtype]
    raw = np.zeros((blocks.shape[0], blocks.inputs // block * size), np.uint8)
    for row, begin in zip(raw, blocks.begins.tolist(), strict=True):
        blocks.files[0].read_into(row.data, begin)
    assert blocks.types.unique().tolist() == [dtype]
    return torch.from_numpy(gguf.dequantize(raw, dtype))


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q5_1"])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_quantized_tensors_are_those_of_the_library(
    family: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "_PIECE_BYTES", 1000)
    save_model(Variant(family, EVEN), tmp_path)
    config = load_model_config(tmp_path)
    shapes = parameter_shapes(config)
    original = load_file(tmp_path / "model.safetensors")
    path = write_gguf(tmp_path, tmp_path / "model.gguf", kind, tokenizer=False)
    dtype = getattr(gguf.GGMLQuantizationType, kind)
    with opened(path, shapes, head_dim=32) as source:
        for name, shape in shapes.items():
            expected = original[name]
            if len(shape) == 2:
                # Rows are quantized by themselves, so their order in the file has no influence.
                expected = torch.from_numpy(
                    gguf.dequantize(gguf.quantize(expected.numpy(), dtype), dtype)
                )
            assert torch.equal(source.tensor(name), expected), name
            grouped = source.grouped(name)
            assert (grouped is not None) == (kind[0] == "Q" and len(shape) == 2)
            if grouped is not None:
                assert torch.equal(grouped.dequantised(), expected)
                assert grouped.group == 32
            blocks = source.blocks(name)
            assert (blocks is None) == (grouped is None)
            if blocks is not None:
                assert torch.equal(read_back(blocks, dtype), expected)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
@pytest.mark.parametrize("name", FAMILY_FILES)
def test_parts_of_a_tensor_are_quantized_as_the_library_does(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Experts, and projections that are one tensor in the file."""
    monkeypatch.setattr(weights, "_PIECE_BYTES", 1000)
    save_model(FAMILY_FILES[name], tmp_path)
    config = load_model_config(tmp_path)
    shapes = parameter_shapes(config)
    dtype = getattr(gguf.GGMLQuantizationType, kind)
    floats = write_gguf(tmp_path, tmp_path / "floats.gguf", tokenizer=False)
    path = write_gguf(tmp_path, tmp_path / "few.gguf", kind, tokenizer=False)
    with (
        opened(floats, shapes, head_dim=config.head_dim) as exact,
        opened(path, shapes, head_dim=config.head_dim) as source,
    ):
        for parameter in shapes:
            blocks, grouped = source.blocks(parameter), source.grouped(parameter)
            expected = exact.tensor(parameter)
            if expected.dim() == 1 or parameter.endswith("mlp.gate.weight"):  # in float32
                assert blocks is grouped is None
                assert torch.equal(source.tensor(parameter), expected)
                continue
            rows = gguf.quantize(expected.numpy(), dtype)
            expected = torch.from_numpy(gguf.dequantize(rows, dtype))
            assert blocks is not None
            assert grouped is not None
            assert torch.equal(source.tensor(parameter), expected), parameter
            assert torch.equal(grouped.dequantised(), expected), parameter
            assert torch.equal(read_back(blocks, dtype), expected), parameter


def test_a_part_is_that_of_the_whole_and_the_dtype_is_the_one_asked_for(tmp_path: Path) -> None:
    save_model(Variant("llama", EVEN), tmp_path)
    config = load_model_config(tmp_path)
    path = write_gguf(tmp_path, tmp_path / "model.gguf", "Q8_0", tokenizer=False)
    name = "model.layers.1.self_attn.q_proj.weight"
    with opened(path, parameter_shapes(config), head_dim=32, dtype=torch.bfloat16) as source:
        whole = source.tensor(name)
        assert whole.dtype == torch.bfloat16
        part = source.part(name, 1, ((32, 40), (0, 8)))
    assert torch.equal(part, torch.cat([whole[:, 32:40], whole[:, :8]], 1))


def test_ignored_tensors_may_be_there_and_float32_may_be_kept(tmp_path: Path) -> None:
    shapes = {"model.norm.weight": (32,), "lm_head.weight": (4, 32)}
    path = _write(
        tmp_path / "t.gguf",
        **{
            "output_norm.weight": ("F32", (32,)),
            "output.weight": ("Q8_0", (4, 32)),
            "surplus.weight": ("F32", (7,)),
        },
    )
    with GgufWeights(
        path,
        shapes,
        head_dim=0,
        dtype=torch.bfloat16,
        device=CPU,
        progress=lambda *_: None,
        ignored=["surplus.weight"],
        keeps_float32=True,
    ) as source:
        assert source.tensor("model.norm.weight").dtype == torch.float32
        assert source.tensor("lm_head.weight").dtype == torch.bfloat16
    with pytest.raises(WeightsError, match=r"surplus\.weight"):
        opened(path, shapes, head_dim=0)


def _write(path: Path, **tensors: tuple[str, tuple[int, ...]]) -> Path:
    writer = gguf.GGUFWriter(path, "qwen3")
    for name, (kind, shape) in tensors.items():
        dtype = getattr(gguf.GGMLQuantizationType, kind)
        block, size = gguf.GGML_QUANT_SIZES[dtype]
        raw = np.zeros((*shape[:-1], shape[-1] // block * size), np.uint8)
        writer.add_tensor(name.replace("__", "."), raw, raw_dtype=dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({"token_embd__weight": ("F32", (4, 32))}, "missing: output_norm.weight"),
        (
            {"token_embd__weight": ("F32", (5, 32)), "output_norm__weight": ("F32", (32,))},
            r"unusable: token_embd.weight \[5, 32\] instead of \[4, 32\]",
        ),
        (
            {"token_embd__weight": ("I32", (4, 32)), "output_norm__weight": ("F32", (32,))},
            r"token_embd.weight of type I32, which is not supported \(supported: F32",
        ),
        (
            {"token_embd__weight": ("F32", (4, 32)), "output_norm__weight": ("Q8_0", (32,))},
            "output_norm.weight of type Q8_0 instead of floats",
        ),
        (
            {"token_embd__weight": ("F32", (4, 32)), "output_norm__weight": ("Q8_0", (1, 32))},
            "output_norm.weight of type Q8_0 instead of floats",
        ),
        (
            {
                "token_embd__weight": ("F32", (4, 32)),
                "output_norm__weight": ("F32", (32,)),
                "blk__0__ssm_a": ("F32", (1,)),
            },
            "unexpected: blk.0.ssm_a",
        ),
    ],
)
def test_what_does_not_fit_is_named(
    tensors: dict[str, tuple[str, tuple[int, ...]]], says: str, tmp_path: Path
) -> None:
    path = _write(tmp_path / "wrong.gguf", **tensors)
    shapes = {"model.embed_tokens.weight": (4, 32), "model.norm.weight": (32,)}
    with pytest.raises(WeightsError, match=says):
        opened(path, shapes, head_dim=32)


def test_a_file_cut_short_while_it_is_open_is_an_error_and_not_a_signal(tmp_path: Path) -> None:
    path = _write(
        tmp_path / "short.gguf",
        token_embd__weight=("F32", (4, 32)),
        output_norm__weight=("F32", (32,)),
    )
    shapes = {"model.embed_tokens.weight": (4, 32), "model.norm.weight": (32,)}
    with opened(path, shapes, head_dim=32) as source:
        with path.open("r+b") as file:
            file.truncate(100)
        with pytest.raises(WeightsError, match="it ends at byte"):
            source.tensor("model.embed_tokens.weight")
