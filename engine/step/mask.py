"""Which tokens a grammar allows next, as bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# uint32 [vocabulary / 32]: bit t % 32 of word t // 32 stands for token t.
TokenMask = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Allowed:
    """What may come next. The grammar's end is spelled by the end-of-sequence tokens. ``ends``: it
    may end here."""

    mask: TokenMask
    ends: bool


def without(mask: TokenMask, token_ids: frozenset[int]) -> TokenMask:
    """A copy in which these tokens are not allowed."""
    fewer = mask.copy()
    for token in token_ids:
        if token // 32 < len(fewer):
            fewer[token // 32] &= np.uint32(~(1 << (token % 32)) & 0xFFFFFFFF)
    return fewer
