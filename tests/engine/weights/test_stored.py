"""A safetensors file is read as safetensors itself does, and offsets beyond its size are
refused."""

from __future__ import annotations

import itertools
import json
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize
from safetensors.torch import load_file, save_file

from engine.architecture.errors import WeightsError
from engine.weights.file import TensorFile
from engine.weights.stored import StoredTensor, part, read_tensor, stored_tensors, whole
from tests.engine.weights.hostile import hostile_file

# More than the readers of a file of a few thousand bytes may take.
_MOST_BYTES = 4 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A bfloat16 matrix [3, 5] and a float32 vector [2]."""
    path = tmp_path / "model.safetensors"
    tensors = {"matrix": torch.arange(15).bfloat16().view(3, 5), "vector": torch.ones(2)}
    save_file(tensors, path, metadata={"format": "pt"})
    return path


@pytest.fixture
def file(path: Path) -> Iterator[TensorFile]:
    file = TensorFile(path)
    yield file
    file.close()


def stored_in(path: Path) -> list[StoredTensor]:
    file = TensorFile(path)
    try:
        return stored_tensors(file)
    finally:
        file.close()


def test_every_tensor_is_where_safetensors_finds_it(path: Path, file: TensorFile) -> None:
    content = path.read_bytes()
    oracle = load_file(path)
    found = stored_tensors(file)
    assert {stored.name for stored in found} == set(oracle)
    for stored in found:
        expected = oracle[stored.name]
        assert stored.shape == tuple(expected.shape)
        assert whole(stored).dtype == expected.dtype
        data = content[stored.begin : stored.begin + expected.nbytes]
        assert data == expected.view(torch.uint8).numpy().tobytes()


def test_tensors_of_any_dtype_are_read_as_they_are_stored(tmp_path: Path) -> None:
    tensors = {
        "halves": torch.randn(3, 5).half(),
        "integers": torch.arange(-3, 4),
        "flags": torch.tensor([True, False]),
        "one number": torch.tensor(2.5),
        "none": torch.empty(0, 4),
    }
    save_file(tensors, tmp_path / "m.safetensors")
    file = TensorFile(tmp_path / "m.safetensors")
    memory = torch.full((100,), 7, dtype=torch.uint8)
    for stored in stored_tensors(file):
        expected = tensors[stored.name]
        for found in (read_tensor(stored), read_tensor(stored, memory)):
            assert found.dtype == expected.dtype
            assert torch.equal(found, expected)
    file.close()


def test_a_dtype_that_is_not_served_is_an_error_that_names_the_tensor(tmp_path: Path) -> None:
    save_file({"eight": torch.zeros(3).to(torch.float8_e4m3fn)}, tmp_path / "m.safetensors")
    [stored] = stored_in(tmp_path / "m.safetensors")
    with pytest.raises(WeightsError, match=r"eight of .* is of type F8_E4M3"):
        read_tensor(stored)


def test_a_tensor_without_elements_is_one(tmp_path: Path) -> None:
    save_file({"none": torch.empty(0, 4), "one": torch.ones(1)}, tmp_path / "m.safetensors")
    empty, one = sorted(stored_in(tmp_path / "m.safetensors"), key=lambda stored: stored.name)
    assert list(whole(empty).runs()) == []
    assert [length for _, length in whole(one).runs()] == [4]


@given(data=st.data())
def test_runs_are_the_bytes_of_a_part_in_its_order_and_no_others(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    dim = data.draw(st.integers(0, len(shape) - 1))
    bound = st.integers(0, shape[dim])
    pair = st.tuples(bound, bound).map(lambda ends: (min(ends), max(ends)))
    ranges = tuple(data.draw(st.lists(pair, min_size=1, max_size=3)))
    numbers = torch.arange(torch.Size(shape).numel(), dtype=torch.float64).view(shape)
    content = numbers.numpy().tobytes()
    stored = StoredTensor(None, "numbers", "F64", shape, 1000)  # type: ignore[arg-type]
    wanted = part(stored, dim, ranges)
    expected = torch.cat([numbers.narrow(dim, a, b - a) for a, b in ranges], dim)
    runs = list(wanted.runs())
    read = b"".join(content[offset - 1000 : offset - 1000 + length] for offset, length in runs)
    assert read == expected.contiguous().numpy().tobytes()
    assert wanted.shape == tuple(expected.shape)
    assert wanted.num_bytes == len(read)
    for (offset, length), (following, _) in itertools.pairwise(runs):
        assert offset + length != following  # a read is as long as it can be


def test_a_part_that_reaches_into_its_neighbour_is_refused(file: TensorFile) -> None:
    matrix = next(stored for stored in stored_tensors(file) if stored.name == "matrix")
    with pytest.raises(ValueError, match="matrix"):
        part(matrix, 0, ((2, 4),))


@pytest.mark.parametrize("length", [0, 7, 8, 60, -1])
def test_a_file_cut_short_anywhere_is_refused(path: Path, length: int) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:length])
    with pytest.raises(SafetensorError):
        load_file(path)
    with pytest.raises(WeightsError, match=r"cannot read .*model\.safetensors"):
        stored_in(path)


def entry(dtype: str, shape: list[Any], first: Any, last: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, last]}


HOSTILE: dict[str, Any] = {
    "beyond the end": {"a": entry("F32", [4], 0, 16)},
    "a huge tensor": {"a": entry("F32", [1 << 40], 0, 1 << 42)},
    "a shape its bytes do not hold": {"a": entry("F32", [1 << 30, 1 << 30], 0, 8)},
    "overlapping": {"a": entry("F32", [2], 0, 8), "b": entry("F32", [1], 4, 8)},
    "a gap": {"a": entry("F32", [1], 4, 8)},
    "backwards": {"a": entry("F32", [1], 8, 4), "b": entry("F32", [1], 4, 8)},
    "negative": {"a": entry("F32", [-2], 0, 8)},
    "below the beginning": {"a": entry("F32", [3], -4, 8)},
    "fractional": {"a": entry("F32", [2.5], 0, 8)},
    "no offsets": {"a": {"dtype": "F32", "shape": [2]}},
    "three offsets": {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4, 8]}},
    "no object": [1, 2],
    "bytes of nobody": {},
    "dimensions without end": {"a": entry("F32", [1 << 62] * 100_000, 0, 8)},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_header_that_the_file_does_not_bear_out_is_refused(tmp_path: Path, case: str) -> None:
    path = tmp_path / "hostile.safetensors"
    header = json.dumps(HOSTILE[case]).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(SafetensorError):
        load_file(path)
    with pytest.raises(WeightsError, match=r"cannot read .*hostile\.safetensors"):
        stored_in(path)


@pytest.mark.parametrize(
    "header",
    [b"{", b"\xff\xfe", b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000],
    ids=["cut", "no text", "deep objects", "deep lists"],
)
def test_a_header_that_is_not_json_is_refused(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(WeightsError, match="malformed"):
        stored_in(path)


def test_a_header_longer_than_its_file_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "hostile.safetensors"
    path.write_bytes((1 << 62).to_bytes(8, "little") + b"{}")
    with pytest.raises(WeightsError, match=f"a header of {1 << 62} bytes in a file of 10"):
        stored_in(path)


def _library(data: bytes) -> dict[str, Any] | str:
    """Return what safetensors finds in a file, or why it finds nothing."""
    try:
        return dict(deserialize(data))
    except SafetensorError as error:
        return str(error)


def _examine(right: bytes, path: Path, seeds: range) -> tuple[int, int]:
    """Read hostile files. Returns how many were readable, and how many not.

    What is readable here is so to the library, and the same; what is not names the file."""
    readable = refused = 0
    for seed in seeds:
        data = hostile_file(right, seed)
        path.write_bytes(data)
        tracemalloc.start()
        try:
            found = stored_in(path)
        except WeightsError as error:
            refused += f"cannot read {path}: " in str(error)
            continue
        finally:
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert most < _MOST_BYTES, seed
        readable += 1
        expected = _library(data)
        if isinstance(expected, str):
            # Metadata is not looked at, and an unknown dtype is refused when its tensor is read.
            assert "unknown variant" in expected or b"__metadata__" in data, (seed, expected)
            continue
        assert {each.name for each in found} == set(expected), seed
        for each in found:
            own = expected[each.name]
            assert (each.dtype, each.shape) == (own["dtype"], tuple(own["shape"])), seed
            assert data[each.begin :].startswith(bytes(own["data"])), seed
    return readable, refused


def test_hostile_files_are_refused_or_are_what_the_library_reads(path: Path) -> None:
    readable, refused = _examine(path.read_bytes(), path, range(500))
    assert readable > 50
    assert refused > 200


@pytest.mark.slow
def test_ten_thousand_hostile_files(path: Path) -> None:
    assert sum(_examine(path.read_bytes(), path, range(500, 10_500))) == 10_000


def test_a_pipe_a_directory_and_nothing_are_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, tmp_path / "nothing"):
        with pytest.raises(WeightsError, match=f"cannot read {path}"):
            TensorFile(path)


def test_a_file_that_shrank_since_it_was_opened_is_named(path: Path, file: TensorFile) -> None:
    os.truncate(path, 20)
    with pytest.raises(WeightsError, match=r"model.safetensors: it ends at byte 20"):
        file.read_into(memoryview(bytearray(30)), 0)
