"""Pieces are small, and together every byte that is wanted; placed, they are the tensor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.weights import placing
from engine.weights.file import TensorFile
from engine.weights.placing import Placer, Target, pieces_of
from engine.weights.stored import Wanted, part, stored_tensors, whole

CPU = torch.device("cpu")
PIECE_BYTES = 64


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("placing") / "model.safetensors"
    numbers = torch.randn(9, 4, 10, generator=torch.Generator().manual_seed(0))
    save_file({"narrow": numbers.bfloat16(), "wide": numbers, "none": torch.empty(0, 3)}, path)
    return path


@pytest.fixture(scope="module")
def stored(path: Path) -> Iterator[dict[str, Wanted]]:
    file = TensorFile(path)
    yield {tensor.name: whole(tensor) for tensor in stored_tensors(file)}
    file.close()


@pytest.fixture(autouse=True, scope="module")
def _small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placing, "READ_PIECE_BYTES", PIECE_BYTES)
        patch.setattr(placing, "_SERIAL_ELEMENTS", 7)
        yield


def placed(wanted: Wanted, dtype: torch.dtype) -> Tensor:
    target = Target(dtype, CPU)
    tensor, placer = target.empty(wanted.shape), Placer(target)
    tensor.fill_(torch.nan)
    for piece in reversed(list(pieces_of(wanted))):  # in any order
        placer.place(piece, wanted, tensor)
    return tensor


@st.composite
def ranges(draw: st.DrawFn) -> tuple[int, tuple[tuple[int, int], ...]]:
    dim = draw(st.integers(0, 2))
    edge = st.integers(0, (9, 4, 10)[dim])
    spans = draw(st.lists(st.tuples(edge, edge), min_size=1, max_size=3))
    return dim, tuple((min(span), max(span)) for span in spans)


@given(chosen=ranges(), name=st.sampled_from(["narrow", "wide"]))
def test_pieces_are_small_and_adjacent_and_hold_the_wanted_bytes_in_order(
    stored: dict[str, Wanted], chosen: tuple[int, tuple[tuple[int, int], ...]], name: str
) -> None:
    wanted = part(stored[name].stored, *chosen)
    first, read = 0, []
    for piece in pieces_of(wanted):
        assert 0 < piece.num_bytes <= PIECE_BYTES
        assert piece.first == first
        first += piece.num_bytes
        read += [offset + i for offset, length in piece.runs for i in range(length)]
    assert first == wanted.num_bytes
    assert read == [offset + i for offset, length in wanted.runs() for i in range(length)]


@pytest.mark.parametrize("name", ["narrow", "wide"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_tensor_is_the_one_that_safetensors_loads_in_any_dtype(
    path: Path, stored: dict[str, Wanted], name: str, dtype: torch.dtype
) -> None:
    expected = load_file(path)[name]
    assert torch.equal(placed(stored[name], dtype), expected.to(dtype))
    some = part(stored[name].stored, 1, ((3, 4), (0, 2)))
    assert torch.equal(placed(some, dtype), expected[:, [3, 0, 1]].to(dtype))


def test_a_tensor_without_elements_has_no_piece(stored: dict[str, Wanted]) -> None:
    assert not list(pieces_of(stored["none"]))
    assert placed(stored["none"], torch.float32).shape == (0, 3)


def test_tensors_are_made_in_the_mode_that_their_target_was_made_in() -> None:
    with torch.inference_mode():
        inside = Target(torch.float16, CPU)
    assert inside.empty((2, 3)).is_inference()
    assert not Target(torch.float16, CPU).empty((2, 3)).is_inference()
    assert inside.num_bytes((2, 3)) == 12
    assert inside.event() is None
