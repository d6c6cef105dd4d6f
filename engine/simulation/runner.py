"""Runs plans as a model would, in the time it would take, without a model.

The logits are made up: one token, the author's, is far above all others, and the real sampler does
the rest if it could choose another. So grammars, allowed tokens, biases, bans and minimum lengths
work exactly as with a model. Nothing is written to a KV cache, and none is allocated; the scheduler
accounts for the plan's blocks as always.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as Items
from pathlib import Path

import torch
from torch import Tensor

from engine.architecture.errors import ModelError
from engine.config import EngineConfig, OnProgress
from engine.constraint.masks import wait_for_masks
from engine.messages import TokenLogprobs
from engine.sampling.logprobs import token_logprobs
from engine.sampling.sampler import Sampler
from engine.simulation.author import Author
from engine.simulation.certainty import is_certain
from engine.simulation.script import read_script
from engine.simulation.spec import Simulation, parse_spec
from engine.simulation.tokens import TextTokens
from engine.step.mask import allows
from engine.step.sequence import Sequence
from engine.step.step import (
    ModelInfo,
    Sampled,
    SampledToken,
    ScheduledSequence,
    StepPlan,
    StepResult,
)

ARCHITECTURE = "simulated"


# A bias of 100, the largest that clients may set, overrides it; a temperature of 2 does not.
_WANTED = 90.0
# If a grammar forbids the wanted token, these come first, so that its text ends soon. The quote
# leads, because within a string everything else would be content. At every other token of an answer
# tags lead, which close reasoning and open calls; not always, because some tokenizers allow them in
# strings.
_END = 45.0
_CLOSING_TAG, _OPENING_TAG = 43.0, 41.0
_CLOSING = (('"', 39.0), ("}", 34.0), ("]", 30.0), (",", 24.0), (":", 24.0), ("0", 18.0))
_LOGPROB_ROWS = 256


class SimulatedRunner:
    """Replaces ``engine.run.model_runner.ModelRunner``. Not thread-safe.

    ``clock`` returns the time and ``sleep`` waits, in seconds. Raises ModelError, SpecError or
    ScriptError, with a message for the operator.
    """

    def __init__(
        self,
        config: EngineConfig,
        on_progress: OnProgress,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        on_progress("config", 0, 1)
        self._clock = clock
        self._sleep = sleep
        self._simulation = parse_spec(config.model)
        if self._simulation.tokenizer is None:
            raise ModelError(f"{config.model}: the engine by itself needs tokenizer=DIRECTORY")
        directory = Path(self._simulation.tokenizer)
        tokens = TextTokens(directory)
        script = self._simulation.script
        self._author = Author(
            tokens,
            None if script is None else read_script(Path(script)),
            lengths=self._simulation.output,
        )
        torch.set_num_threads(config.threads or 1)
        self._sampler = Sampler(
            vocab_size=tokens.vocab_size,
            eos_token_ids=tokens.eos_token_ids,
            device=torch.device("cpu"),
        )
        self._resting = _resting_logits(tokens)
        on_progress("config", 1, 1)
        limit = self._simulation.longest_sequence(config.max_model_len)
        blocks, block_size = _num_blocks(config, self._simulation, limit), config.sizes().block_size
        self.info = ModelInfo(
            model=config.model,
            architecture=ARCHITECTURE,
            dtype="none",
            device="none",
            num_parameters=0,
            vocab_size=tokens.vocab_size,
            max_model_len=min(limit, blocks * block_size),
            block_size=block_size,
            num_kv_blocks=blocks,
            kv_cache_bytes=0,
            eos_token_ids=tokens.eos_token_ids,
            tokenizer_dir=str(directory),
            implementation="simulated",
        )

    launch = None  # a step is computed in one go

    def execute(self, plan: StepPlan) -> StepResult:
        """Generate the planned tokens, taking as long as the simulation says for a step of this
        size."""
        begin = self._clock()
        with torch.inference_mode():
            result = StepResult(self._sample(plan.scheduled), self._prompt_logprobs(plan.scheduled))
        decoding = sum(item.num_tokens == 1 for item in plan.scheduled)
        seconds = self._simulation.step_seconds(
            decoding=decoding, prompt_tokens=plan.num_tokens - decoding
        )
        left = begin + seconds - self._clock()
        if left > 0:
            self._sleep(left)
        return result

    def forget(self, uid: int) -> None:
        """Drop the state of a finished sequence."""
        self._sampler.forget(uid)
        self._author.forget(uid)

    def _sample(self, items: Items[ScheduledSequence]) -> list[Sampled]:
        sampled: list[Sampled] = [None] * len(items)
        open_places, wanted = [], []
        for place, item in enumerate(items):
            if not item.completes:
                continue
            token_id = self._author.next_token(item.sequence)
            if is_certain(item.sequence):  # avoids a row of a large vocabulary
                sampled[place] = SampledToken(token_id)
            else:
                open_places.append(place)
                wanted.append(token_id)
        if open_places:
            sequences = [items[place].sequence for place in open_places]
            masks = wait_for_masks(sequences)
            for row, mask in masks.ready.items():
                if not allows(mask, wanted[row]):
                    self._author.overruled(sequences[row])
            logits = self._logits(sequences, wanted)
            results = self._sampler.sample(logits, sequences, masks.ready)
            for row, (place, result) in enumerate(zip(open_places, results, strict=True)):
                sampled[place] = masks.withheld.get(row, result)
        return sampled

    def _logits(self, sequences: Items[Sequence], wanted: list[int]) -> Tensor:
        """Return float32 [rows, vocabulary]."""
        logits = self._resting[[sequence.num_output_tokens % 2 for sequence in sequences]]
        logits[torch.arange(len(wanted)), torch.tensor(wanted)] = _WANTED
        return logits

    def _prompt_logprobs(self, items: Items[ScheduledSequence]) -> dict[int, list[TokenLogprobs]]:
        """Return the prompt logprobs of a uniform distribution."""
        found: dict[int, list[TokenLogprobs]] = {}
        for place, item in enumerate(items):
            top = item.sequence.params.prompt_logprobs
            # The last prompt token predicts the first output token, which is left to the sampler.
            end = min(item.start + item.num_tokens, item.sequence.num_prompt_tokens - 1)
            if top is None or end <= item.start:
                continue
            targets = item.sequence.token_ids[item.start + 1 : end + 1]
            found[place] = []
            for first in range(0, len(targets), _LOGPROB_ROWS):
                part = targets[first : first + _LOGPROB_ROWS]
                rows = self._resting[0].expand(len(part), -1)
                found[place] += token_logprobs(rows, part, [top] * len(part))
        return found


def _resting_logits(tokens: TextTokens) -> Tensor:
    """Return float32 [2, vocabulary]: the logits of tokens other than the wanted one, at even
    positions and at odd."""
    quotes_lead = torch.zeros(tokens.vocab_size)
    for text, value in _CLOSING:
        spelled = tokens.encode(text)
        if len(spelled) == 1:
            quotes_lead[spelled[0]] = value
    tags_lead = quotes_lead.clone()
    for token_id, text in tokens.added.items():
        tags_lead[token_id] = _CLOSING_TAG if text.startswith("</") else _OPENING_TAG
    rows = torch.stack((quotes_lead, tags_lead))
    rows[:, sorted(tokens.eos_token_ids)] = _END
    return rows


def _num_blocks(config: EngineConfig, simulation: Simulation, limit: int) -> int:
    blocks, block_size = config.num_kv_blocks, config.sizes().block_size
    if blocks is None:
        blocks = max(2, -(-simulation.kv_tokens // block_size))
    held = blocks * block_size
    if config.max_model_len is not None and held < limit:
        raise ModelError(
            f"the KV cache pretends to hold {held} tokens, less than one sequence of {limit}; "
            "lower --max-model-len, or raise kv_tokens or --num-kv-blocks"
        )
    return blocks
