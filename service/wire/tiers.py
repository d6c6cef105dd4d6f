"""``service_tier``, by the names of both vendors."""

from __future__ import annotations

from typing import Final, Literal

from engine.queueing import ServiceClass
from service.tenants.tier import Tier

# "fast" and "ultrafast" are served as "priority". Whatever is not mapped leaves the
# class to the key.
OpenAITier = Literal["auto", "default", "flex", "priority", "fast", "ultrafast", "scale"]
AnthropicTier = Literal["auto", "standard_only"]

OPENAI_TIERS: Final = {
    "flex": Tier.FLEX,
    **dict.fromkeys(("priority", "fast", "ultrafast"), Tier.PRIORITY),
}
ANTHROPIC_TIERS: Final = {"standard_only": Tier.STANDARD}

# How an answer names the class that its request had.
OPENAI_USED: Final = {
    ServiceClass.INTERACTIVE: "priority",
    ServiceClass.STANDARD: "default",
    ServiceClass.BATCH: "flex",
}
ANTHROPIC_USED: Final = {
    ServiceClass.INTERACTIVE: "priority",
    ServiceClass.STANDARD: "standard",
    ServiceClass.BATCH: "batch",
}
