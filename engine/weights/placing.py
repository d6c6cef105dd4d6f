"""Copies bytes of a file to elements of a tensor, on a device and in a dtype.

A tensor is filled piece by piece. On a CPU, in the stored dtype, the file is read directly into it.
Anything else goes through a small buffer, so that no stored copy of a whole tensor exists; for a
GPU the buffer is pinned, and the copy runs on a separate stream while the next piece is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.weights.file import TensorFile
from engine.weights.stored import Shape, Wanted

# A multiple of every element's size. Larger pieces leave the processor's cache between the read and
# the conversion, smaller ones cost more calls than they save.
READ_PIECE_BYTES = 4 << 20

# Torch splits a larger conversion among its own threads, with a team for each calling thread.
_SERIAL_ELEMENTS = (1 << 15) - 16


@dataclass(frozen=True, slots=True)
class TensorPiece:
    """A piece of the wanted part of a stored tensor, from byte ``first`` of that part: the bytes at
    ``runs`` (offset in the file, bytes), concatenated; at most READ_PIECE_BYTES in total."""

    first: int
    runs: tuple[tuple[int, int], ...]

    @property
    def num_bytes(self) -> int:
        return sum(length for _, length in self.runs)


def pieces_of(wanted: Wanted) -> Iterator[TensorPiece]:
    first = size = 0
    runs: list[tuple[int, int]] = []
    for offset, length in wanted.runs():
        while length:
            taken = min(length, READ_PIECE_BYTES - size)
            runs.append((offset, taken))
            size, offset, length = size + taken, offset + taken, length - taken
            if size == READ_PIECE_BYTES:
                yield TensorPiece(first, tuple(runs))
                first, size, runs = first + size, 0, []
    if runs:
        yield TensorPiece(first, tuple(runs))


class Target:
    """Where tensors are created: ``dtype`` and ``device``. Thread-safe; they are inference tensors
    if it was created in inference mode."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype = dtype
        self.device = device
        self._inference = torch.is_inference_mode_enabled()  # each thread has its own mode
        # Shared by all threads: the bus carries one copy at a time, and this is their order.
        self._stream = (
            torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            if device.type == "cuda"
            else None
        )

    def num_bytes(self, shape: Shape) -> int:
        return torch.Size(shape).numel() * self.dtype.itemsize

    def empty(self, shape: Shape) -> Tensor:
        with torch.inference_mode(self._inference), self.copying():
            return torch.empty(shape, dtype=self.dtype, device=self.device)

    def copying(self) -> AbstractContextManager[Any]:
        """A context in which GPU work goes to the stream of the copies."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def event(self) -> torch.cuda.Event | None:
        """Return an event that occurs when the copies so far are done. None: they are."""
        if self._stream is None:
            return None
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return event

    def hand_over(self, tensor: Tensor, copied: torch.cuda.Event | None) -> None:
        """Pass a tensor to the caller's stream, which waits until it was ``copied``."""
        if copied is not None:
            current = torch.cuda.current_stream(self.device)
            current.wait_event(copied)
            # It was allocated for the stream of the copies, which must not reuse its memory before
            # the caller's stream is done with it.
            tensor.record_stream(current)


class Placer:
    """Copies pieces into tensors of ``target``, for the thread that created it."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._buffers: list[_Buffer] = []
        if target.device.type == "cuda":
            # A thread starts on the first GPU, which is wrong for a rank on another one.
            torch.cuda.set_device(target.device)

    def place(self, piece: TensorPiece, wanted: Wanted, tensor: Tensor) -> None:
        """Copy a piece into ``tensor``, which is for all of ``wanted``. Raises WeightsError."""
        target = self._target
        elements = piece.num_bytes // wanted.dtype.itemsize
        first = piece.first // wanted.dtype.itemsize
        goal = tensor.view(-1)[first : first + elements]
        if target.device.type == "cpu" and target.dtype == wanted.dtype:
            _read(wanted.stored.file, piece, goal)
            return
        buffer = self._next_buffer()
        read = buffer.memory[: piece.num_bytes].view(wanted.dtype)
        _read(wanted.stored.file, piece, read)
        with target.copying():
            if target.device.type == "cpu":
                parts = zip(
                    torch.split(goal, _SERIAL_ELEMENTS),
                    torch.split(read, _SERIAL_ELEMENTS),
                    strict=True,
                )
                for converted, stored in parts:
                    converted.copy_(stored)
            elif target.dtype == wanted.dtype:
                goal.copy_(read, non_blocking=True)
            else:
                goal.copy_(read.to(target.device, non_blocking=True))
        buffer.copied = target.event()

    def _next_buffer(self) -> _Buffer:
        """Return a buffer from which no copy is still being read."""
        pinned = self._target.device.type == "cuda"
        if len(self._buffers) < (2 if pinned else 1):
            buffer = _Buffer(torch.empty(READ_PIECE_BYTES, dtype=torch.uint8, pin_memory=pinned))
        else:
            buffer = self._buffers.pop(0)
        self._buffers.append(buffer)
        if buffer.copied is not None:
            buffer.copied.synchronize()
        return buffer


@dataclass(slots=True)
class _Buffer:
    memory: Tensor
    copied: torch.cuda.Event | None = None


def _read(file: TensorFile, piece: TensorPiece, into: Tensor) -> None:
    """``into``: contiguous, on the CPU."""
    view = into.view(torch.uint8).numpy().data
    first = 0
    for offset, length in piece.runs:
        file.read_into(view[first : first + length], offset)
        first += length
