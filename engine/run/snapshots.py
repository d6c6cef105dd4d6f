"""How much memory the states take that a hybrid keeps for shared prefixes."""

from __future__ import annotations

from engine.model.decoder import States
from engine.run.model_runner import ModelRunner
from engine.run.trials import trial_item
from engine.step.step import StepPlan

# Of the memory for the KV cache. With a state every 512 tokens, the states of a context take from a
# hundredth (LFM2) to several times (Granite 4) the memory of its blocks, but most contexts are
# found by their last state alone; and without blocks no sequence runs at all.
SNAPSHOT_SHARE = 1 / 4


def state_bytes(runner: ModelRunner, states: States) -> int:
    """Compute a token in block 0, and return the memory of the state after it."""
    item = trial_item(-1, 1, [0])
    try:
        runner.execute(StepPlan((item,)))
        return states.num_bytes(item.sequence.uid)
    finally:
        runner.forget(item.sequence.uid)


def num_snapshots(memory: int, one: int) -> int:
    """Return how many states of ``one`` byte count fit in their share of the ``memory`` for a KV
    cache; none if they take no memory, as there are none then."""
    return int(max(0, memory) * SNAPSHOT_SHARE) // one if one else 0
