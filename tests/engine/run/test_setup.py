"""What is settled before weights are loaded, and what is refused then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.architecture.errors import ModelError
from tests.engine.driving import load_runner
from tests.engine.tiny_models import MAX_POSITIONS, VARIANTS, save_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    save_model(VARIANTS["qwen3"], directory)
    return directory


def test_a_length_beyond_the_models_positions_is_refused(model: Path) -> None:
    with pytest.raises(ModelError, match=f"{MAX_POSITIONS} positions"):
        load_runner(model, max_model_len=MAX_POSITIONS + 1)


@pytest.mark.parametrize(
    ("variant", "settings", "reason"),
    [
        ("qwen3", {"dtype": "bfloat16"}, "not --dtype bfloat16 on cpu"),
        ("gpt2", {"dtype": "auto"}, "does not support GPT-2"),
    ],
)
def test_int8_where_it_is_not_served_is_refused(
    variant: str, settings: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    save_model(VARIANTS[variant], tmp_path)
    with pytest.raises(ModelError, match=reason):
        load_runner(tmp_path, quantization="int8", **settings)
