"""Samples and pools from the hidden states of a launched forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.attention.packing import Int64Array
from engine.constraint.masks import wait_for_masks
from engine.errors import RefusedError
from engine.messages import TokenLogprobs
from engine.model.decoder import Decoder
from engine.pooling.declared import PoolingRules
from engine.pooling.pool import Pooler, PoolingError, shape_vector
from engine.run.batch import StepBatch
from engine.sampling.logprobs import token_logprobs
from engine.sampling.sampler import Choice, Sampler, SamplingError
from engine.sampling.sharded import Vocabulary, VocabularyParallelSampler
from engine.step.grammar_state import GrammarError
from engine.step.step import PENDING, DeviceLostError, Sampled, StepResult, Withheld

# Rows of logits computed at a time for prompt_logprobs: bounds memory to this x vocabulary.
_LOGPROB_ROWS = 256


@dataclass(frozen=True, slots=True)
class StepParts:
    """The components that turn hidden states into results."""

    decoder: Decoder
    sampler: Sampler | VocabularyParallelSampler
    vocabulary: Vocabulary
    pooler: Pooler
    rules: PoolingRules
    device: torch.device


@dataclass(frozen=True, slots=True)
class NewestTokens:
    """The tokens sampled by a step, possibly not computed yet: the token of sequence ``uid`` is
    ``tokens[places[uid]]``. ``tokens``: integers, on the device."""

    places: dict[int, int]
    tokens: Tensor

    def fill(self, batch: StepBatch) -> None:
        """Copy them to where a later ``batch`` has ``PENDING``."""
        targets, sources = [], []
        for item, row in zip(batch.items, batch.last_rows.tolist(), strict=True):
            sequence = item.sequence
            if sequence.token_ids[item.end - 1] == PENDING:
                targets.append(row)
                sources.append(self.places[sequence.uid])
        if not targets:
            return
        tokens = self.tokens
        if sources != list(range(len(tokens))):
            tokens = tokens[torch.tensor(sources, device=tokens.device)]
        if targets == list(range(len(batch.token_ids))):
            batch.token_ids.copy_(tokens)
        else:
            rows = torch.tensor(targets, device=tokens.device)
            batch.token_ids[rows] = tokens.to(batch.token_ids.dtype)


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
        last_rows: Int64Array,
        on_bad_numbers: Callable[[], None],
    ) -> None:
        """``last_rows[i]``: the row of ``hidden`` for batch item i's last token. ``on_bad_numbers``
        is called when a result shows that the model computed NaN or infinity."""
        self._parts = parts
        self._batch = batch
        self._hidden = hidden
        self._last_rows = last_rows
        self._on_bad_numbers = on_bad_numbers
        self._sampling: list[int] = []  # batch items that get a token
        self._choice: Choice | None = None
        self._withheld: dict[int, Withheld | GrammarError] = {}  # by row of the choice
        self._sampled: list[Sampled] = [None] * len(batch.items)  # in the plan's order
        self._prompt_logprobs: dict[int, list[TokenLogprobs]] = {}

    def sample(self, skipped: Set[int]) -> None:
        with on_device(self._parts.device):
            self._begin_sampling(skipped)
            self._report_prompts(skipped)
            self._pool(skipped)

    def result(self) -> StepResult:
        with on_device(self._parts.device):
            chosen: list[Sampled] = [] if self._choice is None else [*self._choice.read()]
        for row, why in self._withheld.items():
            chosen[row] = why
        for i, sampled in zip(self._sampling, chosen, strict=True):
            self._sampled[self._batch.order[i]] = sampled
            if isinstance(sampled, SamplingError) and not isinstance(sampled, RefusedError):
                self._on_bad_numbers()
        return StepResult(self._sampled, self._prompt_logprobs)

    def newest(self) -> NewestTokens | None:
        """Return the tokens that this step samples; None if there are none."""
        if self._choice is None:
            return None
        places = {self._batch.items[i].sequence.uid: row for row, i in enumerate(self._sampling)}
        return NewestTokens(places, self._choice.tokens)

    def _begin_sampling(self, skipped: Set[int]) -> None:
        items = self._batch.items
        self._sampling = [
            i
            for i, item in enumerate(items)
            if item.completes and item.sequence.embed is None and item.sequence.uid not in skipped
        ]
        if not self._sampling:
            return
        hidden = self._hidden
        if len(self._sampling) < hidden.shape[0]:
            rows = torch.from_numpy(self._last_rows[self._sampling]).to(self._parts.device)
            hidden = hidden.index_select(0, rows)
        logits = self._parts.decoder.logits(hidden)
        sequences = [items[i].sequence for i in self._sampling]
        masks = wait_for_masks(sequences)
        self._withheld = masks.withheld
        self._choice = self._parts.sampler.choose(logits, sequences, masks.ready)

    def _report_prompts(self, skipped: Set[int]) -> None:
        for i, item in enumerate(self._batch.items):
            top = item.sequence.params.prompt_logprobs
            if top is None or item.sequence.uid in skipped:
                continue
            # The last prompt token predicts the first output token, which is left to the sampler.
            end = min(item.end, item.sequence.num_prompt_tokens - 1)
            if end <= item.start:
                continue
            first_row = int(self._last_rows[i]) + 1 - item.num_tokens
            rows = self._hidden[first_row : first_row + end - item.start]
            targets = item.sequence.token_ids[item.start + 1 : end + 1]
            self._prompt_logprobs[self._batch.order[i]] = self._logprobs_of(rows, targets, top)

    def _logprobs_of(self, hidden: Tensor, targets: list[int], top: int) -> list[TokenLogprobs]:
        """Return the logprobs of ``targets[i]`` after ``hidden[i]``, computing a limited number of
        rows at a time."""
        logprobs: list[TokenLogprobs] = []
        for first in range(0, len(targets), _LOGPROB_ROWS):
            part = targets[first : first + _LOGPROB_ROWS]
            own = self._parts.decoder.logits(hidden[first : first + len(part)])
            logits = self._parts.vocabulary.whole(own)
            logprobs += token_logprobs(logits, part, [top] * len(part))
        return logprobs

    def _pool(self, skipped: Set[int]) -> None:
        """Add the vectors of pooled sequences that are complete to the results."""
        pooler, rules = self._parts.pooler, self._parts.rules
        whole: list[tuple[int, Tensor]] = []
        for i, item in enumerate(self._batch.items):
            if item.sequence.embed is None or item.sequence.uid in skipped:
                continue
            end = int(self._last_rows[i]) + 1
            first = end - (item.num_tokens if pooler.needs_every_token else 1)
            vector = pooler.take(item, self._hidden[first:end])
            if vector is not None:
                whole.append((i, vector))
        if not whole:
            return
        vectors = torch.stack([vector for _, vector in whole]).cpu().numpy()
        for (i, _), values in zip(whole, vectors, strict=True):
            embed = self._batch.items[i].sequence.embed
            assert embed is not None
            try:
                self._sampled[self._batch.order[i]] = shape_vector(
                    values, dimensions=embed.dimensions, normalize=rules.normalizes_for(embed)
                )
            except PoolingError as error:
                self._sampled[self._batch.order[i]] = error
                self._on_bad_numbers()
