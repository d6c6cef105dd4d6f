"""The language model of a checkpoint that also reads images gives the tokens and logprobs of the
whole checkpoint in transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.engine.driving import load_runner
from tests.engine.plugin.image_text import NATIVE_TEXT, PLUGIN_TEXT, save_image_text
from tests.engine.plugin.mixing import assert_equals_transformers


@pytest.mark.parametrize("kind", NATIVE_TEXT)
def test_our_own_code_equals_transformers_with_the_whole_checkpoint(
    kind: str, tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    oracle = save_image_text(kind, tmp_path)
    assert_equals_transformers(tmp_path, oracle, model_impl="native")


@pytest.mark.parametrize("kind", PLUGIN_TEXT)
def test_transformers_code_over_our_cache_equals_it_too(kind: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    oracle = save_image_text(kind, tmp_path)
    assert_equals_transformers(tmp_path, oracle)
    info = load_runner(tmp_path, load_format="dummy").info
    assert info.implementation == "transformers"
    assert "image" in info.unserved_inputs
