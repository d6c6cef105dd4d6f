"""What is common to the files of hybrids. Each family's test compares whole configurations."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.gguf.families import FAMILIES, family_of
from engine.gguf.hybrids import HYBRIDS
from tests.engine.gguf.making import write_header


def test_transformers_code_computes_them() -> None:
    assert all(family.by_transformers for family in HYBRIDS.values())
    assert HYBRIDS.items() <= FAMILIES.items()


@pytest.mark.parametrize(("experts", "name"), [(0, "ffn_gate"), (8, "ffn_gate_shexp")])
def test_granites_feed_forward_is_a_shared_expert_only_beside_others(
    experts: int, name: str, tmp_path: Path
) -> None:
    family = family_of(write_header(tmp_path, "granitehybrid", {"expert_count": experts}))
    assert family.has_experts is bool(experts)
    assert family.modules["shared_mlp.gate_proj"] == name
