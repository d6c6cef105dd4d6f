"""Collects the grammar masks that a step needs, waiting briefly for those not ready."""

from __future__ import annotations

import time
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

from engine.step.grammar_state import GrammarError, Phase
from engine.step.mask import TokenMask
from engine.step.sequence import Sequence
from engine.step.step import Withheld

# How long a step that has its logits waits for masks in total. A sequence whose mask is not ready
# by then is sampled in a later step.
_WAIT_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class RowMasks:
    """By row: the mask to apply, or the reason why the row gets no token. Rows without a grammar
    are in neither."""

    ready: dict[int, TokenMask] = field(default_factory=dict)
    withheld: dict[int, Withheld | GrammarError] = field(default_factory=dict)


def wait_for_masks(sequences: Items[Sequence]) -> RowMasks:
    """Called by the engine's thread, once the computation of these sequences' logits has been
    launched."""
    masks = RowMasks()
    guided = [
        (row, sequence.grammar_state)
        for row, sequence in enumerate(sequences)
        if sequence.grammar_state is not None
    ]
    if not guided:
        return masks
    until = time.monotonic() + _WAIT_SECONDS
    for row, state in guided:
        if not state.wait(until):
            masks.withheld[row] = Withheld.LATER
        elif state.phase is Phase.COMPLETE:
            masks.withheld[row] = Withheld.COMPLETE
        elif state.phase is Phase.FAILED:
            masks.withheld[row] = GrammarError(state.error)
        elif state.mask is not None:
            masks.ready[row] = state.mask
    return masks
