"""How much memory the states take that a hybrid keeps for shared prefixes."""

from __future__ import annotations

from engine.model.decoder import States
from engine.run.model_runner import ModelRunner
from engine.run.trials import trial_item
from engine.schedule.snapshots import NEAREST
from engine.step.step import StepPlan

# Of the memory for the KV cache. With a state every 512 tokens, the states of a context take from a
# hundredth (LFM2) to several times (Granite 4) the memory of its blocks, but usually only a
# context's last state is used; and without blocks no sequence runs at all.
SNAPSHOT_SHARE = 1 / 4


def state_bytes(runner: ModelRunner, states: States) -> int:
    """Compute a token in block 0, and return the memory of the state after it."""
    item = trial_item(-1, 1, [0])
    try:
        runner.execute(StepPlan((item,)))
        return states.num_bytes(item.sequence.uid)
    finally:
        runner.forget(item.sequence.uid)


def num_snapshots(memory: int, one: int, *, token_bytes: int, needed: int = 0) -> int:
    """Return how many states of ``one`` bytes each are kept in the ``memory`` for a KV cache, of
    which a token takes ``token_bytes``: not more than blocks give places to, nor so many that less
    than the ``needed`` bytes are left for blocks; 0 if a state takes no memory."""
    if not one:
        return 0
    share = min(memory * SNAPSHOT_SHARE, memory - needed)
    return max(0, min(int(share) // one, memory // (one + NEAREST * token_bytes)))
