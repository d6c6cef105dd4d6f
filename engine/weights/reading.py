"""Reads a checkpoint's tensors ahead of the code that builds the model from them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.architecture.errors import WeightsError
from engine.weights import placing
from engine.weights.placing import Placer, Target, TensorPiece, pieces_of
from engine.weights.stored import Wanted

READERS = 4
READ_AHEAD_BYTES = 256 << 20


@dataclass(slots=True, eq=False)
class _Begun:
    """A tensor of which pieces have been read, or are about to be."""

    wanted: Wanted
    tensor: Tensor
    num_bytes: int
    pieces: Iterator[TensorPiece]
    missing: int  # bytes as stored
    copied: torch.cuda.Event | None = None


class ReadAhead:
    """Threads that read tensors in the order of ``expected``, each in pieces that the threads
    share. It must always be closed.

    Tensors read but not taken yet, whole or in part, hold at most ``max_bytes`` on ``target``; a
    larger tensor is read when it is requested. A tensor that is requested out of order, or was not
    expected, is read before all others.
    """

    def __init__(
        self,
        expected: Iterable[Wanted],
        target: Target,
        *,
        readers: int = READERS,
        max_bytes: int = READ_AHEAD_BYTES,
    ) -> None:
        self._expected = OrderedDict.fromkeys(expected)
        self._target = target
        self._max_bytes = max_bytes
        self._held = 0
        self._begun: dict[Wanted, _Begun] = {}  # and not taken
        self._unread: list[_Begun] = []  # with pieces that no thread has begun, the last one first
        self._failure: Exception | None = None
        self._closed = False
        self._changed = threading.Condition()
        pieces = sum(-(-wanted.num_bytes // placing.READ_PIECE_BYTES) for wanted in self._expected)
        self._threads = [
            threading.Thread(target=self._work, name=f"weights-{number}", daemon=True)
            for number in range(max(1, min(readers, pieces)))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def held_bytes(self) -> int:
        """Bytes held by tensors read ahead."""
        with self._changed:
            return self._held

    def take(self, wanted: Wanted) -> Tensor:
        """Return a tensor, which then belongs to the caller. Raises WeightsError, and what torch
        raises when memory runs out."""
        with self._changed:
            self._expected.pop(wanted, None)
            begun = self._begun.pop(wanted, None)
            if begun is None:
                begun = self._begin(wanted)
            else:
                self._held -= begun.num_bytes
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: begun.missing == 0 or self._closed or self._failure is not None
            )
            if begun.missing:
                raise self._failure or WeightsError("the checkpoint is closed")
        self._target.hand_over(begun.tensor, begun.copied)
        return begun.tensor

    def close(self) -> None:
        """End the threads, and release tensors that were not taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._begun.clear()
        self._unread.clear()
        self._held = 0

    # --- with the lock -------------------------------------------------------------------------

    def _begin(self, wanted: Wanted) -> _Begun:
        tensor = self._target.empty(wanted.shape)
        begun = _Begun(
            wanted,
            tensor,
            num_bytes=tensor.nbytes,
            pieces=pieces_of(wanted),
            missing=wanted.num_bytes,
        )
        if begun.missing:
            self._unread.append(begun)
        return begun

    def _next_piece(self) -> tuple[_Begun, TensorPiece] | None:
        """Return the next piece to read; None if there is nothing to read, or no room for it."""
        while self._unread or self._begin_next():
            while self._unread:
                begun = self._unread[-1]
                piece = next(begun.pieces, None)
                if piece is not None:
                    return begun, piece
                self._unread.pop()
        return None

    def _begin_next(self) -> bool:
        """Begin the next expected tensor, if there is room for it."""
        wanted = next(iter(self._expected), None)
        if wanted is None or self._held + self._target.num_bytes(wanted.shape) > self._max_bytes:
            return False
        del self._expected[wanted]
        begun = self._begun[wanted] = self._begin(wanted)
        self._held += begun.num_bytes
        return True

    # --- the threads ---------------------------------------------------------------------------

    def _work(self) -> None:
        # In this mode a thread may write to inference tensors and to others.
        with torch.inference_mode():
            placer = Placer(self._target)
            while self._read_one(placer):
                pass

    def _read_one(self, placer: Placer) -> bool:
        """Read one piece; False to stop. Between calls a thread holds no tensor."""
        begun = None
        try:
            with self._changed:
                while (found := None if self._is_over else self._next_piece()) is None:
                    if self._is_over:
                        return False
                    self._changed.wait()
            begun, piece = found
            placer.place(piece, begun.wanted, begun.tensor)
            with self._changed:
                begun.missing -= piece.num_bytes
                if begun.missing == 0:
                    begun.copied = self._target.event()
                    self._changed.notify_all()
        except Exception as error:
            self._fail(error, begun)
            return False
        return True

    @property
    def _is_over(self) -> bool:
        return self._closed or self._failure is not None

    def _fail(self, error: Exception, begun: _Begun | None) -> None:
        if not isinstance(error, WeightsError | torch.OutOfMemoryError):
            what = "the weights"
            if begun is not None:
                what = f"{begun.wanted.stored.name} of {begun.wanted.stored.file.path}"
            failure: Exception = WeightsError(f"cannot read {what}: {error}")
            failure.__cause__ = error
        else:
            failure = error
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()
