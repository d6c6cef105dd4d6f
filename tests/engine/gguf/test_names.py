from __future__ import annotations

from pathlib import Path

import gguf
import pytest
from gguf.tensor_mapping import get_tensor_name_map

from engine.architecture.config import load_model_config
from engine.gguf.families import family_of
from engine.gguf.names import gguf_name, layer_of, place_in_stack
from engine.gguf.parts import read_gguf_header
from engine.model.parameters import parameter_shapes
from pocket import MODEL_DIR
from tests.engine.gguf.family_files import FAMILY_FILES
from tests.engine.gguf.making import write_gguf
from tests.engine.tiny_models import save_model


@pytest.mark.parametrize("architecture", [gguf.MODEL_ARCH.LLAMA, gguf.MODEL_ARCH.QWEN3])
def test_names_are_those_that_the_librarys_converter_gives(architecture: gguf.MODEL_ARCH) -> None:
    config = load_model_config(MODEL_DIR)
    names = get_tensor_name_map(architecture, config.num_layers)
    for name in [*parameter_shapes(config), "lm_head.weight"]:
        if "_norm" in name and "self_attn" in name and architecture is gguf.MODEL_ARCH.LLAMA:
            continue  # it has none
        assert gguf_name(name) == names.get_name(name, try_suffixes=(".weight", ".bias"))


@pytest.mark.parametrize("name", FAMILY_FILES)
def test_a_files_tensors_are_those_that_its_parameters_are_in(name: str, tmp_path: Path) -> None:
    save_model(FAMILY_FILES[name], tmp_path)
    path = write_gguf(tmp_path, tmp_path / "tiny.gguf", tokenizer=False)
    header = read_gguf_header(path)
    family = family_of(header)
    shapes = parameter_shapes(load_model_config(tmp_path))
    found = {gguf_name(parameter, family.modules) for parameter in shapes}
    assert found == header.tensors.keys() - family.vectors


def test_experts_and_projections_of_altup_are_in_stacks() -> None:
    assert place_in_stack("model.layers.3.mlp.experts.12.up_proj.weight") == 12
    assert place_in_stack("model.altup_projections.2.weight") == 2
    assert place_in_stack("model.layers.3.mlp.gate.weight") is None
    assert gguf_name("model.altup_unembed_projections.2.weight") == "altup_unembd_proj.weight"


def test_the_number_of_a_layer_is_in_its_tensors_names() -> None:
    assert layer_of("blk.12.attn_q.weight") == 12
    assert layer_of("output_norm.weight") is None
    assert layer_of("blk.x.attn_q.weight") is None
