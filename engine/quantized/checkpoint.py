"""The tensors of a quantized checkpoint, by the names that they have in an unquantized one."""

from __future__ import annotations

from collections.abc import Mapping

from engine.architecture.errors import WeightsError
from engine.architecture.schemes import QuantizedFormat, is_codes
from engine.architecture.text_part import TextModelPart, module_names
from engine.quantized.layouts import ModuleParts, QuantizedTensor, quantized_tensor
from engine.weights.stored import StoredTensor

# For inputs and for keys and values in few bits, which are not rounded here as these say.
_UNUSED = frozenset(
    (
        *("input_scale", "input_global_scale", "input_zero_point", "activation_scale"),
        *("act_scale", "output_scale", "q_scale", "k_scale", "v_scale", "kv_scale", "prob_scale"),
        *("k_zero_point", "v_zero_point"),
    )
)


def named_tensors(
    stored: Mapping[str, StoredTensor],
    quantized: QuantizedFormat,
    text_part: TextModelPart | None = None,
) -> dict[str, StoredTensor | QuantizedTensor]:
    """Return the tensors of a checkpoint, with its matrices in place of their parts. ``text_part``:
    see ``ModelConfig``. Raises WeightsError for one whose parts do not fit."""
    matrices: dict[str, QuantizedTensor] = {}
    for each in stored.values():
        module, _, own = each.name.rpartition(".")
        if not is_codes(each.name, each.dtype):
            continue
        scheme = quantized.scheme_of(*([module] if text_part is None else module_names(module)))
        if scheme is None:
            raise WeightsError(f"quantization_config does not say how {each.name} is stored")
        found = quantized_tensor(ModuleParts(module, stored), own, scheme)
        if found.name in matrices:
            raise WeightsError(f"{found.name} is stored twice")
        matrices[found.name] = found
    taken = {name for matrix in matrices.values() for name in matrix.taken}
    plain = {
        name: each
        for name, each in stored.items()
        if name not in taken and name.rpartition(".")[2] not in _UNUSED
    }
    for name in matrices:
        if name in plain:
            raise WeightsError(f"{name} is stored twice")
    return {**plain, **matrices}
