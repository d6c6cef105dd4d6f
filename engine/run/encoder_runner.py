"""Runs an encoder on a device: whole texts in, one vector for each out."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from engine.architecture.encoder_config import EncoderConfig
from engine.config import EngineConfig, OnProgress
from engine.device.device import choose_device, choose_dtype, set_threads
from engine.messages import Embed, Pooling, SamplingParams
from engine.model.bert import EncoderBatch
from engine.pooling.declared import PoolingRules, pooling_rules
from engine.pooling.pool import Pooler, PoolingError, shape_vector
from engine.run.loader import LoadSettings, described_quantization, load_encoder
from engine.run.missing_rows import warn_of_missing_rows
from engine.servable import positions_within, servable_encoder
from engine.step.sequence import Sequence
from engine.step.step import (
    DeviceLostError,
    ModelInfo,
    Sampled,
    ScheduledSequence,
    StepPlan,
    StepResult,
)


class EncoderRunner:
    """Replaces ``ModelRunner`` for a model without a KV cache: each planned item is a whole text.
    Not thread-safe.

    Raises ModelError or DeviceError, with a message for the operator, when the model cannot be
    served.
    """

    def __init__(self, config: EngineConfig, on_progress: OnProgress) -> None:
        on_progress("config", 0, 1)
        directory = Path(config.model)
        self._config = servable_encoder(config)
        warn_of_missing_rows(directory, self._config.vocab_size)
        self._device = choose_device(config.device)
        self._rules = pooling_rules(directory, asked=config.pooling, default=Pooling.MEAN)
        self._pooler = Pooler(self._rules.pooling)
        if self._device.type == "cpu":
            matrix = self._config.hidden_size * self._config.intermediate_size
            set_threads(config.threads, matrix, config.data_parallel_size)
        dtype = choose_dtype(config.dtype, self._config.dtype, self._device)
        limit = _length_limit(config, self._config, self._rules)
        on_progress("config", 1, 1)
        with torch.inference_mode():
            dummy_seed = config.seed if config.load_format == "dummy" else None
            loaded = load_encoder(
                self._config, LoadSettings(directory, dtype, self._device, on_progress, dummy_seed)
            )
        self._encoder = loaded.encoder
        scores = self._config.num_scores
        self.info = ModelInfo(
            model=config.model,
            architecture=self._config.architecture,
            dtype=str(dtype).removeprefix("torch."),
            device=str(self._device),
            num_parameters=loaded.num_parameters,
            vocab_size=self._config.vocab_size,
            max_model_len=limit,
            block_size=config.sizes().block_size,
            num_kv_blocks=0,
            kv_cache_bytes=0,
            eos_token_ids=frozenset(),
            tokenizer_dir=config.model,
            quantization=described_quantization(config),
            generates=False,
            embedding_size=0 if scores else self._config.hidden_size,
            num_scores=scores,
            pooling=None if scores else self._rules.pooling,
            matryoshka_dimensions=self._rules.matryoshka_dimensions,
        )
        on_progress("warmup", 0, 1)
        self.execute(StepPlan((_trial_item(min(limit, 8)),)))
        on_progress("warmup", 1, 1)

    launch = None  # a step is computed in one go

    def execute(self, plan: StepPlan) -> StepResult:
        """Encode the planned texts. Running a plan again is harmless. Raises DeviceLostError when
        the accelerator is lost."""
        try:
            with torch.inference_mode():
                return self._execute(plan)
        except torch.AcceleratorError as error:
            raise DeviceLostError(f"{self._device} failed: {error}") from error

    def forget(self, uid: int) -> None:
        """Do nothing: no state is kept for a sequence."""

    def _execute(self, plan: StepPlan) -> StepResult:
        order = sorted(range(len(plan.scheduled)), key=lambda i: -plan.scheduled[i].num_tokens)
        items = [plan.scheduled[i] for i in order]
        lengths = [item.num_tokens for item in items]
        ids = [i for item in items for i in item.sequence.token_ids]
        num_types = self._config.num_token_types
        types = [i for item in items for i in _type_ids(item.sequence, num_types)]
        hidden = self._encoder.hidden_states(
            EncoderBatch(
                lengths,
                torch.tensor(ids).to(self._device),
                torch.tensor(types).to(self._device),
            )
        )
        texts = torch.split(hidden, lengths)
        if self._config.num_scores:
            vectors = self._encoder.scores(torch.stack([states[0] for states in texts])).float()
        else:
            vectors = torch.stack([self._pooled(*pair) for pair in zip(items, texts, strict=True)])
        values = vectors.cpu()
        sampled: list[Sampled] = [None] * len(items)
        for place, item, row in zip(order, items, values, strict=True):
            sampled[place] = self._finished(item, row)
        return StepResult(sampled)

    def _pooled(self, item: ScheduledSequence, states: Tensor) -> Tensor:
        vector = self._pooler.take(item, states)
        assert vector is not None
        return vector

    def _finished(self, item: ScheduledSequence, row: Tensor) -> Sampled:
        embed = item.sequence.embed
        assert embed is not None
        try:
            if not self._config.num_scores:
                return shape_vector(
                    row.numpy(),
                    dimensions=embed.dimensions,
                    normalize=self._rules.normalizes_for(embed),
                )
            by_sigmoid = self._config.scores_by_sigmoid
            if embed.activate is not None:
                by_sigmoid = embed.activate
            row = torch.sigmoid(row) if by_sigmoid else row
            return shape_vector(row.numpy(), dimensions=None, normalize=False)
        except PoolingError as error:
            return error


def _type_ids(sequence: Sequence, num_types: int) -> list[int]:
    """Return 0 for the first text's tokens and 1 for the second's, if the model distinguishes
    them."""
    count = sequence.num_tokens
    embed = sequence.embed
    if embed is None or embed.second_text is None or num_types == 1:
        return [0] * count
    return [0] * embed.second_text + [1] * (count - embed.second_text)


def _trial_item(num_tokens: int) -> ScheduledSequence:
    token_ids = [0] * num_tokens
    sequence = Sequence(
        uid=-1,
        request_id="trial",
        token_ids=token_ids,
        num_prompt_tokens=num_tokens,
        params=SamplingParams(max_tokens=1),
        embed=Embed(),
    )
    return ScheduledSequence(sequence, 0, num_tokens, completes=True)


def _length_limit(config: EngineConfig, model: EncoderConfig, rules: PoolingRules) -> int:
    """Return the longest text in tokens: as configured, else as declared, within the positions."""
    if config.max_model_len is None:
        return min(rules.max_tokens or model.max_tokens, model.max_tokens)
    return positions_within(config, model.max_tokens)
