"""Samples and pools from the hidden states of a launched forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from engine.constraint.masks import wait_for_masks
from engine.device.device import Readback
from engine.device.sending import sent_one
from engine.errors import RefusedError
from engine.messages import SamplingParams
from engine.model.decoder import Decoder, States
from engine.pooling.declared import PoolingRules
from engine.pooling.pool import Pooler, PoolingError, shape_vector
from engine.run.batch import StepBatch
from engine.sampling.logprobs import LogprobRows, logprob_rows
from engine.sampling.sampler import Choice, Sampler, SamplingError
from engine.sampling.sharded import Vocabulary, VocabularyParallelSampler
from engine.step.grammar_state import GrammarError
from engine.step.sequence import Sequence
from engine.step.step import DeviceLostError, Sampled, StepResult, Withheld

if TYPE_CHECKING:
    from engine.gpu.sampler import KernelSampler

# Rows of logits computed at a time for prompt_logprobs: bounds memory to this x vocabulary.
_LOGPROB_ROWS = 256
# Stands for a sequence whose row is computed, but not used.
_NONE = Sequence(
    uid=-1,
    request_id="",
    token_ids=[],
    num_prompt_tokens=0,
    params=SamplingParams(max_tokens=1, temperature=0.0),
)


@dataclass(frozen=True, slots=True)
class StepParts:
    """The components that turn hidden states into results."""

    decoder: Decoder[Any]
    sampler: Sampler | VocabularyParallelSampler
    kernel_sampler: KernelSampler | None  # takes its place, if not None
    vocabulary: Vocabulary
    pooler: Pooler
    rules: PoolingRules
    device: torch.device
    states: States | None = None  # the decoder's own, of each sequence


@dataclass(frozen=True, slots=True)
class NewestTokens:
    """The tokens sampled by a step, possibly not computed yet: the token of sequence ``uid`` is
    ``tokens[places[uid]]``. ``tokens``: integers, on the device."""

    places: dict[int, int]
    tokens: Tensor

    def fill(self, batch: StepBatch) -> None:
        """Copy them to where a later ``batch``, built with these ``places``, has ``PENDING``."""
        if batch.pending is None:
            return
        targets, sources = batch.pending
        tokens = self.tokens.index_select(0, sources).to(batch.token_ids.dtype)
        batch.token_ids.index_copy_(0, targets, tokens)


@contextmanager
def on_device(device: torch.device) -> Iterator[None]:
    """Compute without gradients. Raises DeviceLostError when the accelerator is lost."""
    try:
        with torch.inference_mode():
            yield
    except torch.AcceleratorError as error:
        raise DeviceLostError(f"{device} failed: {error}") from error


class LaunchedStep:
    """See ``engine.step.step.StepUnderWay``."""

    def __init__(
        self,
        parts: StepParts,
        batch: StepBatch,
        hidden: Tensor,
        on_bad_numbers: Callable[[], None],
    ) -> None:
        """``hidden``: the final states that ``batch`` keeps. ``on_bad_numbers`` is called when a
        result shows that the model computed NaN or infinity."""
        self._parts = parts
        self._batch = batch
        self._hidden = hidden
        self._on_bad_numbers = on_bad_numbers
        self._skipped: Set[int] = frozenset()  # uids
        self._choice: Choice | None = None
        self._withheld: dict[int, Withheld | GrammarError] = {}  # by row of the choice
        self._sampled: list[Sampled] = [None] * len(batch.items)  # in the plan's order
        self._prompt_logprobs: dict[int, list[LogprobRows]] = {}  # by index in the plan
        self._pooled: list[int] = []  # batch items whose vectors are being copied
        self._vectors: Readback | None = None

    def sample(self, skipped: Set[int]) -> None:
        with on_device(self._parts.device):
            self._begin_sampling(skipped)
            self._report_prompts(skipped)
            self._pool(skipped)

    def result(self) -> StepResult:
        with on_device(self._parts.device):
            chosen: list[Sampled] = [] if self._choice is None else [*self._choice.read()]
            prompt_logprobs = {
                index: [one for rows in parts for one in rows.read()]
                for index, parts in self._prompt_logprobs.items()
            }
            self._read_vectors()
        for row, why in self._withheld.items():
            chosen[row] = why
        batch, skipped = self._batch, self._skipped
        for item, sampled in zip(batch.sampling if chosen else (), chosen, strict=True):
            if skipped and batch.items[item].sequence.uid in skipped:
                continue
            self._sampled[batch.order[item]] = sampled
            if isinstance(sampled, SamplingError) and not isinstance(sampled, RefusedError):
                self._on_bad_numbers()
        return StepResult(self._sampled, prompt_logprobs)

    def newest(self) -> NewestTokens | None:
        """Return the tokens that this step samples; None if there are none."""
        if self._choice is None:
            return None
        uids = [self._batch.items[item].sequence.uid for item in self._batch.sampling]
        places = {uid: row for row, uid in enumerate(uids) if uid not in self._skipped}
        return NewestTokens(places, self._choice.tokens)

    def _begin_sampling(self, skipped: Set[int]) -> None:
        """Sample for all rows that were prepared for it; those of skipped sequences, which may have
        ended meanwhile, without regard to their parameters."""
        batch, parts = self._batch, self._parts
        sequences = [batch.items[item].sequence for item in batch.sampling]
        if skipped:
            self._skipped = frozenset(skipped)
            sequences = [_NONE if each.uid in skipped else each for each in sequences]
            if all(each is _NONE for each in sequences):
                return
        if not sequences:
            return
        hidden = self._hidden
        if batch.sampling_rows is not None:
            hidden = hidden.index_select(0, batch.sampling_rows)
        if parts.kernel_sampler is None or batch.draws is None:
            logits = parts.decoder.logits(hidden)
            masks = wait_for_masks(sequences)
            self._choice = parts.sampler.choose(logits, sequences, masks.ready)
        else:
            logits = parts.kernel_sampler.logits(hidden)
            masks = wait_for_masks(sequences)
            self._choice = parts.kernel_sampler.choose(logits, sequences, masks.ready, batch.draws)
        self._withheld = masks.withheld

    def _report_prompts(self, skipped: Set[int]) -> None:
        for i, item in enumerate(self._batch.items):
            top = item.sequence.params.prompt_logprobs
            if top is None or item.sequence.uid in skipped:
                continue
            # The last prompt token predicts the first output token, which is left to the sampler.
            end = min(item.end, item.sequence.num_prompt_tokens - 1)
            if end <= item.start:
                continue
            first_row = int(self._batch.hidden_rows[i]) + 1 - item.num_tokens
            rows = self._hidden[first_row : first_row + end - item.start]
            targets = item.sequence.token_ids[item.start + 1 : end + 1]
            self._prompt_logprobs[self._batch.order[i]] = self._logprobs_of(rows, targets, top)

    def _logprobs_of(self, hidden: Tensor, targets: list[int], top: int) -> list[LogprobRows]:
        """Return the logprobs of ``targets[i]`` after ``hidden[i]``, computing a limited number of
        rows at a time."""
        logprobs: list[LogprobRows] = []
        for first in range(0, len(targets), _LOGPROB_ROWS):
            part = targets[first : first + _LOGPROB_ROWS]
            own = self._parts.decoder.logits(hidden[first : first + len(part)])
            logits = self._parts.vocabulary.whole(own)
            tokens = sent_one(np.array(part), self._parts.device)
            logprobs.append(logprob_rows(logits, tokens, [top] * len(part)))
        return logprobs

    def _pool(self, skipped: Set[int]) -> None:
        """Start copying the vectors of pooled sequences that are complete."""
        pooler = self._parts.pooler
        whole: list[Tensor] = []
        for i, item in enumerate(self._batch.items):
            if item.sequence.embed is None or item.sequence.uid in skipped:
                continue
            end = int(self._batch.hidden_rows[i]) + 1
            first = end - (item.num_tokens if pooler.needs_every_token else 1)
            vector = pooler.take(item, self._hidden[first:end])
            if vector is not None:
                self._pooled.append(i)
                whole.append(vector)
        if whole:
            self._vectors = Readback(torch.stack(whole))

    def _read_vectors(self) -> None:
        """Add them to the results."""
        if self._vectors is None:
            return
        [vectors] = self._vectors.wait()
        for i, values in zip(self._pooled, vectors.numpy(), strict=True):
            embed = self._batch.items[i].sequence.embed
            assert embed is not None
            try:
                self._sampled[self._batch.order[i]] = shape_vector(
                    values,
                    dimensions=embed.dimensions,
                    normalize=self._parts.rules.normalizes_for(embed),
                )
            except PoolingError as error:
                self._sampled[self._batch.order[i]] = error
                self._on_bad_numbers()
