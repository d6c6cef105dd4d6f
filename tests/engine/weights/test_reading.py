"""Tensors read ahead by several threads are those of the file, within the bound on memory, and
whatever goes wrong reaches who asks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.architecture.errors import WeightsError
from engine.weights import placing
from engine.weights.file import TensorFile
from engine.weights.placing import Target
from engine.weights.reading import ReadAhead
from engine.weights.stored import Shape, Wanted, part, stored_tensors, whole
from engine.weights.weights import CheckpointWeights
from tests.engine.tiny_models import VARIANTS, save_model

CPU = torch.device("cpu")
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
KIB = 1024


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller than the tensors here, and no divisor of their sizes."""
    monkeypatch.setattr(placing, "READ_PIECE_BYTES", 1000)


def random_tensors(dtype: torch.dtype) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(7)
    shapes = {"a": (70, 33), "b": (3,), "c": (5, 7, 64), "d": (0, 4), "e": (200, 31)}
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        for name, shape in shapes.items()
    }


@contextmanager
def wanted_of(path: Path) -> Iterator[dict[str, Wanted]]:
    with closing(TensorFile(path)) as file:
        yield {stored.name: whole(stored) for stored in stored_tensors(file)}


def same_bytes(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.view(torch.uint8).equal(other.view(torch.uint8))


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        os.sched_yield()


def reader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("weights-")]


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("to", DTYPES)
@pytest.mark.parametrize("stored", DTYPES)
def test_every_dtype_comes_as_torch_converts_it(
    stored: torch.dtype, to: torch.dtype, tmp_path: Path
) -> None:
    save_file(random_tensors(stored), tmp_path / "m.safetensors")
    oracle = load_file(tmp_path / "m.safetensors")
    with (
        wanted_of(tmp_path / "m.safetensors") as wanted,
        closing(ReadAhead(wanted.values(), Target(to, CPU))) as reader,
    ):
        for name, expected in oracle.items():
            assert same_bytes(reader.take(wanted[name]), expected.to(to))


def test_nan_and_infinity_keep_their_bits(tmp_path: Path) -> None:
    bits = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    save_file({"all": bits.view(torch.bfloat16)}, tmp_path / "m.safetensors")
    with (
        wanted_of(tmp_path / "m.safetensors") as wanted,
        closing(ReadAhead((), Target(torch.bfloat16, CPU))) as reader,
    ):
        assert reader.take(wanted["all"]).view(torch.int16).equal(bits)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("to", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("dim", "ranges"), [(0, ((60, 70), (0, 7))), (1, ((3, 5),)), (1, ((0, 11), (22, 33), (5, 6)))]
)
def test_parts_are_slices_of_the_whole(
    dim: int, ranges: tuple[tuple[int, int], ...], to: torch.dtype, tmp_path: Path
) -> None:
    save_file(random_tensors(torch.float32), tmp_path / "m.safetensors")
    matrix = load_file(tmp_path / "m.safetensors")["a"]
    expected = torch.cat([matrix.narrow(dim, a, b - a) for a, b in ranges], dim).to(to)
    with wanted_of(tmp_path / "m.safetensors") as wanted:
        held = part(wanted["a"].stored, dim, ranges)
        for ahead in ((held,), (wanted["a"],), ()):
            with closing(ReadAhead(ahead, Target(to, CPU))) as reader:
                assert same_bytes(reader.take(held), expected)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("reverse", [False, True])
def test_a_sharded_checkpoint_gives_what_safetensors_gives_in_any_order(
    reverse: bool, tmp_path: Path
) -> None:
    save_model(VARIANTS["llama_sharded"], tmp_path)
    files = sorted(tmp_path.glob("*.safetensors"))
    assert len(files) > 2
    oracle = {name: tensor for path in files for name, tensor in load_file(path).items()}
    with CheckpointWeights(
        tmp_path,
        {name: tuple(tensor.shape) for name, tensor in oracle.items()},
        unused=(),
        dtype=torch.float32,
        device=CPU,
        progress=lambda done, total: None,
    ) as checkpoint:
        for name in reversed(oracle) if reverse else oracle:
            assert same_bytes(checkpoint.tensor(name), oracle[name].float())


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("to", [torch.float32, torch.bfloat16])
def test_tensors_have_the_callers_inference_mode_even_if_another_thread_allocates_them(
    to: torch.dtype, inference: bool, tmp_path: Path
) -> None:
    save_file(random_tensors(torch.bfloat16), tmp_path / "m.safetensors")
    oracle = load_file(tmp_path / "m.safetensors")
    with wanted_of(tmp_path / "m.safetensors") as wanted, torch.inference_mode(inference):
        for max_bytes in (0, 1 << 20):
            ahead = ReadAhead(wanted.values(), Target(to, CPU), max_bytes=max_bytes)
            with closing(ahead) as reader:
                for name in reversed(oracle):
                    tensor = reader.take(wanted[name])
                    assert tensor.is_inference() == inference
                    assert same_bytes(tensor, oracle[name].to(to))


class Ledger(Target):
    """Keeps account of the bytes that were allocated and not taken."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(dtype, CPU)
        self.outstanding = 0
        self.most = 0

    def empty(self, shape: Shape) -> Tensor:
        tensor = super().empty(shape)
        self.outstanding += tensor.nbytes
        self.most = max(self.most, self.outstanding)
        return tensor

    def hand_over(self, tensor: Tensor, copied: torch.cuda.Event | None) -> None:
        super().hand_over(tensor, copied)
        self.outstanding -= tensor.nbytes


@pytest.fixture
def twenty(tmp_path: Path) -> Path:
    """Twenty matrices of 64 KiB as float32, half of that as stored."""
    tensors = {f"{n:02}": torch.full((128, 128), n, dtype=torch.float16) for n in range(20)}
    save_file(tensors, tmp_path / "m.safetensors")
    return tmp_path / "m.safetensors"


@pytest.mark.usefixtures("small_pieces")
def test_reading_ahead_stays_within_its_byte_limit(twenty: Path) -> None:
    ledger = Ledger(torch.float32)
    with (
        wanted_of(twenty) as wanted,
        closing(ReadAhead(wanted.values(), ledger, max_bytes=200 * KIB)) as reader,
    ):
        until(lambda: reader.held_bytes == 3 * 64 * KIB)  # a fourth would be too much
        for number, name in enumerate(sorted(wanted)):
            tensor = reader.take(wanted[name])
            assert tensor.eq(number).all()
    # The bound, and the requested tensor.
    assert ledger.most <= 200 * KIB + 64 * KIB


@pytest.mark.usefixtures("small_pieces")
def test_beyond_the_bound_only_requested_tensors_are_read(twenty: Path) -> None:
    ledger = Ledger(torch.float32)
    with (
        wanted_of(twenty) as wanted,
        closing(ReadAhead(wanted.values(), ledger, max_bytes=63 * KIB)) as reader,
    ):
        for name in sorted(wanted, reverse=True):
            assert reader.take(wanted[name]).eq(int(name)).all()
            assert reader.held_bytes == 0
    assert ledger.most == 64 * KIB


@pytest.mark.usefixtures("small_pieces")
def test_a_tensor_may_be_read_twice(twenty: Path) -> None:
    with (
        wanted_of(twenty) as wanted,
        closing(ReadAhead(wanted.values(), Target(torch.float32, CPU))) as reader,
    ):
        first, second = reader.take(wanted["03"]), reader.take(wanted["03"])
        first.zero_()
        assert second.eq(3).all()


@pytest.mark.usefixtures("small_pieces")
def test_an_error_in_the_middle_reaches_who_asks_and_ends_the_threads(
    twenty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = TensorFile.read_into

    def failing(file: TensorFile, buffer: memoryview, offset: int) -> None:
        if offset > twenty.stat().st_size // 2:
            raise ZeroDivisionError("a reader's own mistake")
        read(file, buffer, offset)

    with (
        wanted_of(twenty) as wanted,
        closing(ReadAhead(wanted.values(), Target(torch.float32, CPU), max_bytes=0)) as reader,
    ):
        assert len(reader_threads()) > 1
        monkeypatch.setattr(TensorFile, "read_into", failing)
        assert reader.take(wanted["00"]).eq(0).all()
        with pytest.raises(WeightsError, match=r"cannot read 15 of .*: a reader's own mistake"):
            reader.take(wanted["15"])
        until(lambda: not reader_threads())
        with pytest.raises(WeightsError, match="a reader's own mistake"):
            reader.take(wanted["01"])


@pytest.mark.usefixtures("small_pieces")
def test_a_file_cut_while_it_is_read_is_an_error_and_no_crash(twenty: Path) -> None:
    with (
        wanted_of(twenty) as wanted,
        closing(ReadAhead(wanted.values(), Target(torch.float16, CPU), max_bytes=0)) as reader,
    ):
        assert reader.take(wanted["00"]).eq(0).all()
        os.truncate(twenty, twenty.stat().st_size // 2)
        with pytest.raises(WeightsError, match=r"m.safetensors: it ends at byte"):
            reader.take(wanted["19"])


def test_out_of_memory_in_a_reader_is_reported_as_by_torch(twenty: Path) -> None:
    class Full(Target):
        def empty(self, shape: Shape) -> Tensor:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    with (
        wanted_of(twenty) as wanted,
        closing(ReadAhead(wanted.values(), Full(torch.float32, CPU))) as reader,
    ):
        until(lambda: not reader_threads())
        with pytest.raises(torch.OutOfMemoryError):
            reader.take(wanted["07"])


@pytest.mark.usefixtures("small_pieces")
def test_closing_early_ends_the_threads_and_lets_go_of_memory(tmp_path: Path) -> None:
    save_model(VARIANTS["llama"], tmp_path)
    shapes = {n: tuple(t.shape) for n, t in load_file(tmp_path / "model.safetensors").items()}
    checkpoint = CheckpointWeights(
        tmp_path,
        shapes,
        unused=(),
        dtype=torch.float32,
        device=CPU,
        progress=lambda done, total: None,
    )

    def broken_off() -> None:
        with checkpoint:
            checkpoint.tensor("model.norm.weight")
            raise ZeroDivisionError

    assert len(reader_threads()) > 1
    with pytest.raises(ZeroDivisionError):
        broken_off()
    assert not reader_threads()
    with pytest.raises(WeightsError, match="closed"):
        checkpoint.tensor("model.embed_tokens.weight")


def test_a_checkpoint_that_does_not_fit_leaves_neither_threads_nor_files_open(
    tmp_path: Path,
) -> None:
    save_model(VARIANTS["llama_sharded"], tmp_path)
    before = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else None
    with pytest.raises(WeightsError, match="missing: nothing"):
        CheckpointWeights(
            tmp_path,
            {"nothing": (1,)},
            unused=(),
            dtype=torch.float32,
            device=CPU,
            progress=lambda done, total: None,
        )
    assert not reader_threads()
    if before is not None:
        # What else was open may have been closed meanwhile.
        assert set(os.listdir("/proc/self/fd")) <= set(before)
