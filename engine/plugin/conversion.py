"""Which parameters of a transformers model the tensors of a checkpoint become.

Names and shapes in a checkpoint may differ from those of the model: transformers stacks experts,
joins or divides projections and renames, by rules of each family. They are applied here to a few
tensors at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    dot_natural_key,
    rename_source_key,
)

from engine.architecture.errors import WeightsError
from engine.plugin.building import first_line
from engine.plugin.prediction import predicts
from engine.weights.weights import some

# Names that older exporters also stored: buffers, which the model computes itself. GPT-Neo's are
# masks.
_COMPUTED = (
    r"rotary_emb\.inv_freq",
    r"(^|\.)position_ids$",
    r"\.attn\.attention\.(masked_)?bias$",
)


@dataclass(slots=True)
class TensorGroup:
    """Tensors of a checkpoint that become parameters together. ``target``: the first of these;
    ``sources``: the tensors' names, each with the pattern of the rule that it matches."""

    target: str
    rule: WeightConverter | WeightRenaming
    sources: list[tuple[str, str]] = field(default_factory=list)

    @property
    def renames_only(self) -> bool:
        return isinstance(self.rule, WeightRenaming)

    def parameters(self, tensors: Mapping[str, Tensor], model: Any) -> dict[str, Tensor]:
        """Return the parameters of ``model``, by name, that the named ``tensors`` become. Raises
        WeightsError."""
        if isinstance(self.rule, WeightRenaming):
            [(source, _)] = self.sources
            return {self.target: tensors[source]}
        converter: Any = self.rule
        for source, pattern in self.sources:
            converter.add_tensor(self.target, source, pattern, tensors[source])
        try:
            found = converter.convert(self.target, model=model, config=model.config)
        except Exception as error:
            raise WeightsError(
                f"{self.target} cannot be made of {len(self.sources)} tensors, from "
                f"{self.sources[0][0]} on ({first_line(error)}){self._gaps()}"
            ) from error
        return {name: _single(value) for name, value in found.items()}

    def gaps(self) -> list[str]:
        """Return names of tensors that are absent where others of their kind have a number, such as
        that of an expert."""
        numbers: dict[str, dict[int, str]] = {}
        for name, pattern in self.sources:
            found = re.search(pattern.replace("*.", r"(\d+)\."), name) if "*." in pattern else None
            if found and found.lastindex:
                at = found.span(found.lastindex)
                of_kind = numbers.setdefault(pattern, {})
                of_kind[int(found[found.lastindex])] = f"{name[: at[0]]}{{}}{name[at[1] :]}"
        last = max((max(each) for each in numbers.values()), default=-1)
        return [
            next(iter(each.values())).format(number)
            for each in numbers.values()
            for number in range(last + 1)
            if number not in each
        ]

    def _gaps(self) -> str:
        gaps = self.gaps()
        return f"; missing: {some(gaps)}" if gaps else ""


def _single(value: Tensor | list[Tensor]) -> Tensor:
    return value[0] if isinstance(value, list) else value


class Grouped(NamedTuple):
    """``groups``: layer by layer. ``unexpected``: names that belong to no parameter.
    ``predicting``: those of layers for multi-token prediction, which are not computed."""

    groups: list[TensorGroup]
    unexpected: list[str]
    predicting: list[str]


def tensor_groups(model: Any, names: Iterable[str]) -> Grouped:
    """Say what the named tensors of a checkpoint become in ``model``."""
    rules = get_model_conversion_mapping(model)
    renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
    converters = [rule for rule in rules if isinstance(rule, WeightConverter)]
    by_pattern = {pattern: each for each in converters for pattern in each.source_patterns}
    known = model.state_dict()
    ignored = _ignored(model)
    groups: dict[str, TensorGroup] = {}
    names = sorted(names, key=dot_natural_key)
    is_predicting = predicts(model.config, model.base_model_prefix, names)
    unexpected, predicting = [], []
    for name in names:
        target, pattern = _target(name, renamings, converters, model.base_model_prefix, known)
        if target not in known:
            if is_predicting(name):
                predicting.append(name)
            elif not ignored.search(target):
                unexpected.append(name)
        elif pattern is not None:
            group = groups.setdefault(target, TensorGroup(target, deepcopy(by_pattern[pattern])))
            group.sources.append((name, pattern))
        elif target in groups:
            unexpected.append(name)  # another spelling of one that is there
        else:
            groups[target] = TensorGroup(target, WeightRenaming(name, target), [(name, name)])
    return Grouped(list(groups.values()), unexpected, predicting)


def _target(
    name: str,
    renamings: list[WeightRenaming],
    converters: list[WeightConverter],
    prefix: str,
    known: dict[str, Any],
) -> tuple[str, str | None]:
    """Return the parameter's name, and the pattern of a converter that the tensor matches."""
    target, pattern = rename_source_key(name, renamings, converters, prefix, known)
    if target not in known and name in known:
        return name, None
    return target, pattern


def _ignored(model: Any) -> re.Pattern[str]:
    """Match tensors that the model's class says it does not need."""
    patterns = [*(model._keys_to_ignore_on_load_unexpected or ()), *_COMPUTED]
    return re.compile("|".join(f"({pattern})" for pattern in patterns))


def may_be_missing(model: Any) -> re.Pattern[str]:
    """Match parameters that a checkpoint may leave out."""
    patterns = tuple(model._keys_to_ignore_on_load_missing or ())
    return re.compile("|".join(f"({pattern})" for pattern in patterns) or r"(?!)")


def tied(model: Any) -> Iterator[tuple[str, str]]:
    """Yield the pairs of names that are one parameter: (the copy, the original)."""
    yield from (getattr(model, "all_tied_weights_keys", None) or {}).items()
