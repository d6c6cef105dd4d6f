"""The messages on the engine's socket, in both directions.

Every message is a frozen msgspec struct, sent as one frame: a 4-byte little-endian length and a
msgpack map with a ``type`` tag. Times are seconds of ``time.monotonic()``; all processes of one
machine share this clock, so times from both ends can be compared. A sequence is identified by its
``handle``, an integer chosen by the sender of ``Submit`` and unique on its connection.

This module imports nothing from the engine: the service uses it without loading torch.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Iterator
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from engine.inspected import Inspect, Inspected, WatchSteps
from engine.queueing import (
    EngineLoad,
    Following,
    Moved,
    Prefilled,
    QueueBounds,
    Refusal,
    ServiceClass,
    WaitingReason,
)

MAX_FRAME_BYTES = 64 * 1024 * 1024
FRAME_HEADER = struct.Struct("<I")
MAX_GRAMMAR_CHARS = 512 * 1024
MAX_BAD_WORD_TOKENS = 32  # in one word

TokenId = Annotated[int, Meta(ge=0, lt=2**31)]
Handle = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class FinishReason(enum.StrEnum):
    """Why the engine stopped generating for a sequence."""

    STOP = "stop"  # an end-of-sequence or stop token was sampled
    LENGTH = "length"  # max_tokens or the model's context length was reached
    ABORT = "abort"  # the submitter aborted it, or its connection closed
    ERROR = "error"  # this sequence failed; others continue


class PrefixMissReason(enum.StrEnum):
    """Why the rest of a prompt was not found in the prefix cache."""

    FIRST_SEEN = "first_seen"  # no block with these tokens has been computed
    DIVERGED = "diverged"  # another prompt has the same prefix, and continues differently
    EVICTED = "evicted"  # its blocks were needed for other sequences
    SALT = "salt"  # the same tokens are cached under another salt
    STATE = "state"  # its blocks are cached, but not the state after them: a hybrid's
    SHORT = "short"  # less than a block is left; the last token is always computed
    WHOLE_PROMPT = "whole_prompt"  # the request needs every prompt token computed
    OFF = "off"  # there is no prefix cache


class Pooling(enum.StrEnum):
    """Which of an input's final hidden states are used for its vector."""

    MEAN = "mean"  # the mean of all
    LAST = "last"  # the last token's
    CLS = "cls"  # the first token's


class StepPhase(enum.StrEnum):
    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"


class Constraint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which texts a sequence may generate: a grammar in llguidance's Lark notation (or the JSON
    form of its grammar lists). ``row_items`` limits how ambiguous it may be, see
    ``engine.constraint.grammar``; grammars written by clients get a low limit."""

    grammar: Annotated[str, Meta(max_length=MAX_GRAMMAR_CHARS)]
    row_items: Annotated[int, Meta(ge=16, le=2000)] = 1000


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to sample the tokens of one sequence. Bounds are checked when a message is decoded.

    ``temperature`` 0 is greedy. ``top_k`` 0 and ``top_p`` 1 disable those filters. ``logprobs`` is
    the number of most likely alternatives to report besides the sampled token (0: only the sampled
    one; None: none), over the distribution before temperature and filters.

    ``constraint`` allows only tokens that continue a text of its grammar, and an end-of-sequence
    token exactly where the text may end; where nothing else may follow, the sequence stops without
    one, even under ``min_tokens`` or ``ignore_eos``. Everything else applies to those tokens.

    ``allowed_tokens``: the only tokens that may be sampled, encoded by ``token_mask``; None: all.
    """

    max_tokens: Annotated[int, Meta(ge=1)]
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    temperature: Annotated[float, Meta(ge=0, le=100)] = 1.0
    top_k: Annotated[int, Meta(ge=0)] = 0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] = 0.0
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=10)] = 1.0
    logit_bias: Annotated[dict[TokenId, float], Meta(max_length=1024)] = {}
    min_tokens: Annotated[int, Meta(ge=0)] = 0
    ignore_eos: bool = False
    stop_token_ids: Annotated[frozenset[TokenId], Meta(max_length=256)] = frozenset()
    allowed_tokens: bytes | None = None
    bad_words_token_ids: Annotated[
        tuple[Annotated[tuple[TokenId, ...], Meta(max_length=MAX_BAD_WORD_TOKENS)], ...],
        Meta(max_length=256),
    ] = ()
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    prompt_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    constraint: Constraint | None = None


def token_mask(token_ids: Iterable[int]) -> bytes:
    """Encode a set of tokens as bits: token t is bit t % 8 of byte t // 8. The size is bounded by
    the vocabulary, even if ``token_ids`` (not negative) repeat."""
    chosen = set(token_ids)
    size = max(chosen, default=-1) // 8 + 1
    digits = bytearray(b"0") * (8 * size)
    for token in chosen:
        digits[-1 - token] = ord("1")
    return int(digits or b"0", 2).to_bytes(size, "little")


# --- service to engine -----------------------------------------------------------------------


class Copy(msgspec.Struct, frozen=True, array_like=True):
    """Another sequence of a ``Submit``, which differs only in handle and seed."""

    handle: Handle
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Generate(msgspec.Struct, frozen=True, tag="generate", omit_defaults=True):
    """Continue the prompt. ``output_token_ids`` are tokens already generated by another engine
    (before a restart): they are prefilled, not reported again, and count towards the limits."""

    params: SamplingParams
    output_token_ids: list[TokenId] = []


class Embed(msgspec.Struct, frozen=True, kw_only=True, tag="embed", omit_defaults=True):
    """Compute one vector from the prompt: its embedding, or the scores of a sequence classifier.

    ``second_text``: the number of tokens before the second of two texts, for encoders that
    distinguish them; None: there is one text. ``dimensions``: keep only this many leading elements.
    ``activate``: normalize an embedding to length 1, or apply the model's output function to map a
    score to [0, 1]; None: as the checkpoint declares, but always for a shortened embedding.
    """

    second_text: Annotated[int, Meta(ge=0)] | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    activate: bool | None = None


Task = Generate | Embed


class Submit(msgspec.Struct, frozen=True, kw_only=True, tag="submit", omit_defaults=True):
    """Add a sequence. ``copies``: the other choices of the same request, so that shared data is
    sent once. ``tenant``, ``weight`` and ``service_class``: see ``engine.schedule.waiting``.
    ``bounds``: of the queue; what ``keeps_place`` was accepted before and is not refused.
    ``following``: judged with it. ``deadline``: of its first token."""

    handle: Handle
    request_id: str
    prompt_token_ids: list[TokenId]
    task: Task
    priority: int = 0  # within the tenant and class; lower runs first, equal ones by arrival
    arrival_time: float
    cache_salt: str = ""  # sequences share prefix cache blocks only under equal salts
    tenant: Annotated[str, Meta(max_length=64)] = ""
    weight: Annotated[float, Meta(ge=0.01, le=100)] = 1.0
    service_class: ServiceClass = ServiceClass.STANDARD
    bounds: QueueBounds | None = None
    keeps_place: bool = False
    following: Following | None = None
    deadline: float | None = None
    copies: list[Copy] = []


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """Stop these sequences and free their blocks. Unknown handles are ignored."""

    handles: list[int]


# --- engine to service -----------------------------------------------------------------------


class Loading(msgspec.Struct, frozen=True, tag="loading"):
    phase: str  # "hosts", "config", "weights", "kv_cache", "warmup"
    done: int
    total: int


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """The model is loaded. Sent once per connection, before any step. ``identity``: of this engine
    process, at random; its counters continue while it is the same."""

    model: str
    architecture: str
    dtype: str
    device: str
    num_parameters: int
    vocab_size: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    num_kv_blocks: int
    kv_cache_bytes: int
    load_seconds: float
    eos_token_ids: tuple[int, ...] = ()  # those that end a sequence, unless it ignores them
    prefix_caching: bool = True
    generates: bool = True
    embedding_size: int = 0  # elements of an embedding; 0: not supported
    num_scores: int = 0  # a sequence classifier's; 0: not a classifier
    matryoshka_dimensions: tuple[int, ...] = ()  # the only sizes allowed; empty: any
    tensor_parallel_size: int = 1  # devices that share the model
    implementation: str = "native"  # or transformers, simulated: whose code computes it
    quantization: str = ""  # how weights are stored or made small, in words; empty: floats
    unserved_inputs: tuple[str, ...] = ()  # what the checkpoint reads besides text: image, ...
    identity: Annotated[int, Meta(ge=0, lt=2**53)] = 0


class Fatal(msgspec.Struct, frozen=True, tag="fatal"):
    """The engine cannot continue (the model does not load, the device is lost) and will exit."""

    error: str


class TopLogprob(NamedTuple):
    token_id: int
    logprob: float


_TOP_LOGPROB = struct.Struct("<if")


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The natural log-probability of one token, and of the most likely ones in decreasing order.

    ``packed``: the likely ones, each a little-endian int32 (its id) and float32 (its logprob):
    eight bytes, where objects would take a hundred.
    """

    logprob: float
    rank: int  # 1 for the most likely token
    packed: bytes = b""

    @property
    def top(self) -> list[TopLogprob]:
        return [TopLogprob(*pair) for pair in _TOP_LOGPROB.iter_unpack(self.packed)]

    def pairs(self, most: int) -> Iterator[tuple[int, float]]:
        """Return the id and logprob of at most ``most`` of the likeliest tokens."""
        return _TOP_LOGPROB.iter_unpack(self.packed[: most * _TOP_LOGPROB.size])

    def cut(self, most: int) -> TokenLogprobs:
        """Return a copy with at most ``most`` of the likeliest tokens."""
        return TokenLogprobs(self.logprob, self.rank, self.packed[: most * _TOP_LOGPROB.size])


def packed_top(top: Iterable[tuple[int, float]]) -> bytes:
    """Encode ids and logprobs for ``TokenLogprobs.packed``."""
    return b"".join([_TOP_LOGPROB.pack(token_id, logprob) for token_id, logprob in top])


class PrefixMiss(msgspec.Struct, frozen=True, array_like=True):
    """Why the prefix cache had no more of a prompt. ``request_id``: a request that diverged in the
    next ``within`` tokens; ``seconds_ago``: when the next block was evicted."""

    reason: PrefixMissReason
    request_id: str = ""
    seconds_ago: float | None = None
    within: int = 0


class Admitted(msgspec.Struct, frozen=True, array_like=True):
    """A sequence left the waiting queue for the first time. Sent before the step that runs it.
    ``prefix_miss``: None if the model has no KV cache."""

    handle: int
    time: float
    cached_tokens: int  # prompt tokens found in the prefix cache
    prefix_miss: PrefixMiss | None = None


class PromptLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Logprobs of prompt tokens ``start`` + 1 and following, each given the tokens before it. Sent
    as they are computed, step by step."""

    handle: int
    start: int
    tokens: list[TokenLogprobs]


class Embedded(msgspec.Struct, frozen=True, array_like=True):
    """The vector of an ``Embed``, sent in the same message as its ``Finished``."""

    handle: int
    vector: bytes  # little-endian float32


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one sequence: its usage, and when each phase began (monotonic seconds; None for
    a phase that was never reached)."""

    handle: int
    reason: FinishReason
    stop_token_id: int | None = None
    error: str | None = None
    is_refusal: bool = False  # the request needs something unsupported, which caused the error
    refusal: Refusal | None = (
        None  # why it got no place in the queue, or lost it, as the error says
    )
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    preemptions: int
    handovers: int = 0  # to an engine that replaced a dead one; set by the service
    arrival_time: float
    queued_time: float | None = None  # when the first engine got it; set by the service
    first_scheduled_time: float | None
    first_token_time: float | None
    last_token_time: float | None
    finished_time: float


class EngineCounters(msgspec.Struct):
    """Totals since the engine's start, each counted where its work is done; for their metrics see
    ``observability.catalogue``, ``totals``. For each sequence that was prefilled completely, prompt
    tokens computed plus cached is exactly its prompt's length, however often it was preempted."""

    prompt_tokens_computed: int = 0
    prompt_tokens_cached: int = 0  # found in the prefix cache and never computed by the sequence
    # Of the prompt tokens that were not cached when their sequence was first admitted, by
    # ``PrefixMissReason``. Those of a sequence that is aborted in its prefill are included.
    prefix_missed_first_seen: int = 0
    prefix_missed_diverged: int = 0
    prefix_missed_evicted: int = 0
    prefix_missed_salt: int = 0
    prefix_missed_state: int = 0
    prefix_missed_short: int = 0
    prefix_missed_whole_prompt: int = 0
    prefix_missed_off: int = 0
    tokens_recomputed: int = 0  # after a preemption; without those found in the cache
    tokens_generated: int = 0
    preemptions: int = 0
    steps: int = 0
    grammars_compiled: int = 0
    grammars_cached: int = 0  # found compiled
    grammars_failed: int = 0  # sequences that failed because of their grammar
    grammar_compile_seconds: float = 0.0
    grammar_mask_seconds: float = 0.0


class EngineStats(EngineCounters, kw_only=True, omit_defaults=True):
    """The counters, and the state after a step (gauges)."""

    time: float = 0.0
    running: int = 0
    waiting: int = 0
    waiting_reason: WaitingReason | None = None
    kv_blocks_free: int = 0  # without contents
    kv_blocks_cached: int = 0  # held by no sequence, contents kept for the prefix cache
    kv_blocks_active: int = 0  # held by at least one sequence
    load: EngineLoad | None = None  # of one of several engines


class StepOutputs(msgspec.Struct, frozen=True, kw_only=True, tag="step", omit_defaults=True):
    """All outputs of one engine step for the sequences of this connection.

    ``handles`` (int64) and ``token_ids`` (int32) are packed little-endian arrays of equal length:
    entry i says that sequence handles[i] generated token_ids[i]. ``logprobs`` maps an entry's index
    to its logprobs. A sequence's last token comes in the same message as its ``Finished``, or
    before it if a constraint ended the sequence.
    """

    time: float
    handles: bytes = b""
    token_ids: bytes = b""
    logprobs: dict[int, TokenLogprobs] = {}
    prompt_logprobs: list[PromptLogprobs] = []
    embedded: list[Embedded] = []
    admitted: list[Admitted] = []
    # Handles that have a place in the queue and do not run yet. Those with a grammar come twice:
    # while it is prepared, and once it is ready if they then have to wait.
    queued: list[int] = []
    prefilled: list[Prefilled] = []
    preempted: list[Moved] = []
    resumed: list[Moved] = []  # after a preemption
    finished: list[Finished] = []
    phase: StepPhase | None = None  # None: no forward pass (an abort, or one is about to run)
    step_seconds: float = 0.0
    step_tokens: int = 0
    step_sequences: int = 0
    stats: EngineStats


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    """Sent once a second while no step runs, so that silence indicates a problem."""

    stats: EngineStats


class Working(msgspec.Struct, frozen=True, tag="working"):
    """Sent once a second during a long step. ``step_seconds``: how long the step has run."""

    step_seconds: float


ToEngine = Submit | Abort | Inspect | WatchSteps
FromEngine = Loading | Ready | Fatal | StepOutputs | Heartbeat | Working | Inspected

_encoder = msgspec.msgpack.Encoder()
_to_engine: msgspec.msgpack.Decoder[ToEngine] = msgspec.msgpack.Decoder(ToEngine)
_from_engine: msgspec.msgpack.Decoder[FromEngine] = msgspec.msgpack.Decoder(FromEngine)


def encode_frame(message: ToEngine | FromEngine) -> bytes:
    """Encode one message with its length header. Raises ValueError beyond ``MAX_FRAME_BYTES``."""
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError(f"a message of {len(body)} bytes exceeds {MAX_FRAME_BYTES}")
    return FRAME_HEADER.pack(len(body)) + body


def decode_to_engine(body: bytes) -> ToEngine:
    """Raises msgspec.ValidationError when a field is missing, mistyped or out of bounds."""
    return _to_engine.decode(body)


def decode_from_engine(body: bytes) -> FromEngine:
    """Raises msgspec.ValidationError when a field is missing or mistyped."""
    return _from_engine.decode(body)
