"""Reads a checkpoint's weights into a model of transformers, a few tensors at a time.

The model is created with parameters that take no memory. Each tensor is read in the dtype in which
it is stored, and takes its final form at once: packed for our products, where they compute it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine.architecture.errors import WeightsError
from engine.architecture.text_part import TextModelPart
from engine.gguf.names import LINK
from engine.plugin.building import first_line, new_model
from engine.plugin.config import PluginConfig
from engine.plugin.conversion import TensorGroup, may_be_missing, tensor_groups, tied
from engine.plugin.corrections import correct
from engine.plugin.gguf import GgufTensors
from engine.plugin.inline import implementation
from engine.plugin.products import Products, is_linear, replace_part, takes_few_bits, takes_stored
from engine.plugin.tensors import CheckpointTensors
from engine.weights.grouped import GroupedWeight
from engine.weights.weights import RandomWeights, mismatches, some

logger = logging.getLogger(__name__)

_ALIGNMENT = 64  # bytes

OnLoaded = Callable[[int], None]
AnyTensors = CheckpointTensors | GgufTensors


def loaded_model(
    config: PluginConfig,
    directory: Path,
    device: torch.device,
    dtype: torch.dtype,
    products: Products | None = None,
    on_loaded: OnLoaded = lambda done: None,
) -> nn.Module:
    """Return the model with the checkpoint's weights, which must be exactly its parameters.
    ``products``: compute its linear maps by them; ``on_loaded`` is called with the number of
    parameters read so far. Raises WeightsError."""
    model = empty_model(config.source, dtype)
    filling = _Filling(model, device, dtype, products, on_loaded)
    with ExitStack() as ends:
        tensors = _tensors(config, directory, ends, model)
        groups, unexpected, predicting = tensor_groups(model, tensors.names)
        if predicting:
            logger.info("left out what only multi-token prediction needs: %s", some(predicting))
        filling.unexpected = tensors.unexpected(unexpected)
        borrowing = {id(group) for group in groups if filling.packs_at_once(group, tensors)}
        sizes = [
            tensors.num_bytes(name)
            for group in groups
            for name, _ in group.sources
            if id(group) in borrowing
        ]
        # One piece of memory for all that is packed: pieces that come and go leave gaps, which
        # would add up to half of the model.
        memory = torch.empty(max(sizes, default=0), dtype=torch.uint8)
        for group in groups:
            if filling.keeps_few_bits(group) and filling.fill_few_bits(group, tensors):
                continue
            borrowed = id(group) in borrowing
            room = memory[:0] if group.renames_only and not borrowed else memory
            read = _read([name for name, _ in group.sources], tensors, room)
            found = group.parameters(read, model)
            del read
            while found:
                name, value = found.popitem()
                if not borrowed and _is_in(value, memory):
                    value = value.clone()
                filling.fill(name, value, group.gaps, borrowed=borrowed)
        tensors.log()
    complaints = filling.finish()
    if complaints:
        raise WeightsError(f"the weights in {directory} do not fit its config.json; {complaints}")
    return model.to(device)


def _read(names: list[str], tensors: AnyTensors, room: Tensor) -> dict[str, Tensor]:
    """Read tensors, into ``room`` as long as they fit, so that no memory is allocated for those."""
    read = {}
    for name in names:
        size = tensors.num_bytes(name) if tensors.reads_in_place(name) else 0
        if 0 < size <= room.numel():
            read[name] = tensors.read(name, room)
            room = room[-(-size // _ALIGNMENT) * _ALIGNMENT :]
        else:
            read[name] = tensors.read(name)
    return read


def _is_in(value: Tensor, memory: Tensor) -> bool:
    return value.untyped_storage().data_ptr() == memory.untyped_storage().data_ptr()


def _tensors(
    config: PluginConfig, directory: Path, ends: ExitStack, model: nn.Module
) -> AnyTensors:
    dtype = getattr(torch, config.dtype)
    if (path := directory / LINK).exists():
        return GgufTensors(path, ends, model, dtype)
    return CheckpointTensors(directory, ends, dtype, config.text_part)


def holds_head_of(model: Any, directory: Path, text_part: TextModelPart | None) -> bool:
    """Return whether files hold what the output head of ``model`` needs; True if that is nothing,
    as the embeddings serve as the head. Raises WeightsError."""
    body = {id(parameter) for parameter in model.base_model.parameters()}
    head = {name for name, each in model.named_parameters() if id(each) not in body}
    if not head:
        return True
    with ExitStack() as ends:
        # Nothing is read, so the dtype does not matter.
        names = CheckpointTensors(directory, ends, torch.float32, text_part).names
    return any(group.target in head for group in tensor_groups(model, names).groups)


def random_model(
    config: PluginConfig,
    seed: int,
    device: torch.device,
    dtype: torch.dtype,
    products: Products | None = None,
    on_loaded: OnLoaded = lambda done: None,
) -> nn.Module:
    """Return the model with random weights, as ``RandomWeights`` makes them. Buffers are as
    transformers computes them."""
    model = empty_model(config.source, dtype)
    filling = _Filling(model, device, dtype, products, on_loaded)
    parameters = {name: tuple(each.shape) for name, each in model.named_parameters()}
    source = RandomWeights(
        parameters, seed=seed, dtype=dtype, device=device, progress=lambda done, total: None
    )
    for name in parameters:
        filling.fill(name, source.tensor(name))
    filling.finish()
    return model.to(device)


def empty_model(source: Any, dtype: torch.dtype) -> nn.Module:
    """Return a model whose buffers are as transformers computes them, and whose parameters are
    zeros without memory: single elements that are read many times."""
    outline: Any = new_model(source, torch.device("meta"), dtype)
    copies = {copy for copy, _ in tied(outline)}
    optional = may_be_missing(outline)
    zeros = {
        name: torch.zeros((), dtype=each.dtype).expand(each.shape)
        for name, each in outline.named_parameters()
        if name not in copies and not optional.search(name)
    }
    try:
        model: nn.Module = type(outline).from_pretrained(
            None,
            config=deepcopy(source),
            state_dict=zeros,
            dtype=dtype,
            attn_implementation=implementation(source),
            ignore_mismatched_sizes=True,
        )
    except Exception as error:
        raise WeightsError(f"transformers cannot create the model ({first_line(error)})") from error
    correct(model, source)
    return model.requires_grad_(False).eval()


@dataclass(slots=True)
class _Filling:
    """Puts weights into ``model``, whose dtype is ``dtype``, and notes what does not fit."""

    model: nn.Module
    device: torch.device
    dtype: torch.dtype
    products: Products | None
    on_loaded: OnLoaded
    unexpected: list[str] = field(default_factory=list)
    _misshapen: list[str] = field(default_factory=list)
    _gaps: list[str] = field(default_factory=list)
    _done: int = 0
    _copies: dict[str, str] = field(default_factory=dict)  # of tied parameters: to the original
    _filled: set[str] = field(default_factory=set)
    _missing: dict[str, set[str]] = field(default_factory=dict)  # by the name of a part
    _few_bits: dict[str, dict[str, GroupedWeight]] = field(default_factory=dict)  # likewise

    def __post_init__(self) -> None:
        self._copies = dict(tied(self.model))
        optional = may_be_missing(self.model)
        for name in self.model.state_dict():
            if not optional.search(name):
                part, own = _divided(name)
                self._missing.setdefault(part, set()).add(own)

    def fill(
        self,
        name: str,
        value: Tensor,
        gaps: Callable[[], list[str]] = list,
        *,
        borrowed: bool = False,
    ) -> None:
        """``gaps``: tensors that are missing if the shape is wrong. ``borrowed``: the caller uses
        the memory of ``value`` again."""
        part, own = _divided(name)
        module = self.model.get_submodule(part)
        current = getattr(module, own, None)
        if current is None:
            self.unexpected.append(name)
            return
        self._filled.add(name)
        self._missing.get(part, set()).discard(own)
        if current.shape != value.shape:
            missing = gaps()
            self._gaps += missing
            if not missing:
                shapes = f"{list(value.shape)} instead of {list(current.shape)}"
                self._misshapen.append(f"{name} {shapes}")
            return
        if borrowed and self._missing.get(part):
            value = value.clone()
        self._set(module, own, value, current.dtype)
        self._done += value.numel()
        self.on_loaded(self._done)
        if not self._missing.get(part) and not self._is_tied(part):
            self._finish(part)

    def packs_at_once(self, group: TensorGroup, tensors: AnyTensors) -> bool:
        """Whether ``fill`` packs the parameter that a tensor becomes, and keeps it in no other
        form."""
        part, own = _divided(group.target)
        return (
            self.products is not None
            and group.renames_only
            and tensors.reads_in_place(group.sources[0][0])
            and not self._is_tied(part)
            and is_linear(self.model.get_submodule(part))
            and own == "weight"
        )

    def keeps_few_bits(self, group: TensorGroup) -> bool:
        """Whether our products compute with the parameter in few bits, if it is so."""
        part, own = _divided(group.target)
        return (
            self.products is not None
            and group.renames_only
            and not self._is_tied(part)
            and takes_few_bits(self.model.get_submodule(part), own)
        )

    def fill_few_bits(self, group: TensorGroup, tensors: AnyTensors) -> bool:
        """Keep a parameter in few bits; False if it is not stored so. Raises WeightsError."""
        [(source, _)] = group.sources
        part, own = _divided(group.target)
        current = getattr(self.model.get_submodule(part), own)
        found = tensors.grouped(source)
        if found is None or found[1] != tuple(current.shape):
            return False
        weight, shape = found
        self._few_bits.setdefault(part, {})[own] = weight
        self._filled.add(group.target)
        self._missing.get(part, set()).discard(own)
        self._done += prod(shape)
        self.on_loaded(self._done)
        if not self._missing.get(part):
            self._finish(part)
        return True

    def finish(self) -> str:
        """Tie what is one parameter, and return complaints."""
        for copy, original in self._copies.items():
            self._tie(copy, original)
        names = (*self._copies.values(), *self._copies)
        for part in dict.fromkeys(_divided(name)[0] for name in names):
            if not self._missing.get(part):
                self._finish(part)
        missing = [
            f"{part}.{own}".removeprefix(".")
            for part, names in self._missing.items()
            for own in sorted(names)
        ]
        return mismatches(
            missing=missing + self._gaps, misshapen=self._misshapen, unexpected=self.unexpected
        )

    def _is_tied(self, part: str) -> bool:
        names = (*self._copies, *self._copies.values())
        return any(_divided(name)[0] == part for name in names)

    def _set(self, module: nn.Module, own: str, value: Tensor, dtype: torch.dtype) -> None:
        """Rounds as the model's ``dtype`` needs. What is packed later is not widened before."""
        widens = dtype == torch.float32 and value.dtype in (torch.bfloat16, torch.float16)
        if not (widens and self.products is not None and takes_stored(module)):
            value = value.to(dtype)
        value = value.to(self.device)
        if own in module._parameters:
            value = nn.Parameter(value, requires_grad=False)
        setattr(module, own, value)

    def _tie(self, copy: str, original: str) -> None:
        if original in self._filled and copy in self._filled:
            ours, other = (self.model.get_parameter(name) for name in (original, copy))
            if not torch.equal(ours, other):
                return  # config.json is wrong: two parameters are stored
        source, target = (original, copy) if original in self._filled else (copy, original)
        if source not in self._filled:
            return
        part, own = _divided(target)
        module, value = self.model.get_submodule(part), self.model.get_parameter(source)
        if not takes_stored(module):
            value.data = value.data.to(self.dtype)
        setattr(module, own, value)
        self._missing.get(part, set()).discard(own)

    def _finish(self, part: str) -> None:
        if self.products is not None and part:
            few_bits = self._few_bits.pop(part, {})
            replace_part(self.model, part, self.products, self.dtype, few_bits)


def _divided(name: str) -> tuple[str, str]:
    """Return the name of a module, and that of the parameter in it."""
    part, _, own = name.rpartition(".")
    return part, own
