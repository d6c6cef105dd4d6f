"""What C packs from a file is what Python decodes and packs, to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.architecture.errors import WeightsError
from engine.cpu.blocks import kind_of_blocks, packed_blocks
from engine.cpu.integers import IntegerKind, kind_of, packed_integers
from engine.cpu.library import Library, LibraryUnavailableError, library
from engine.cpu.packed import PackedWeight, interleaved
from engine.gguf.blocks import DECODERS
from engine.gguf.types import NUMBERS, TYPES
from engine.gguf.weights import grouped_weight
from engine.weights.blocks import BlockRows, combined_blocks
from engine.weights.file import TensorFile
from engine.weights.grouped import GroupedWeight
from tests.engine.cpu.emulation import compiled_library

try:
    LIBRARY = library()
except LibraryUnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)

# By type: where its blocks have float16 numbers.
HALVES = {
    "Q4_0": (0,),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
}
BEFORE = 96  # bytes of the file before the blocks


@pytest.fixture(scope="module", params=["machine", "emulated"])
def opened(request: pytest.FixtureRequest) -> Library:
    """This machine's; and with the layout of AVX-512."""
    if request.param == "machine":
        return LIBRARY
    return compiled_library()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[TensorFile]:
    (tmp_path / "blocks").write_bytes(bytes(BEFORE))
    with closing(TensorFile(tmp_path / "blocks")) as found:
        yield found


def random_blocks(name: str, rows: int, inputs: int, seed: int = 0) -> np.ndarray:
    """uint8 [rows, bytes of a row]: any bytes, but numbers that are finite."""
    kind = TYPES[NUMBERS[name]]
    chance = np.random.default_rng([seed, NUMBERS[name], rows, inputs])
    raw = chance.integers(0, 256, (rows * inputs // kind.block, kind.num_bytes), dtype=np.uint8)
    for at in HALVES[name]:
        numbers = chance.standard_normal((len(raw), 1)).astype(np.float16)
        raw[:, at : at + 2] = numbers.view(np.uint8)
    return raw.reshape(rows, -1)


def in_python(name: str, raw: np.ndarray, inputs: int) -> GroupedWeight:
    blocks = raw.reshape(-1, TYPES[NUMBERS[name]].num_bytes)
    found = grouped_weight(DECODERS[name](blocks), inputs)
    return found.map(lambda part: part.clone(memory_format=torch.contiguous_format))


def appended(file: TensorFile, name: str, raw: np.ndarray, inputs: int) -> BlockRows:
    with file.path.open("ab") as end:
        begin = end.tell()
        end.write(raw.tobytes())
    begins = torch.arange(len(raw)) * raw.shape[1] + begin
    types = torch.full((len(raw),), NUMBERS[name], dtype=torch.int32)
    return BlockRows.of_file(file, begins, types, inputs)


@pytest.mark.parametrize("outputs", [1, 37, 256])
@pytest.mark.parametrize("inputs", [32, 160, 256, 1536])
@pytest.mark.parametrize("name", HALVES)
def test_panels_are_those_of_python(
    opened: Library, file: TensorFile, name: str, inputs: int, outputs: int
) -> None:
    if inputs % TYPES[NUMBERS[name]].block:
        inputs = 2048
    raw = random_blocks(name, outputs, inputs)
    rows, weight = appended(file, name, raw, inputs), in_python(name, raw, inputs)
    kind = kind_of_blocks(rows)
    assert kind is not None
    if outputs > 1:  # few codes may all be small
        assert kind is kind_of(weight)
    expected = packed_integers(weight, kind, opened.panel)
    for threads in (1, 2, 3):
        found = packed_blocks(rows, opened, opened.team(threads))
        assert found.kind is kind
        assert found.shape == weight.shape
        assert torch.equal(found.panels, expected)


def test_types_without_one_kind_are_left_to_python(file: TensorFile) -> None:
    assert set(DECODERS) - set(HALVES) == {"Q4_1", "MXFP4"}
    rows = appended(file, "Q8_0", random_blocks("Q8_0", 4, 32), 32)
    for name in ("Q4_1", "MXFP4"):
        types = torch.tensor([NUMBERS["Q8_0"], NUMBERS[name]] * 2, dtype=torch.int32)
        assert kind_of_blocks(BlockRows.of_file(file, rows.begins, types, 32)) is None


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("Q4_K", "Q4_K"), IntegerKind.NIBBLES_K),
        (("Q4_K", "Q6_K"), IntegerKind.BYTES_FLOAT),
        (("Q3_K", "Q6_K"), IntegerKind.BYTES_K),
        (("Q4_0", "Q8_0"), IntegerKind.BYTES),
        (("Q4_0", "Q5_K"), IntegerKind.BYTES_FLOAT),
        (("Q5_1", "Q2_K"), IntegerKind.BYTES_FLOAT),
    ],
)
def test_two_matrices_become_one_in_any_order_of_rows(
    opened: Library, file: TensorFile, names: tuple[str, str], kind: IntegerKind
) -> None:
    """Of different types, with their rows in another order, and rows of zeros between them."""
    inputs, outputs, panel = 768, 150, opened.panel
    raws = [random_blocks(name, outputs, inputs, seed) for seed, name in enumerate(names)]
    order = torch.randperm(outputs, generator=torch.Generator().manual_seed(0))

    def join(both: list[Tensor]) -> Tensor:
        return interleaved(both[0].index_select(0, order), both[1], panel)

    rows = combined_blocks(
        [appended(file, *each, inputs) for each in zip(names, raws, strict=True)], join
    )
    assert kind_of_blocks(rows) is kind
    packed = PackedWeight(packed_blocks(rows, opened, opened.team(2)), None, panel)
    expected = join(
        [in_python(name, raw, inputs).dequantised() for name, raw in zip(names, raws, strict=True)]
    )
    assert packed.kind is kind
    assert torch.equal(packed.rows(opened, torch.arange(expected.shape[0])), expected)


@pytest.mark.parametrize("inputs", [256, 2048])
def test_two_matrices_of_different_files_become_one(
    opened: Library, tmp_path: Path, inputs: int
) -> None:
    """Also where rows of one begin where those of the other end."""
    panel, outputs = opened.panel, 3 * opened.panel + 5
    raws = [random_blocks("Q4_K", outputs, inputs, seed) for seed in (0, 1)]
    with two_files(tmp_path) as files:
        rows = [appended(file, "Q4_K", raw, inputs) for file, raw in zip(files, raws, strict=True)]
        for join in (torch.cat, lambda both: interleaved(both[0], both[1], panel)):
            found = packed_blocks(combined_blocks(rows, join), opened, opened.team(2))
            expected = join([in_python("Q4_K", raw, inputs).dequantised() for raw in raws])
            packed = PackedWeight(found, None, panel)
            assert torch.equal(packed.rows(opened, torch.arange(expected.shape[0])), expected)
        adjacent = combined_blocks([rows[0].rows(torch.tensor([0])), rows[1]], torch.cat)
        weight = packed_blocks(adjacent, opened, opened.team(1))
        expected = in_python("Q4_K", np.concatenate([raws[0][:1], raws[1]]), inputs).dequantised()
        found_rows = PackedWeight(weight, None, panel).rows(opened, torch.arange(outputs + 1))
        assert torch.equal(found_rows, expected)


@contextmanager
def two_files(folder: Path) -> Iterator[list[TensorFile]]:
    """The second's rows begin one row of 256 inputs in Q4_K after the first's."""
    (folder / "first").write_bytes(bytes(BEFORE))
    (folder / "second").write_bytes(bytes(BEFORE + 144))
    with ExitStack() as ends:
        yield [
            ends.enter_context(closing(TensorFile(folder / name))) for name in ("first", "second")
        ]


def test_the_error_names_the_file_that_is_cut_short(tmp_path: Path) -> None:
    with two_files(tmp_path) as files:
        raw = random_blocks("Q8_0", 64, 512)
        rows = combined_blocks([appended(file, "Q8_0", raw, 512) for file in files], torch.cat)
        with files[1].path.open("r+b") as cut:
            cut.truncate(BEFORE + 1000)
        with pytest.raises(WeightsError, match=f"{files[1].path}: it ends at byte {BEFORE + 1000}"):
            packed_blocks(rows, LIBRARY, LIBRARY.team(2))


def test_rows_longer_than_what_is_read_at_a_time(opened: Library, file: TensorFile) -> None:
    inputs = 256 * 100
    raw = random_blocks("Q8_0", 40, inputs)
    found = packed_blocks(appended(file, "Q8_0", raw, inputs), opened, opened.team(2))
    expected = packed_integers(in_python("Q8_0", raw, inputs), IntegerKind.BYTES, opened.panel)
    assert torch.equal(found.panels, expected)


def test_a_file_that_is_cut_short_is_an_error_that_says_where(file: TensorFile) -> None:
    rows = appended(file, "Q4_K", random_blocks("Q4_K", 300, 1024), 1024)
    end = BEFORE + 144 * 4 * 200 + 100
    with file.path.open("r+b") as cut:
        cut.truncate(end)
    for threads in (1, 2):
        with pytest.raises(WeightsError, match=f"{file.path}: it ends at byte {end}"):
            packed_blocks(rows, LIBRARY, LIBRARY.team(threads))


def test_a_read_that_fails_is_an_error_that_says_why(tmp_path: Path) -> None:
    (tmp_path / "gone").write_bytes(bytes(BEFORE))
    file = TensorFile(tmp_path / "gone")
    rows = appended(file, "Q8_0", random_blocks("Q8_0", 4, 32), 32)
    file.close()
    with pytest.raises(WeightsError, match="Bad file descriptor"):
        packed_blocks(rows, LIBRARY, LIBRARY.team(1))
