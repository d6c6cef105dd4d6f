"""Each family's file is computed as its original checkpoint, which other tests compare with
transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.gguf.families import family_of
from tests.engine.gguf.directories import all_logits, file_directory
from tests.engine.gguf.family_files import FAMILY_FILES
from tests.engine.gguf.making import written
from tests.engine.tiny_models import VOCABULARY, save_model

TOKENS = torch.randint(VOCABULARY, (60,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", FAMILY_FILES)
def test_logits_are_the_originals_to_the_bit(name: str, tmp_path: Path) -> None:
    save_model(FAMILY_FILES[name], tmp_path / "original")
    directory = file_directory(tmp_path / "original", tmp_path, "F32")
    assert torch.equal(all_logits(directory, TOKENS), all_logits(tmp_path / "original", TOKENS))


@pytest.mark.parametrize(
    ("architecture", "keys", "found"),
    [
        ("llama", {}, "LlamaForCausalLM"),
        ("llama", {"expert_count": 0}, "LlamaForCausalLM"),
        ("llama", {"expert_count": 8}, "MixtralForCausalLM"),
        ("mistral3", {}, "LlamaForCausalLM"),
        ("mistral3", {"attention__temperature_scale": 0.1}, "Ministral3ForCausalLM"),
        ("olmo2", {}, "Olmo2ForCausalLM"),
        ("olmo2", {"attention__sliding_window": 4096}, "Olmo3ForCausalLM"),
    ],
)
def test_a_name_of_several_families_is_told_apart_by_keys(
    architecture: str, keys: dict[str, float], found: str, tmp_path: Path
) -> None:
    assert family_of(written(tmp_path, architecture, **keys)).architecture == found


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
@pytest.mark.parametrize("name", FAMILY_FILES)
def test_products_with_blocks_are_those_with_dequantized_weights(
    name: str, kind: str, tmp_path: Path
) -> None:
    """But for the rounding of inputs to 8 bits, which these random weights amplify."""
    save_model(FAMILY_FILES[name], tmp_path / "original")
    directory = file_directory(tmp_path / "original", tmp_path, kind)
    expected = all_logits(directory, TOKENS)
    difference = (all_logits(directory, TOKENS, compiled=True) - expected).abs().amax(1)
    # Where rounding chooses another expert, a token differs by more.
    assert difference.median() < 0.1 * (expected.max() - expected.min())
