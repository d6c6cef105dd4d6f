"""A directory's tokenizer as a simulated model uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.architecture.errors import ModelError
from pocket import MODEL_DIR
from tests.engine.simulation.simulated_engine import SimulatedEngine


def test_a_directory_without_tokenizer_or_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot read"):
        SimulatedEngine(f"simulated:tokenizer={tmp_path}")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="is not a tokenizer"):
        SimulatedEngine(f"simulated:tokenizer={tmp_path}")
    (tmp_path / "tokenizer.json").write_bytes((MODEL_DIR / "tokenizer.json").read_bytes())
    with pytest.raises(ModelError, match="names no end-of-sequence token"):
        SimulatedEngine(f"simulated:tokenizer={tmp_path}")
