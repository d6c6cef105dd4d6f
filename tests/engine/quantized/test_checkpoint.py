"""The tensors have the names of an unquantized checkpoint; hostile ones are refused or read."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.architecture.errors import WeightsError
from engine.architecture.fields import ConfigFields
from engine.architecture.quantization import quantized_format
from engine.architecture.text_part import TEXT_PARTS, TextModelPart
from engine.quantized.checkpoint import named_tensors
from engine.quantized.layouts import QuantizedTensor
from engine.quantized.weights import dequantised
from engine.weights.stored import StoredTensor
from engine.weights.weights import opened
from tests.engine.quantized.making import FORMATS, packed

DTYPES = (torch.int32, torch.int8, torch.uint8, torch.float16, torch.float32, torch.float8_e4m3fn)


def found(
    directory: Path,
    ends: ExitStack,
    config: dict,
    tensors: dict[str, Tensor],
    text_part: TextModelPart | None = None,
) -> dict[str, StoredTensor | QuantizedTensor]:
    save_file(
        {name: each.contiguous() for name, each in tensors.items()}, directory / "model.safetensors"
    )
    quantized = quantized_format(ConfigFields("config.json", config))
    return named_tensors(opened(directory, ends), quantized, text_part)


def test_parts_become_matrices_and_the_rest_stays(tmp_path: Path) -> None:
    kind = FORMATS["ct_int8"]
    made = kind.make(np.random.default_rng(0), 8, 32, 32, 0.1)
    tensors = {f"a.b.{own}": each for own, each in made.tensors.items()}
    tensors |= {
        "a.b.bias": torch.ones(8),
        "a.b.input_scale": torch.ones(1),
        "a.k_scale": torch.ones(1),
        "a.b.act_scale": torch.ones(1),
        "a.kv_scale": torch.ones(1),
        "a.prob_scale": torch.ones(1),
        "norm.weight": torch.ones(32),
        "lm_head.weight": torch.ones(8, 32),
    }
    with ExitStack() as ends:
        named = found(tmp_path, ends, kind.config(32), tensors)
        assert named.keys() == {"a.b.weight", "a.b.bias", "norm.weight", "lm_head.weight"}
        matrix = named["a.b.weight"]
        assert isinstance(matrix, QuantizedTensor)
        assert matrix.shape == (8, 32)


def test_codes_without_a_scheme_are_refused(tmp_path: Path) -> None:
    made = FORMATS["gptq"].make(np.random.default_rng(0), 8, 32, 32, 0.1)
    tensors = {f"a.{own}": each for own, each in made.tensors.items()}
    config = {**FORMATS["gptq"].config(32), "dynamic": {"-:a": {}}}
    with (
        ExitStack() as ends,
        pytest.raises(
            WeightsError, match=r"quantization_config does not say how a\.qweight is stored"
        ),
    ):
        found(tmp_path, ends, config, tensors)


def test_rules_may_name_a_text_model_as_files_do_not(tmp_path: Path) -> None:
    """They were written for the modules of another release of transformers than the files."""
    first, second = (
        FORMATS[name].make(np.random.default_rng(0), 8, 32, 32, 0.1)
        for name in ("gptq", "gptq_8_bits")
    )
    prefix = "language_model.model.layers."
    tensors = {f"{prefix}0.mlp.{own}": each for own, each in first.tensors.items()}
    tensors |= {f"{prefix}1.mlp.{own}": each for own, each in second.tensors.items()}
    rule = {r"model\.language_model\.layers\.1\..*": {"bits": 8}}
    config = {**FORMATS["gptq"].config(32), "dynamic": rule}
    part = TEXT_PARTS["Gemma3ForConditionalGeneration"]
    with ExitStack() as ends:
        named = found(tmp_path, ends, config, tensors, part)
        for number, sample in enumerate((first, second)):
            matrix = named[f"{prefix}{number}.mlp.weight"]
            assert isinstance(matrix, QuantizedTensor)
            assert torch.equal(dequantised(matrix, torch.float32), sample.weight)
    with ExitStack() as ends, pytest.raises(WeightsError, match=r"1\.mlp"):
        found(tmp_path, ends, config, tensors)


def test_a_matrix_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    made = FORMATS["gptq"].make(np.random.default_rng(0), 8, 32, 32, 0.1)
    tensors = {f"a.{own}": each for own, each in made.tensors.items()}
    tensors["a.weight"] = torch.ones(8, 32)
    with ExitStack() as ends, pytest.raises(WeightsError, match=r"a\.weight is stored twice"):
        found(tmp_path, ends, FORMATS["gptq"].config(32), tensors)


def hostile(tensors: dict[str, Tensor], chance: Random) -> dict[str, Tensor]:
    """Change a tensor or two: missing, of another shape or type, with random bytes."""
    changed = dict(tensors)
    for _ in range(chance.randrange(1, 3)):
        name = chance.choice([*changed])
        one = changed.pop(name)
        how = chance.randrange(5)
        if how == 0:
            continue
        if how == 1:
            shape = [chance.choice([0, 1, 2, 3, 8, 31, 32, 64]) for _ in range(chance.randrange(5))]
            one = torch.zeros(shape).to(one.dtype)
        elif how == 2:
            one = one.to(torch.float32).to(chance.choice(DTYPES))
        elif how == 3:
            octets = one.contiguous().view(-1).view(torch.uint8).clone()
            octets[:] = torch.tensor([chance.randrange(256) for _ in range(len(octets))])
            one = octets.view(one.dtype).view(one.shape)
        else:
            one = torch.cat([one.view(-1), one.view(-1)])
        changed[name] = one
    return changed


@pytest.mark.parametrize("name", FORMATS)
def test_a_hostile_checkpoint_is_refused_or_read(name: str, tmp_path: Path) -> None:
    kind, chance = FORMATS[name], Random(name)
    made = kind.make(np.random.default_rng(1), 16, 64, 32, 0.1)
    tensors = {f"m.{own}": each for own, each in made.tensors.items()}
    refusals = []
    for _ in range(150):
        group = chance.choice([32, 32, 32, 1, 7, 1 << 24])
        config = kind.config(group if name not in ("ct_mxfp4", "ct_nvfp4") else 32)
        with ExitStack() as ends:
            try:
                named = found(tmp_path, ends, config, hostile(tensors, chance))
                for each in named.values():
                    if isinstance(each, QuantizedTensor):
                        assert dequantised(each, torch.float32).shape == each.shape
                        grouped = each.load().grouped()
                        assert grouped is None or grouped.shape == each.shape
            except WeightsError as error:
                refusals.append(str(error))
    assert len(refusals) > 50
    assert all("m." in refusal for refusal in refusals)


def test_the_first_code_has_the_lowest_bits() -> None:
    assert packed(np.arange(1, 9)[None], 4).tolist() == [[0x87654321 - (1 << 32)]]
