"""Where a model's tensors come from: a checkpoint's safetensors files, or a random generator."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.model.errors import ConfigError, WeightsError
from engine.model.fields import read_object

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

# Checkpoints of the bare model leave these prefixes out.
_OPTIONAL_PREFIXES = ("model.", "transformer.", "bert.", "roberta.")
# Buffers that older exporters saved along: recomputed, or never used.
_IGNORED_SUFFIXES = (
    *(".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"),
    *("embeddings.position_ids", "embeddings.token_type_ids"),
)
_FLOATING = ("F64", "F32", "F16", "BF16")
_SHOWN = 5


class WeightSource(Protocol):
    def tensor(self, name: str) -> Tensor:
        """The named tensor, in the engine's dtype, on its device, owned by the caller."""
        ...


class Checkpoint:
    """The safetensors files of a model directory, checked against ``shapes`` when opened.

    A context manager: files are mapped while it is open, and tensors are read one at a time.
    ``progress(done, total)`` is called after each tensor, in elements.
    """

    def __init__(
        self,
        directory: Path,
        shapes: Shapes,
        *,
        unused: Iterable[str],
        dtype: torch.dtype,
        device: torch.device,
        progress: Callable[[int, int], None],
    ) -> None:
        self._shapes = shapes
        self._unused = frozenset(unused)
        self._dtype = dtype
        self._device = device
        self._progress = progress
        self._total = sum(math.prod(shape) for shape in shapes.values())
        self._done = 0
        self._files = ExitStack()
        self._stored: dict[str, Any] = {}  # checkpoint name -> open file (safetensors is untyped)
        self._names: dict[str, str] = {}  # our name -> checkpoint name
        try:
            self._open(directory)
            self._match(directory)
        except BaseException:
            self._files.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._files.close()

    def tensor(self, name: str) -> Tensor:
        stored = self._names[name]
        return self._taken(name, self._stored[stored].get_tensor(stored))

    def part(self, name: str, dim: int, ranges: tuple[tuple[int, int], ...]) -> Tensor:
        """Elements ``ranges`` (from the first to before the last) of dimension ``dim`` of the
        named tensor, one range after the other. No more than these is read."""
        stored = self._names[name]
        view = self._stored[stored].get_slice(stored)
        before = (slice(None),) * dim
        pieces = [view[(*before, slice(first, last))] for first, last in ranges]
        return self._taken(name, pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim))

    def _taken(self, name: str, tensor: Tensor) -> Tensor:
        self._done += math.prod(self._shapes[name])
        self._progress(self._done, self._total)
        # A mapped tensor vanishes with its file: the copy is the caller's.
        return tensor.to(self._device, self._dtype, copy=True)

    def _open(self, directory: Path) -> None:
        for path in checkpoint_files(directory):
            try:
                file = self._files.enter_context(safe_open(path, framework="pt"))
            except (OSError, SafetensorError) as error:
                raise WeightsError(f"cannot read {path}: {error}") from error
            self._stored.update((name, file) for name in file.keys())  # noqa: SIM118 no mapping

    def _match(self, directory: Path) -> None:
        """Find each tensor of ``shapes`` and complain, all at once, about what does not fit."""
        missing, wrong = [], []
        for name, shape in self._shapes.items():
            stored = next((n for n in _spellings(name) if n in self._stored), None)
            if stored is None:
                missing.append(name)
                continue
            self._names[name] = stored
            view = self._stored[stored].get_slice(stored)
            if tuple(view.get_shape()) != tuple(shape):
                wrong.append(f"{stored} {list(view.get_shape())} instead of {list(shape)}")
            elif view.get_dtype() not in _FLOATING:
                wrong.append(f"{stored} of type {view.get_dtype()}, which is not served")
        known = set(self._names.values())
        ignored = {spelling for name in self._unused for spelling in _spellings(name)}
        unexpected = [
            name
            for name in self._stored
            if name not in known and name not in ignored and not name.endswith(_IGNORED_SUFFIXES)
        ]
        complaints = [
            f"{what}: {_some(names)}"
            for what, names in (
                ("missing", missing),
                ("misshapen", wrong),
                ("unexpected", unexpected),
            )
            if names
        ]
        if complaints:
            raise WeightsError(
                f"the weights in {directory} do not fit its config.json; " + "; ".join(complaints)
            )


class RandomWeights:
    """Random weights in a model's shape: normal with standard deviation ``STD`` (the usual
    initialisation of these families), norms one, biases zero. Each tensor depends on the seed and
    its own name only (and on the kind of device, which draws them)."""

    STD = 0.02

    def __init__(
        self,
        shapes: Shapes,
        *,
        seed: int,
        dtype: torch.dtype,
        device: torch.device,
        progress: Callable[[int, int], None],
    ) -> None:
        self._shapes = shapes
        self._seed = seed
        self._dtype = dtype
        self._device = device
        self._progress = progress
        self._total = sum(math.prod(shape) for shape in shapes.values())
        self._done = 0

    def tensor(self, name: str) -> Tensor:
        shape = self._shapes[name]
        self._done += math.prod(shape)
        self._progress(self._done, self._total)
        if name.endswith("bias"):
            return torch.zeros(shape, dtype=self._dtype, device=self._device)
        if len(shape) == 1:
            return torch.ones(shape, dtype=self._dtype, device=self._device)
        digest = hashlib.blake2b(f"{self._seed}:{name}".encode(), digest_size=8).digest()
        generator = torch.Generator(self._device)
        generator.manual_seed(int.from_bytes(digest, "little", signed=True))
        values = torch.empty(shape, dtype=torch.float32, device=self._device)
        return values.normal_(0, self.STD, generator=generator).to(self._dtype)

    def part(self, name: str, dim: int, ranges: tuple[tuple[int, int], ...]) -> Tensor:
        """See ``Checkpoint.part``: of the same random numbers, whoever asks for which part."""
        whole = self.tensor(name)
        return torch.cat([whole.narrow(dim, a, b - a) for a, b in ranges], dim)


def checkpoint_files(directory: Path) -> list[Path]:
    """The safetensors files of a checkpoint, sharded or not. Raises WeightsError without any."""
    if (directory / INDEX).is_file():
        try:
            weight_map = read_object(directory / INDEX).section("weight_map")
        except ConfigError as error:
            raise WeightsError(str(error)) from error
        names = sorted({str(name) for name in weight_map.values.values()}) if weight_map else []
        if not names:
            raise WeightsError(f"{directory / INDEX} maps no weights")
        for name in names:
            if Path(name).name != name:
                raise WeightsError(f"{directory / INDEX} names {name!r}, outside its directory")
        return [directory / name for name in names]
    if (directory / SINGLE).is_file():
        return [directory / SINGLE]
    raise WeightsError(
        f"{directory} holds neither {SINGLE} nor {INDEX}; only safetensors weights are read"
    )


def _spellings(name: str) -> list[str]:
    bare = [name.removeprefix(p) for p in _OPTIONAL_PREFIXES if name.startswith(p)]
    return [name, *bare]


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
