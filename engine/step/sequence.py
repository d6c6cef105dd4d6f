"""One sequence: its tokens, its place in the KV cache, its record. Pure data, no tensors."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.messages import Embed, PrefixMiss, SamplingParams
from engine.queueing import ServiceClass
from engine.step.grammar_state import GrammarState

# How often a running sequence may be preempted for a later one of higher priority.
MOST_OVERTAKEN = 2


@dataclass(slots=True, eq=False)
class Sequence:
    """A prompt to be continued, or to be converted to a vector (``embed``).

    ``token_ids`` is prompt then output. ``block_table[i]`` holds the KV cache of tokens
    [i*block_size, (i+1)*block_size); the first ``num_computed_tokens`` are in the cache. Both are
    written only by the scheduler; the runner reads them.
    """

    uid: int  # unique in this engine's lifetime; increases with arrival
    request_id: str
    token_ids: list[int]
    num_prompt_tokens: int
    params: SamplingParams
    priority: int = 0
    arrival_time: float = 0.0
    cache_salt: str = ""
    tenant: str = ""
    weight: float = 1.0  # the tenant's
    service_class: ServiceClass = ServiceClass.STANDARD

    embed: Embed | None = None
    needs_whole_prompt: bool = False  # compute every token, even if it is cached
    grammar_state: GrammarState | None = None  # position in the grammar of ``params.constraint``
    block_table: list[int] = field(default_factory=list)
    block_hashes: list[bytes] = field(default_factory=list)  # keys in the prefix cache
    prompt_hashes: list[bytes] = field(default_factory=list)  # shared by a request's choices
    num_computed_tokens: int = 0
    num_matched_tokens: int = 0  # of a hybrid: in cached blocks, if well beyond its kept state
    num_cached_tokens: int = 0  # prompt tokens found in the prefix cache at first admission
    prefix_miss: PrefixMiss | None = None  # at first admission
    num_preemptions: int = 0
    num_overtaken: int = 0  # of those, for a sequence that came later
    max_computed_tokens: int = 0  # high-water mark; tokens below it are recomputed
    num_counted_output: int = 0  # output tokens that its tenant has been charged for
    num_prompt_logprobs: int = 0  # reported, of the prompt's first tokens
    first_scheduled_time: float | None = None
    first_token_time: float | None = None
    last_token_time: float | None = None

    @property
    def rank(self) -> tuple[int, int, int]:
        """Lower goes first: by priority, then arrival. A sequence that has been overtaken as often
        as allowed goes before every priority."""
        if self.num_overtaken >= MOST_OVERTAKEN:
            return (0, 0, self.uid)
        return (1, self.priority, self.uid)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]
