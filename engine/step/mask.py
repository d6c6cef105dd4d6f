"""The tokens that a grammar allows next, as a bit mask."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# uint32 [vocabulary / 32]: bit t % 32 of word t // 32 is set if token t is allowed.
TokenMask = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Allowed:
    """The tokens that may come next. End-of-sequence tokens mark the end of the grammar. ``ends``:
    the text may end here."""

    mask: TokenMask
    ends: bool


def allows(mask: TokenMask, token: int) -> bool:
    """Tokens beyond the mask are not allowed."""
    return token // 32 < len(mask) and bool(mask[token // 32] >> np.uint32(token % 32) & 1)


def without(mask: TokenMask, token_ids: frozenset[int]) -> TokenMask:
    """Return a copy that does not allow these tokens."""
    fewer = mask.copy()
    for token in token_ids:
        if token // 32 < len(fewer):
            fewer[token // 32] &= np.uint32(~(1 << (token % 32)) & 0xFFFFFFFF)
    return fewer
