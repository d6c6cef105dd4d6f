"""How much of what is shared one owner may have."""

from __future__ import annotations


def share(total: int, others: int) -> int:
    """Return what one owner may have of ``total`` while ``others`` have some too: an equal share,
    with one more share left free for the next owner. At least one."""
    return max(1, total // (others + 2))
