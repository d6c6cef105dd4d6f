"""What each layer reads of a token, by compiled products, is what torch computes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.architecture.config import load_model_config
from engine.cpu.layer_inputs import PackedTokenInputs
from engine.cpu.layers import PackedLayers
from engine.cpu.library import LibraryUnavailableError, library
from engine.model.layer_inputs import TokenInputs
from engine.model.parameters import INPUT_EMBEDDING
from engine.weights.quantization import QuantisedWeights
from tests.engine.model.decoding import Weights
from tests.engine.tiny_models import VARIANTS, VOCABULARY, save_model

try:
    LIBRARY = library()
except LibraryUnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)

IDS = torch.tensor([5, 0, VOCABULARY - 1, 5])


@pytest.mark.parametrize("exact", [True, False], ids=["floats", "int8"])
def test_they_equal_torch_s(exact: bool, tmp_path: Path) -> None:
    plain = Weights(save_model(VARIANTS["gemma4_inputs"], tmp_path))
    config = load_model_config(tmp_path)
    # An embedding in few bits is read as the floats that it means; a product also rounds its input.
    source = plain if exact else QuantisedWeights(plain, "int8", frozenset())
    layers = PackedLayers(config, source, LIBRARY, LIBRARY.team(1), bf16_products=False)
    x = torch.randn(4, 64)
    found = PackedTokenInputs(config, source, layers)(IDS, x)
    expected = TokenInputs(config, source)(IDS, x)
    assert found.shape == (4, 4, 16)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 if exact else 0.05)
    if not exact:
        assert not torch.equal(source.tensor(INPUT_EMBEDDING), plain.tensor(INPUT_EMBEDDING))
