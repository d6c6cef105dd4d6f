"""What a tier means is decided by the caller; here only that no vendor's name is lost."""

from __future__ import annotations

from service.tenants.tier import Tier
from service.wire.tiers import ANTHROPIC_TIERS, OPENAI_TIERS


def test_each_tier_has_a_name_of_a_vendor() -> None:
    assert {*OPENAI_TIERS.values(), *ANTHROPIC_TIERS.values()} == set(Tier)
