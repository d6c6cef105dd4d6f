"""Made-up sequences for steps before the engine is ready."""

from __future__ import annotations

from engine.messages import SamplingParams
from engine.step.sequence import Sequence
from engine.step.step import ScheduledSequence

# What their sequences require.
_LITTLE = SamplingParams(max_tokens=1, temperature=1.0, top_p=0.9)
# All that one can require takes the most memory of a step.
EVERYTHING = SamplingParams(
    max_tokens=1, temperature=1.0, top_k=50, top_p=0.9, repetition_penalty=1.1, logprobs=20
)


def trial_item(
    uid: int, num_tokens: int, blocks: range | list[int], params: SamplingParams = _LITTLE
) -> ScheduledSequence:
    """Return a whole prompt, in these blocks."""
    sequence = Sequence(
        uid=uid,
        request_id="trial",
        token_ids=[0] * num_tokens,
        num_prompt_tokens=num_tokens,
        params=params,
        block_table=list(blocks),
    )
    return ScheduledSequence(sequence, 0, num_tokens, completes=True)


def next_trial_item(item: ScheduledSequence) -> ScheduledSequence:
    """Return the token after this item's. The last block has room for it."""
    item.sequence.token_ids.append(0)
    return ScheduledSequence(item.sequence, item.end, 1, completes=True)
