"""What the logprobs of a prompt token cost, compared with the token."""

from __future__ import annotations

import math
from collections.abc import Iterable

# Softmax, rank and most likely tokens of a logit take as long as this many multiplications for it.
# Measured on a CPU, for vocabularies of 1,280 to 262,144: 200 to 300.
_PER_LOGIT = 200
# Of a model with hardly any layers; else a step could make hardly any progress.
_MOST = 16.0


def prompt_logprob_work(
    shapes: Iterable[tuple[int, ...]], vocab_size: int, hidden_size: int
) -> float:
    """Return how many plain tokens a prompt token with logprobs costs as much as: the output head
    is computed for each of them, else only for the last. ``shapes``: of all parameters. All experts
    count as computed, so a mixture's estimate is low."""
    layers = sum(math.prod(shape) for shape in shapes if vocab_size not in shape)
    head = vocab_size * (hidden_size + _PER_LOGIT)
    return min(1 + head / max(1, layers), _MOST)
