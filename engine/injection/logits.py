"""Logits that are not numbers, for one sequence of a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items

from torch import Tensor

from engine.sampling.sampler import Choice, Sampler
from engine.simulation import runner as simulated
from engine.simulation.certainty import is_certain
from engine.step.mask import TokenMask
from engine.step.sequence import Sequence
from engine.step.step import StepPlan


def poison_logits(aim: Callable[[StepPlan], Sequence | None]) -> Callable[[StepPlan], None]:
    """Make every sampler of this process see NaN where ``aim`` says. Return what is to be called
    with each step's plan before it runs. Simulated models sample from now on, which they otherwise
    do only where something other than their script could be chosen."""
    hit: set[int] = set()
    choose = Sampler.choose

    def poisoned(
        self: Sampler, logits: Tensor, sequences: Items[Sequence], *rest: Mapping[int, TokenMask]
    ) -> Choice:
        for row, sequence in enumerate(sequences):
            if sequence.uid in hit:
                logits[row] = math.nan
        return choose(self, logits, sequences, *rest)

    def before(plan: StepPlan) -> None:
        target = aim(plan)
        if target is not None:
            # Until it is sampled: a step may be a part of its prompt only.
            hit.add(target.uid)

    Sampler.choose = poisoned  # type: ignore[method-assign, assignment]
    vars(simulated)[is_certain.__name__] = lambda sequence: False
    return before
