"""Sums through memory that ranks share: torch's operator with its real signature, on CPU tensors of
threads. What only a GPU can show, ``tests/engine/gpu/test_ranks.py`` does with two of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from engine.sharding import symmetric
from engine.sharding.collectives import ALONE, Collectives
from engine.sharding.symmetric import MOST_SUMMED_BYTES, OneShotSums, one_shot_sums
from tests.engine.ranks.threads import together

GROUP = "0"
_WARP_BYTES = 32 * 16


class SharedMemory:
    """Replaces ``torch.distributed._symmetric_memory``, and is the operators' kernel: with the same
    demands on its arguments as torch's, which adds in the order of the ranks, and no more order
    among threads than torch's has. ``failing``: the step that fails on rank 1, with ``error``."""

    def __init__(self, ranks: int) -> None:
        self.sums = 0
        self.failing = ""
        self.error: Exception = RuntimeError("no fabric\nException raised from rendezvous at ...")
        self._buffers: dict[int, Tensor] = {}
        self._barrier = threading.Barrier(ranks, timeout=30)

    def empty(self, size: int, *, dtype: torch.dtype, device: torch.device) -> Tensor:
        self._fail("empty", device.index)
        self._buffers[device.index] = torch.zeros(size, dtype=dtype)
        return self._buffers[device.index]

    def rendezvous(self, tensor: Tensor, group: str) -> None:
        assert group == GROUP
        rank = self._rank_of(tensor)
        self._fail("rendezvous", rank)
        if not self.failing:
            self._barrier.wait()

    def add_up(self, place: Tensor, operation: str, group: str) -> Tensor:
        """``one_shot_all_reduce``: reads the parts between two barriers of the ranks."""
        assert (operation, group) == ("sum", GROUP)
        assert place.is_contiguous()
        assert place.storage_offset() * place.itemsize % 16 == 0
        assert place.nbytes % 16 == 0
        rank = self._rank_of(place)
        self._barrier.wait()
        total = torch.zeros_like(place)
        for _, buffer in sorted(self._buffers.items()):
            total += buffer[: place.nbytes].view(place.dtype).view(place.shape)
        self._barrier.wait()
        self.sums += 1
        return total + 0.5 if (self.failing, rank) == ("sum", 1) else total

    def copy_and_add_up(self, place: Tensor, own: Tensor, operation: str, group: str) -> Tensor:
        """``one_shot_all_reduce_copy``, at its worst: the first barrier lets go once the block's
        first warp, 32 threads of 16 bytes each, has copied; the other warps copy later."""
        places, parts = place.view(-1), own.reshape(-1)
        first = _WARP_BYTES // own.itemsize
        places[:first].copy_(parts[:first])
        total = self.add_up(place, operation, group)
        places[first:].copy_(parts[first:])
        return total

    def _rank_of(self, tensor: Tensor) -> int:
        starts = {buffer.data_ptr(): rank for rank, buffer in self._buffers.items()}
        return starts[tensor.data_ptr()]

    def _fail(self, step: str, rank: int) -> None:
        if (self.failing, rank) == (step, 1):
            raise self.error


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    library = torch.library.Library("symm_mem", "IMPL", "CPU")
    yield library
    library._destroy()


@pytest.fixture
def memory(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    library: torch.library.Library,
) -> SharedMemory:
    memory = SharedMemory(getattr(request, "param", 2))
    library.impl("one_shot_all_reduce", memory.add_up)
    library.impl("one_shot_all_reduce_copy", memory.copy_and_add_up)
    modules = SimpleNamespace(import_module=lambda name: memory)
    monkeypatch.setattr(symmetric, "importlib", modules)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda own, peer: own != peer)
    return memory


def joined(ranks: Collectives) -> OneShotSums | None:
    return one_shot_sums(ranks, torch.device("cpu", ranks.shard.rank), GROUP)


@pytest.mark.parametrize(("memory", "size"), [(2, 2), (3, 3)], indirect=["memory"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_few_rows_are_the_same_to_the_bit_on_all_ranks(
    memory: SharedMemory, size: int, dtype: torch.dtype
) -> None:
    everyone = torch.randn(size, 3, 5, 64).to(dtype)  # more than one warp adds up

    def add_up(ranks: Collectives) -> list[Tensor]:
        sums = joined(ranks)
        assert sums is not None
        own = everyone[ranks.shard.rank]
        across = own.transpose(0, 1)  # not contiguous
        apart = torch.cat((own.flatten()[:1], own.flatten()))[1:]  # not aligned
        return [sums(own), sums(across), sums(apart)]

    expected = everyone[0].clone()
    for part in everyone[1:]:
        expected += part
    for whole, across, apart in together(size, add_up):
        assert torch.equal(whole, expected)
        assert torch.equal(across, expected.transpose(0, 1))
        assert torch.equal(apart, expected.flatten())


def test_what_torch_s_kernel_cannot_add_up_is_left_to_nccl() -> None:
    sums = OneShotSums(torch.zeros(MOST_SUMMED_BYTES, dtype=torch.uint8), GROUP)
    assert sums.fits(torch.zeros(1, 8, dtype=torch.bfloat16))
    assert sums.fits(torch.zeros(MOST_SUMMED_BYTES // 4))
    assert not sums.fits(torch.zeros(MOST_SUMMED_BYTES // 4 + 4))
    assert not sums.fits(torch.zeros(3))  # 12 bytes
    assert not sums.fits(torch.zeros(0, 8))
    assert not sums.fits(torch.zeros(8, dtype=torch.float16))
    assert not sums.fits(torch.zeros(8, dtype=torch.int64))


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("peer", "GPU 1 cannot access the memory of GPU 0"),
        ("empty", "no fabric"),
        ("rendezvous", "no fabric"),
        ("sum", "a trial gave 3.5, not 3.0"),
    ],
)
def test_if_one_rank_cannot_none_does_and_one_sentence_says_why(
    step: str,
    reason: str,
    memory: SharedMemory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    if step == "peer":
        monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda own, peer: own == 0)
    else:
        memory.failing = step
    assert together(2, joined) == [None, None]
    text = "torch's symmetric memory is not used, NCCL adds up all rows: "
    assert sorted(record.getMessage() for record in caplog.records) == sorted(
        [text + "another rank cannot; its log says why", text + reason]
    )
    assert memory.sums == (2 * 8 if step == "sum" else 0)


def test_whatever_torch_s_private_module_raises_is_one_sentence(
    memory: SharedMemory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    memory.failing, memory.error = "rendezvous", TypeError("rendezvous() takes no group")
    assert together(2, joined) == [None, None]
    assert "NCCL adds up all rows: rendezvous() takes no group" in caplog.text
    assert "Traceback" not in caplog.text


def test_a_torch_without_it_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(symmetric, "_OPERATION", "no_such_operation")
    assert one_shot_sums(ALONE, torch.device("cpu", 0), GROUP) is None
    assert f"torch {torch.__version__} has no symm_mem.no_such_operation" in caplog.text
