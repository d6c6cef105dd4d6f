"""What a request says about the class in which it waits."""

from __future__ import annotations

import enum


class Tier(enum.StrEnum):
    """A request without one has the class of its key."""

    FLEX = "flex"  # the least urgent class
    PRIORITY = "priority"  # the most urgent one, for callers that may go ahead of others
    STANDARD = "standard"  # no class that is more urgent than the standard one
