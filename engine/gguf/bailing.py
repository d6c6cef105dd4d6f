"""What the keys of GGUF files of Ling 2.0 and Ring 2.0 (BailingMoeV2) mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.glm4 import glm4_moe
from engine.gguf.keys import ArchitectureKeys
from engine.gguf.settings import must_be


def bailing_moe2(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """transformers does not have them; they are built like GLM-4.5, with other names."""
    found = glm4_moe(keys, common)
    must_be(keys, "expert_shared_feed_forward_length", found["moe_intermediate_size"])
    return {**found, "use_qk_norm": True}
