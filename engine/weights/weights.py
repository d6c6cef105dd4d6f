"""The sources of a model's tensors: a checkpoint's safetensors files, or a random generator."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

from engine.architecture.errors import ConfigError, WeightsError
from engine.architecture.fields import read_object
from engine.architecture.quantization import SEPARATE_FILES
from engine.architecture.schemes import is_codes
from engine.architecture.text_part import TextModelPart, text_name
from engine.sharding.shard import Part
from engine.weights.file import TensorFile
from engine.weights.placing import Target
from engine.weights.reading import READERS, ReadAhead
from engine.weights.stored import (
    SERVED_DTYPES,
    Shape,
    StoredTensor,
    Wanted,
    part,
    stored_tensors,
    whole,
)
from engine.weights.text_part import by_text_name, without_media

Shapes = Mapping[str, Shape]

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

# Prefixes that checkpoints of the bare model omit.
_OPTIONAL_PREFIXES = ("model.", "transformer.", "bert.", "roberta.")
# Buffers that older exporters also saved: recomputed, or never used.
_IGNORED_SUFFIXES = (
    *(".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"),
    *("embeddings.position_ids", "embeddings.token_type_ids"),
)
_SHOWN = 5


class WeightSource(Protocol):
    def tensor(self, name: str) -> Tensor:
        """Return the named tensor, in the engine's dtype, on its device, owned by the caller."""
        ...


class CheckpointWeights:
    """The safetensors files of a model directory, checked against ``shapes`` when opened.

    A context manager: while it is open, tensors are read ahead in the order of ``shapes``, and may
    be requested in any order; for those in ``parts``, this part is read ahead. ``progress(done,
    total)`` is called as each is requested, in elements.
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
        parts: Mapping[str, Part] | None = None,
        readers: int = READERS,
        text_part: TextModelPart | None = None,
    ) -> None:
        """``text_part``: see ``ModelConfig``. Raises WeightsError."""
        self._shapes = shapes
        self._progress = progress
        self._total = sum(math.prod(shape) for shape in shapes.values())
        self._done = 0
        self._ends = ExitStack()
        with ExitStack() as ends:
            stored = by_text_name(opened(directory, ends, text_part), text_part)
            refuse_codes(stored)
            self._named = matched(directory, shapes, stored, unused)
            self._reader = ReadAhead(
                self._expected(parts or {}), Target(dtype, device), readers=readers
            )
            ends.callback(self._reader.close)
            self._ends = ends.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ends.close()

    def tensor(self, name: str) -> Tensor:
        return self._taken(name, whole(self._named[name]))

    def part(self, name: str, dim: int, ranges: tuple[tuple[int, int], ...]) -> Tensor:
        """Return elements ``ranges`` (from the first to before the last) of dimension ``dim`` of
        the named tensor, concatenated. No more than these is read."""
        return self._taken(name, part(self._named[name], dim, ranges))

    def _taken(self, name: str, wanted: Wanted) -> Tensor:
        tensor = self._reader.take(wanted)
        self._done += math.prod(self._shapes[name])
        self._progress(self._done, self._total)
        return tensor

    def _expected(self, parts: Mapping[str, Part]) -> Iterator[Wanted]:
        for name in self._shapes:
            stored = self._named[name]
            held = parts.get(name)
            yield whole(stored) if held is None else part(stored, held.dim, held.ranges)


class RandomWeights:
    """Random weights in a model's shape: normal with standard deviation ``STD`` (the usual
    initialisation of these families), norms one, biases zero. Each tensor depends only on the seed
    and its own name (and on the kind of device that generates it)."""

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
        """See ``CheckpointWeights.part``; the same random numbers for any part."""
        return narrowed(self.tensor(name), dim, ranges)


def narrowed(whole: Tensor, dim: int, ranges: tuple[tuple[int, int], ...]) -> Tensor:
    """Return ``ranges`` (from the first to before the last) of dimension ``dim``, concatenated."""
    return torch.cat([whole.narrow(dim, a, b - a) for a, b in ranges], dim)


def checkpoint_files(directory: Path) -> list[Path]:
    """Return the safetensors files of a checkpoint: the single one if it is there, as transformers
    does, else those that the index names. Raises WeightsError if there are none."""
    if (directory / SINGLE).is_file():
        return [directory / SINGLE]
    names = sorted(set(_weight_map(directory).values()))
    for name in names:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise WeightsError(f"{directory / INDEX} names {name!r}, outside its directory")
        if not _can_be_opened(name):
            raise WeightsError(
                f"{directory / INDEX} names {name!r}, which cannot be the name of a file; "
                "download the index again"
            )
    return [directory / name for name in names]


def _weight_map(directory: Path) -> dict[str, str]:
    """Return the file of each tensor, as the index says. Raises WeightsError if there is none."""
    if not (directory / INDEX).is_file():
        raise WeightsError(
            f"{directory} holds neither {SINGLE} nor {INDEX}; only safetensors weights are read"
        )
    try:
        weight_map = read_object(directory / INDEX).section("weight_map")
    except ConfigError as error:
        raise WeightsError(str(error)) from error
    if weight_map is None or not weight_map.values:
        raise WeightsError(f"{directory / INDEX} maps no weights")
    return {name: str(file) for name, file in weight_map.values.items()}


def _can_be_opened(name: str) -> bool:
    """JSON's texts may have characters that no file name can."""
    try:
        return b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        return False


def opened(
    directory: Path, ends: ExitStack, part: TextModelPart | None = None
) -> Mapping[str, StoredTensor]:
    """Open the files of a checkpoint until ``ends``, and return their tensors by name. ``part``:
    only those that text passes through. Raises WeightsError."""
    found: dict[str, list[StoredTensor]] = {}
    for path in checkpoint_files(directory):
        file = TensorFile(path)
        ends.callback(file.close)
        for each in stored_tensors(file):
            found.setdefault(each.name, []).append(each)
    stored = {
        name: tensors[0] if len(tensors) == 1 else _mapped(directory, tensors)
        for name, tensors in found.items()
    }
    return without_media(stored, part)


def _mapped(directory: Path, tensors: list[StoredTensor]) -> StoredTensor:
    """Return which of several tensors of one name the index means. Raises WeightsError."""
    name = tensors[0].name
    file = _weight_map(directory).get(name)
    for each in tensors:
        if file is not None and each.file.path == directory / file:
            return each
    files = " and ".join(each.file.path.name for each in tensors)
    raise WeightsError(
        f"the tensor {name} is in {files} of {directory}, and {INDEX} does not say which counts; "
        "download the checkpoint again"
    )


def text_shapes(directory: Path, part: TextModelPart | None) -> dict[str, Shape]:
    """Return the shapes of the language model's tensors, by their names in a checkpoint of it
    alone; ``part``: see ``opened``. Raises WeightsError."""
    with ExitStack() as ends:
        stored = opened(directory, ends, part)
        return {text_name(name): each.shape for name, each in stored.items()}


class Described(Protocol):
    """A tensor of a checkpoint: ``dtype`` as safetensors names it."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> Shape: ...

    @property
    def dtype(self) -> str: ...


AnyStored = TypeVar("AnyStored", bound=Described)


def refuse_codes(stored: Mapping[str, Described]) -> None:
    """Raises WeightsError for a quantized tensor, where no file describes how it is quantized."""
    for each in stored.values():
        if is_codes(each.name, each.dtype):
            raise WeightsError(
                f"{each.name} is quantized, but neither a quantization_config in config.json nor "
                f"any of {', '.join(SEPARATE_FILES)} says how; add one ('quire pull' downloads it "
                "if the repository has it), or serve the original checkpoint"
            )


def matched(
    directory: Path, shapes: Shapes, stored: Mapping[str, AnyStored], unused: Iterable[str]
) -> dict[str, AnyStored]:
    """Return the tensor of each name of ``shapes``. Raises WeightsError with all mismatches."""
    named: dict[str, AnyStored] = {}
    known: set[str] = set()
    missing, wrong = [], []
    for name, shape in shapes.items():
        spelling = next((spelling for spelling in spellings(name) if spelling in stored), None)
        if spelling is None:
            missing.append(name)
            continue
        known.add(spelling)
        named[name] = found = stored[spelling]
        if found.shape != tuple(shape):
            wrong.append(f"{found.name} {list(found.shape)} instead of {list(shape)}")
        elif found.dtype not in SERVED_DTYPES:
            wrong.append(f"{found.name} of type {found.dtype}, which is not supported")
    ignored = {spelling for name in unused for spelling in spellings(name)}
    unexpected = [
        each.name
        for name, each in stored.items()
        if name not in known and name not in ignored and not name.endswith(_IGNORED_SUFFIXES)
    ]
    complaints = mismatches(missing=missing, misshapen=wrong, unexpected=unexpected)
    if complaints:
        raise WeightsError(f"the weights in {directory} do not fit its config.json; {complaints}")
    return named


def spellings(name: str) -> list[str]:
    """Return the names by which checkpoints may store the tensor ``name``."""
    bare = [name.removeprefix(p) for p in _OPTIONAL_PREFIXES if name.startswith(p)]
    return [name, *bare]


def mismatches(**found: list[str]) -> str:
    """Return the names of tensors by what is wrong with them; empty if there are none."""
    return "; ".join(f"{what}: {some(names)}" for what, names in found.items() if names)


def some(names: list[str]) -> str:
    """Return the first of ``names``, and how many more there are."""
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
