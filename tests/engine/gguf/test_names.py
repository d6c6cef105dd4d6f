from __future__ import annotations

import gguf
import pytest
from gguf.tensor_mapping import get_tensor_name_map

from engine.architecture.config import load_model_config
from engine.gguf.names import gguf_name
from engine.model.parameters import parameter_shapes
from pocket import MODEL_DIR


@pytest.mark.parametrize("architecture", [gguf.MODEL_ARCH.LLAMA, gguf.MODEL_ARCH.QWEN3])
def test_names_are_those_that_the_librarys_converter_gives(architecture: gguf.MODEL_ARCH) -> None:
    config = load_model_config(MODEL_DIR)
    names = get_tensor_name_map(architecture, config.num_layers)
    for name in [*parameter_shapes(config), "lm_head.weight"]:
        if "_norm" in name and "self_attn" in name and architecture is gguf.MODEL_ARCH.LLAMA:
            continue  # it has none
        assert gguf_name(name) == names.get_name(name, try_suffixes=(".weight", ".bias"))
