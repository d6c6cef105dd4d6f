"""A right file is read as the format's own library reads it; of a wrong one, the error names the
field, and nothing outside it is read or allocated for."""

from __future__ import annotations

import resource
import struct
import tracemalloc
from contextlib import closing
from pathlib import Path
from random import Random

import gguf
import numpy as np
import pytest

from engine.architecture.errors import WeightsError
from engine.gguf import container
from engine.gguf.container import GgufHeader
from engine.gguf.parts import read_gguf_header
from engine.weights.file import TensorFile
from tests.engine.gguf.hostile import hostile_file, small_file, text

_MOST_BYTES = 16 << 20  # of memory, for a file of a few kilobytes


@pytest.fixture
def right(tmp_path: Path) -> bytes:
    return small_file(tmp_path / "right.gguf").read_bytes()


def header_of(data: bytes, path: Path) -> GgufHeader:
    path.write_bytes(data)
    return read_gguf_header(path)


def file_of(
    *parts: bytes, tensors: int = 0, keys: int = 0, magic: bytes = b"GGUF", version: int = 3
) -> bytes:
    return magic + struct.pack("<IQQ", version, tensors, keys) + b"".join(parts)


def info(
    name: str, *dims: int, kind: int = 0, offset: int = 0, num_dims: int | None = None
) -> bytes:
    count = len(dims) if num_dims is None else num_dims
    shape = struct.pack(f"<I{len(dims)}Q", count, *dims)
    return text(name) + shape + struct.pack("<IQ", kind, offset)


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def test_keys_and_tensors_are_those_of_the_library(right: bytes, tmp_path: Path) -> None:
    header = header_of(right, tmp_path / "copy.gguf")
    oracle = gguf.GGUFReader(tmp_path / "right.gguf")
    expected = {
        name: field.contents()
        for name, field in oracle.fields.items()
        if not name.startswith("GGUF.")  # the header's own numbers
    }
    assert len(expected) > 14
    found = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in header.keys.items()
    }
    assert found == expected
    assert list(header.tensors) == [tensor.name for tensor in oracle.tensors]
    for tensor in oracle.tensors:
        ours = header.tensors[tensor.name]
        assert ours.type.name == tensor.tensor_type.name
        assert list(ours.shape) == list(reversed(tensor.shape.tolist()))
        raw = right[ours.begin : ours.begin + ours.num_bytes]
        assert raw == tensor.data.tobytes()


def test_strings_of_arrays_are_skipped_as_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [random.randbytes(random.randrange(40)).hex() for random in [Random(1)] * 500]
    value = struct.pack("<IQ", 8, len(words)) + b"".join(map(text, words))
    path = tmp_path / "words.gguf"
    path.write_bytes(file_of(key("words", 9, value), key("after", 4, b"\7\0\0\0"), keys=2))
    for most in (1 << 20, 64, 1):  # bytes that are read at a time
        monkeypatch.setattr(container, "_READ_BYTES", most)
        with closing(TensorFile(path)) as file:
            kept = container.header_of(file)
            skipped = container.header_of(file, keep_texts=False)
        assert kept.keys == {"words": words, "after": 7}
        assert skipped.keys == {"words": [], "after": 7}


def test_an_array_of_strings_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    value = struct.pack("<IQ", 8, 3) + text("a") + text("b") + struct.pack("<Q", 99)
    path = tmp_path / "cut.gguf"
    path.write_bytes(file_of(key("words", 9, value), keys=1))
    for keep_texts in (True, False):
        with closing(TensorFile(path)) as file, pytest.raises(WeightsError, match="element 2,"):
            container.header_of(file, keep_texts=keep_texts)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "magic needs 4 bytes"),
        (file_of(magic=b"GGML"), "magic is b'GGML': it is not a GGUF file"),
        (file_of(magic=b"vers"), "it may be a Git LFS pointer; 'git lfs pull' fetches"),
        (file_of(magic=b"<!DO"), "it is a web page; download the file itself"),
        (file_of(version=1), "version is 1: not supported"),
        (file_of(version=3 << 24), "version is 50331648: it is big-endian"),
        (file_of(tensors=1 << 60), "tensor_count is 1152921504606846976; at most 65536"),
        (file_of(tensors=1000), "tensor_count is 1000, which the remaining 8 bytes cannot hold"),
        (file_of(keys=1 << 63), "metadata_kv_count is 9223372036854775808"),
        (
            file_of(struct.pack("<Q", 1 << 50), bytes(60), keys=1),
            "the length of the name of key 0 is 1125899906842624; at most 1024",
        ),
        (file_of(key("a", 99, bytes(8)), keys=1), "key 'a' has the unknown type 99"),
        (
            file_of(key("a", 8, struct.pack("<Q", 1 << 20)), keys=1),
            "key 'a' needs 1048576 bytes, and the file has only 0 more: it is cut short; ",
        ),
        (
            file_of(key("a", 8, text("") + b"\0" * 8), keys=2),
            "the type of '' needs 4 bytes, and the file has only 0 more",
        ),
        (
            file_of(key("a", 8, struct.pack("<Q", 2) + b"\xff\xfe"), keys=1),
            "key 'a' is not UTF-8",
        ),
        (
            file_of(key("a", 9, struct.pack("<IQ", 9, 1)), keys=1),
            "the element type of key 'a' is 9: arrays of arrays",
        ),
        (
            file_of(key("a", 9, struct.pack("<IQ", 8, 1 << 40)), keys=1),
            "the length of key 'a' is 1099511627776; at most",
        ),
        (
            file_of(key("a", 9, struct.pack("<IQ", 4, 1000)), keys=1),
            "the length of key 'a' is 1000, which the remaining 0 bytes cannot hold",
        ),
        (file_of(key("a", 4, bytes(4)) * 2, keys=2), "key 'a' is given twice"),
        (
            file_of(key("general.alignment", 4, struct.pack("<I", 24)), keys=1),
            "key 'general.alignment' is 24; it must be a power of two",
        ),
        (
            file_of(key("general.alignment", 8, text("32")), keys=1),
            "key 'general.alignment' is of type str",
        ),
        (file_of(info("t", 4, num_dims=9), bytes(99), tensors=1), "tensor 't' has 9 dimensions"),
        (file_of(info("t", num_dims=0), bytes(99), tensors=1), "tensor 't' has 0 dimensions"),
        (file_of(info("t", 4, 0), bytes(99), tensors=1), "tensor 't' has the dimensions [4, 0]"),
        (
            file_of(info("t", 1 << 63, 1 << 63, 4), bytes(99), tensors=1),
            "tensor 't' has the dimensions",
        ),
        (file_of(info("t", 4, kind=4), bytes(99), tensors=1), "tensor 't' has the unknown type 4"),
        (
            file_of(info("t", 48, kind=8), bytes(99), tensors=1),
            "tensor 't' has rows of 48 elements, which blocks of 32 (Q8_0) do not divide",
        ),
        (file_of(info("t", 4, offset=8), bytes(99), tensors=1), "the offset of tensor 't' is 8"),
        (
            file_of(info("t", 1000), bytes(99), tensors=1),
            "tensor 't' ends at byte 4064, and the file at 156: it is cut short; download it again",
        ),
        (
            file_of(info("t", 8), info("t", 8, offset=32), bytes(999), tensors=2),
            "tensor 't' is given twice",
        ),
        (
            file_of(info("t", 16), info("u", 8, offset=32), bytes(999), tensors=2),
            "the offset of tensor 'u' overlaps tensor 't'",
        ),
        (
            file_of(info("t", 8, offset=(1 << 64) - 32), bytes(999), tensors=1),
            "tensor 't' ends at byte",
        ),
    ],
)
def test_an_error_names_the_field(data: bytes, says: str, tmp_path: Path) -> None:
    with pytest.raises(WeightsError) as caught:
        header_of(data, tmp_path / "wrong.gguf")
    assert "wrong.gguf" in str(caught.value)
    assert says in str(caught.value), caught.value


def test_a_header_is_limited_as_a_whole_and_in_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large.gguf"
    with path.open("wb") as file:
        file.write(file_of(key("a", 8, struct.pack("<Q", 300 << 20)), keys=1))
        file.truncate(1 << 30)
    with pytest.raises(WeightsError, match="the length of key 'a' is 314572800; at most 268435456"):
        read_gguf_header(path)
    monkeypatch.setattr(container, "MAX_HEADER_BYTES", 1000)
    long = key("a", 8, text("x" * 600)) + key("b", 8, text("x" * 600))
    with pytest.raises(WeightsError, match="key 'b' ends beyond the 1000 bytes of a header"):
        header_of(file_of(long, keys=2), path)


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="it is not a file"):
        read_gguf_header(tmp_path)


def _examine(right: bytes, path: Path, seeds: range) -> tuple[int, int]:
    """Read hostile files. Returns how many were readable, and how many not."""
    readable = refused = 0
    for seed in seeds:
        data = hostile_file(right, seed)
        tracemalloc.start()
        try:
            header = header_of(data, path)
            for tensor in header.tensors.values():
                assert 0 <= tensor.begin <= tensor.begin + tensor.num_bytes <= len(data)
            readable += 1
        except WeightsError as error:
            refused += str(path) in str(error)
        finally:
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert most < _MOST_BYTES, seed
    return readable, refused


def test_hostile_files_are_refused_or_lie_within_their_bounds(right: bytes, tmp_path: Path) -> None:
    readable, refused = _examine(right, tmp_path / "hostile.gguf", range(500))
    assert readable > 10
    assert refused > 250


@pytest.mark.slow
def test_ten_thousand_hostile_files(right: bytes, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    readable, refused = _examine(right, tmp_path / "hostile.gguf", range(500, 10_500))
    assert readable + refused == 10_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10
