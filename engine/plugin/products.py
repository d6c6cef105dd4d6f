"""Linear maps, experts and embeddings of transformers by our compiled products, on a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from engine.cpu.library import Library
from engine.cpu.packed import PackedWeight
from engine.plugin.norms import compiled_norm
from engine.weights.grouped import GroupedWeight

NOTHING: Mapping[str, GroupedWeight] = {}

# What transformers sets for a module of experts that it lets others compute.
_OF_EXPERTS = ("has_gate", "has_bias", "is_transposed", "down_proj", "_apply_gate")


@dataclass(frozen=True, slots=True)
class Products:
    """How to multiply: by ``library`` on so many ``threads``. ``bf16_products``: see
    ``PackedWeight``."""

    library: Library
    threads: int
    bf16_products: bool = False

    def packed(self, weight: Tensor | GroupedWeight, bias: Tensor | None) -> PackedWeight:
        """``weight``: [out, in]."""
        pair_inputs = self.library.pair_inputs if self.bf16_products else 0
        return PackedWeight(weight, bias, self.library.panel, pair_inputs=pair_inputs)


class CompiledLinear(nn.Module):
    """``x @ weight.T + bias`` over packed weights. Computes in float32, whatever x is."""

    def __init__(
        self, weight: Tensor | GroupedWeight, bias: Tensor | None, products: Products
    ) -> None:
        """``weight``: [out, in]."""
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self._linear = products.library.linear
        self._team = products.library.team(products.threads)
        self._packed = products.packed(weight, bias)
        # Some code looks at its dtype (Hunyuan's router). On "meta": computing with it fails.
        self.weight = torch.empty(weight.shape, dtype=torch.float32, device="meta")

    @property
    def num_bytes(self) -> int:
        return self._packed.num_bytes

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        # In few steps: they take as long as the product of one row with a small matrix.
        rows = x if x.dtype == torch.float32 else x.float()
        rows = rows if rows.is_contiguous() else rows.contiguous()
        out = torch.empty(*x.shape[:-1], self.out_features)
        count = out.numel() // self.out_features
        self._linear(self._team, self._packed.struct, rows.data_ptr(), count, out.data_ptr())
        return out if x.dtype == torch.float32 else out.to(x.dtype)


class CompactEmbedding(nn.Module):
    """An embedding that keeps its dtype, and gives vectors of ``dtype``."""

    def __init__(self, weight: nn.Parameter, dtype: torch.dtype) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = weight.shape
        self.weight = weight
        self._dtype = dtype

    def forward(self, ids: Tensor) -> Tensor:
        return functional.embedding(ids, self.weight).to(self._dtype)


class CompiledExperts:
    """Computes a module of experts in its place: tokens sorted by expert, the products of one
    expert after the other."""

    def __init__(
        self, module: Any, products: Products, few_bits: Mapping[str, GroupedWeight]
    ) -> None:
        """Takes the weights out of ``module``, but for those in ``few_bits``, by the name of a
        parameter: the rows of one expert after the other."""
        self._linear = products.library.linear
        self._team = products.library.team(products.threads)
        self._module = (module,)  # what remains of it: activation, gate, norm
        up = "gate_up_proj" if module.has_gate else "up_proj"
        self._ups = _taken(module, up, products, few_bits.get(up))
        self._downs = _taken(module, "down_proj", products, few_bits.get("down_proj"))
        self._post_norm = getattr(module, "has_post_expert_norm", False)

    @property
    def num_bytes(self) -> int:
        return sum(each.num_bytes for each in (*self._ups, *self._downs))

    def __call__(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """[tokens, hidden] of the same; each token's experts and their weights: [tokens, k]."""
        [module] = self._module
        tokens, each = top_k_index.shape
        experts, order = top_k_index.reshape(-1).sort(stable=True)
        runs = _runs(experts.tolist())
        rows = hidden_states.float().index_select(0, order // each)
        inner = self._mapped(self._ups, runs, rows)
        inner = module._apply_gate(inner) if module.has_gate else module.act_fn(inner)
        out = self._mapped(self._downs, runs, inner.float().contiguous())
        if self._post_norm:
            out = module.post_expert_norm(out)
        out = torch.empty_like(out).index_copy_(0, order, out)
        weighted = out.view(tokens, each, out.shape[1]) * top_k_weights.unsqueeze(-1)
        return weighted.sum(1).to(hidden_states.dtype)

    def _mapped(
        self, maps: list[PackedWeight], runs: list[tuple[int, int, int]], rows: Tensor
    ) -> Tensor:
        out = torch.empty(rows.shape[0], maps[0].outputs)
        row_bytes, out_bytes = 4 * rows.shape[1], 4 * out.shape[1]
        source, goal = rows.data_ptr(), out.data_ptr()
        for expert, first, last in runs:
            self._linear(
                self._team,
                maps[expert].struct,
                source + first * row_bytes,
                last - first,
                goal + first * out_bytes,
            )
        return out


def _runs(experts: list[int]) -> list[tuple[int, int, int]]:
    """Return (expert, first row, row after the last) of sorted ``experts``."""
    starts = [at for at, one in enumerate(experts) if not at or one != experts[at - 1]]
    ends = [*starts, len(experts)][1:]
    return [(experts[start], start, end) for start, end in zip(starts, ends, strict=True)]


def _taken(
    module: Any, name: str, products: Products, few_bits: GroupedWeight | None
) -> list[PackedWeight]:
    """Pack the map of each expert, and remove the parameter."""
    stacked = getattr(module, name).data
    count = len(stacked)
    weights: list[Tensor | GroupedWeight]
    if few_bits is None:
        weights = [weight.t() if module.is_transposed else weight for weight in stacked]
    else:
        rows = few_bits.shape[0] // count
        weights = [few_bits.slice(expert * rows, rows) for expert in range(count)]
    biases = getattr(module, f"{name}_bias").data if module.has_bias else [None] * count
    packed = [products.packed(weight, bias) for weight, bias in zip(weights, biases, strict=True)]
    for parameter in (name, f"{name}_bias"):
        if parameter in module._parameters:
            setattr(module, parameter, None)
    return packed


def takes_stored(module: nn.Module) -> bool:
    """Whether ``replace_part`` takes the parameters of ``module`` in any dtype. Classes derived
    from these may compute something else."""
    return is_linear(module) or _is_embedding(module) or _has_experts(module)


def takes_few_bits(module: Any, parameter: str) -> bool:
    """Whether ``replace_part`` takes a parameter of ``module`` in few bits."""
    if _is_plain_linear(module):
        return parameter == "weight"
    return _has_experts(module) and parameter in ("gate_up_proj", "up_proj", "down_proj")


def replace_part(
    model: nn.Module,
    name: str,
    products: Products,
    dtype: torch.dtype = torch.float32,
    few_bits: Mapping[str, GroupedWeight] = NOTHING,
) -> None:
    """Let ``products`` compute the named part of ``model``, if they can. ``dtype``: of vectors of
    an embedding; ``few_bits``: parameters to use instead of the module's."""
    module: Any = model.get_submodule(name)
    part: nn.Module
    if _is_plain_linear(module):
        weight = few_bits.get("weight", module.weight.data)
        part = CompiledLinear(weight, _data(module.bias), products)
    elif type(module) is Conv1D:  # GPT-2's, stored [in, out]
        part = CompiledLinear(module.weight.data.t(), _data(module.bias), products)
    elif _is_embedding(module):
        if module.weight.dtype == dtype:
            return
        part = CompactEmbedding(module.weight, dtype)
    elif (norm := compiled_norm(module, products.library)) is not None:
        part = norm
    elif _has_experts(module):
        module.forward = CompiledExperts(module, products, few_bits)
        for left in module.parameters(recurse=False):
            left.data = left.data.to(dtype)
        return
    else:
        return
    parent, _, own = name.rpartition(".")
    setattr(model.get_submodule(parent), own, part)


def weight_bytes(model: nn.Module) -> int:
    """Return the bytes of all weights that ``model`` keeps, in whatever form."""
    size = sum(each.nbytes for each in model.parameters())
    for part in model.modules():
        if isinstance(part, CompiledLinear):
            size += part.num_bytes
        elif isinstance(part.forward, CompiledExperts):
            size += part.forward.num_bytes
    return size


def use_products(model: nn.Module, products: Products) -> None:
    """Replace the parts of ``model``, one after the other, so that at most one is there twice."""
    for name, _ in list(model.named_modules()):
        if name:
            replace_part(model, name, products)


def is_linear(module: nn.Module) -> bool:
    return _is_plain_linear(module) or type(module) is Conv1D


def _is_plain_linear(module: nn.Module) -> bool:
    return type(module) is nn.Linear or type(module).__name__ == "FalconLinear"


def _is_embedding(module: Any) -> bool:
    return type(module) is nn.Embedding and module.max_norm is None


def _has_experts(module: Any) -> bool:
    if not all(hasattr(module, name) for name in _OF_EXPERTS):
        return False
    weight = getattr(module, "gate_up_proj" if module.has_gate else "up_proj", None)
    return isinstance(weight, Tensor) and weight.dim() == 3


def _data(parameter: nn.Parameter | None) -> Tensor | None:
    return None if parameter is None else parameter.data
