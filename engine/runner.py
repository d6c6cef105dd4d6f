"""Runs a model on a device: one step of the plan after another."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engine.attention.cache import PagedKVCache
from engine.attention.metadata import CacheShape, Int64Array, MetadataBuilder
from engine.attention.mirror import ContextMirror, MirrorShape
from engine.batch import BatchBuilder, StepBatch
from engine.config import EngineConfig
from engine.cpu.library import Library, UnavailableError, library
from engine.device import choose_device, choose_dtype, set_threads
from engine.messages import Pooling, SamplingParams, TokenLogprobs
from engine.model.config import ModelConfig, load_model_config
from engine.model.errors import ModelError
from engine.model.loader import load_model
from engine.pooling.declared import pooling_rules
from engine.pooling.pool import Pooler, PoolingError, shape_vector
from engine.sampling.logprobs import token_logprobs
from engine.sampling.sampler import Sampler, SamplingError
from engine.sequence import Sequence
from engine.step import (
    DeviceLostError,
    ModelInfo,
    Sampled,
    ScheduledSequence,
    StepPlan,
    StepResult,
)

_log = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]

# Rows of logits computed at a time for prompt_logprobs: bounds memory to this x vocabulary.
_LOGPROB_ROWS = 256
# Memory of ``ContextMirror`` as a share of the KV cache's.
_MIRROR_SHARE = 1 / 3


class KVCacheTooSmallError(ModelError):
    """Not even one sequence of the longest length fits into the KV cache."""


class ModelRunner:
    """A loaded model with its KV cache and sampler. Not thread-safe.

    ``progress(phase, done, total)`` is called while loading. Raises ModelError or DeviceError,
    with a message for whoever started the engine, when the model cannot be served.
    """

    def __init__(self, config: EngineConfig, progress: Progress) -> None:
        progress("config", 0, 1)
        self._config = config
        self._device = choose_device(config.device)
        directory = Path(config.model)
        self._model_config = load_model_config(directory)
        if self._device.type == "cpu":
            matrix = self._model_config.hidden_size * self._model_config.intermediate_size
            set_threads(config.threads, matrix)
        self._dtype = choose_dtype(config.dtype, self._model_config.dtype, self._device)
        limit = _length_limit(config, self._model_config)
        self._rules = pooling_rules(directory, asked=config.pooling, default=Pooling.LAST)
        self._pooler = Pooler(self._rules.pooling)
        progress("config", 1, 1)
        with torch.inference_mode():
            loaded = load_model(
                directory,
                self._model_config,
                dummy_seed=config.seed if config.load_format == "dummy" else None,
                max_positions=limit,
                dtype=self._dtype,
                device=self._device,
                progress=progress,
                library=self._compiled_path(),
            )
            self._decoder = loaded.decoder
            self._sampler = Sampler(
                vocab_size=self._model_config.vocab_size,
                eos_token_ids=self._model_config.eos_token_ids,
                device=self._device,
            )
            self._has_bad_blocks = False
            progress("kv_cache", 0, 1)
            self._cache = self._allocate(limit)
            progress("kv_cache", 1, 1)
        held = self._cache.num_blocks * config.block_size
        self.info = ModelInfo(
            model=config.model,
            architecture=self._model_config.architecture,
            dtype=str(self._dtype).removeprefix("torch."),
            device=str(self._device),
            num_parameters=loaded.num_parameters,
            vocab_size=self._model_config.vocab_size,
            max_model_len=min(limit, held),
            block_size=config.block_size,
            num_kv_blocks=self._cache.num_blocks,
            kv_cache_bytes=self._cache.num_bytes,
            eos_token_ids=self._model_config.eos_token_ids,
            tokenizer_dir=config.model,
            generates=self._model_config.generates,
            embedding_size=self._model_config.hidden_size,
            pooling=self._rules.pooling,
            matryoshka_dimensions=self._rules.matryoshka_dimensions,
        )
        progress("warmup", 0, 1)
        self._warm_up()
        progress("warmup", 1, 1)

    def execute(self, plan: StepPlan) -> StepResult:
        """Compute the planned tokens and sample where the plan says so. Running a plan again is
        harmless. Raises DeviceLostError when the accelerator is gone."""
        try:
            with torch.inference_mode():
                return self._execute(plan)
        except torch.AcceleratorError as error:
            raise DeviceLostError(f"{self._device} failed: {error}") from error

    def forget(self, uid: int) -> None:
        """Drop what is kept for a sequence that is finished."""
        self._sampler.forget(uid)
        self._pooler.forget(uid)

    def _execute(self, plan: StepPlan) -> StepResult:
        batch = self._batches.build(plan)
        if self._has_bad_blocks:
            self._cache.clear(torch.from_numpy(batch.fresh_blocks).to(self._device))
        reports_prompts = any(
            item.sequence.params.prompt_logprobs is not None for item in batch.items
        )
        pools = any(item.sequence.embed is not None for item in batch.items)
        needs_every_row = reports_prompts or (pools and self._pooler.needs_every_token)
        if needs_every_row or len(batch.items) == batch.token_ids.shape[0]:
            kept, last_rows = None, batch.last_rows
        else:
            kept = torch.from_numpy(batch.last_rows).to(self._device)
            last_rows = np.arange(len(batch.items))
        hidden = self._decoder.hidden_states(
            batch.token_ids, batch.positions, self._cache, batch.metadata, kept
        )
        sampled = self._sample(batch, hidden, last_rows)
        if pools:
            self._pool(batch, hidden, last_rows, sampled)
        return StepResult(
            sampled=sampled,
            prompt_logprobs=self._prompt_logprobs(batch, hidden) if reports_prompts else {},
        )

    def _sample(self, batch: StepBatch, hidden: Tensor, last_rows: Int64Array) -> list[Sampled]:
        """``last_rows[i]``: the row of ``hidden`` that belongs to item i's last token."""
        sampled: list[Sampled] = [None] * len(batch.items)
        sampling = [
            i for i, item in enumerate(batch.items) if item.samples and item.sequence.embed is None
        ]
        if not sampling:
            return sampled
        if len(sampling) < hidden.shape[0]:
            rows = torch.from_numpy(last_rows[sampling]).to(self._device)
            hidden = hidden.index_select(0, rows)
        sequences = [batch.items[i].sequence for i in sampling]
        results = self._sampler.sample(self._decoder.logits(hidden), sequences)
        for i, result in zip(sampling, results, strict=True):
            sampled[batch.order[i]] = result
            if isinstance(result, SamplingError):
                # Numbers that are none may have reached the cache. From now on blocks are zeroed
                # before reuse: a masked slot still spoils a sum if it holds infinity.
                self._has_bad_blocks = True
        return sampled

    def _pool(
        self, batch: StepBatch, hidden: Tensor, last_rows: Int64Array, sampled: list[Sampled]
    ) -> None:
        """Put the vectors of pooled sequences that are whole into ``sampled``."""
        whole: list[tuple[int, Tensor]] = []
        for i, item in enumerate(batch.items):
            if item.sequence.embed is None:
                continue
            end = int(last_rows[i]) + 1
            first = end - (item.num_tokens if self._pooler.needs_every_token else 1)
            vector = self._pooler.take(item, hidden[first:end])
            if vector is not None:
                whole.append((i, vector))
        if not whole:
            return
        vectors = torch.stack([vector for _, vector in whole]).cpu().numpy()
        for (i, _), values in zip(whole, vectors, strict=True):
            embed = batch.items[i].sequence.embed
            assert embed is not None
            try:
                sampled[batch.order[i]] = shape_vector(
                    values,
                    dimensions=embed.dimensions,
                    normalize=self._rules.normalizes_for(embed),
                )
            except PoolingError as error:
                sampled[batch.order[i]] = error
                self._has_bad_blocks = True  # as in ``_sample``

    def _prompt_logprobs(self, batch: StepBatch, hidden: Tensor) -> dict[int, list[TokenLogprobs]]:
        found: dict[int, list[TokenLogprobs]] = {}
        for i, item in enumerate(batch.items):
            top = item.sequence.params.prompt_logprobs
            # The last prompt token predicts the first output token, which is the sampler's.
            end = min(item.start + item.num_tokens, item.sequence.num_prompt_tokens - 1)
            if top is None or end <= item.start:
                continue
            first_row = int(batch.last_rows[i]) + 1 - item.num_tokens
            rows = hidden[first_row : first_row + end - item.start]
            targets = item.sequence.token_ids[item.start + 1 : end + 1]
            found[batch.order[i]] = self._logprobs_of(rows, targets, top)
        return found

    def _logprobs_of(self, hidden: Tensor, targets: list[int], top: int) -> list[TokenLogprobs]:
        """Of ``targets[i]`` after ``hidden[i]``, a bounded number of rows at a time."""
        logprobs: list[TokenLogprobs] = []
        for first in range(0, len(targets), _LOGPROB_ROWS):
            part = targets[first : first + _LOGPROB_ROWS]
            logits = self._decoder.logits(hidden[first : first + len(part)])
            logprobs += token_logprobs(logits, part, [top] * len(part))
        return logprobs

    # --- loading -------------------------------------------------------------------------------

    def _compiled_path(self) -> Library | None:
        """For float32 on a CPU, unless it is switched off or cannot be had here."""
        if self._device.type != "cpu" or self._dtype != torch.float32:
            return None
        if self._config.cpu_path == "torch":
            return None
        try:
            return library()
        except UnavailableError as error:
            _log.warning("computing by torch alone, which is slower: %s", error)
            return None

    def _allocate(self, limit: int) -> PagedKVCache:
        """The KV cache, and the batch builder for its shape. Raises KVCacheTooSmallError."""
        config = self._config
        self._batches = self._new_builder(None)
        blocks = config.num_kv_blocks
        if blocks is None:
            needed = -(-limit // config.block_size) * config.max_num_seqs
            blocks = min(needed, self._memory_for_blocks() // self._block_bytes())
        fits = blocks * config.block_size
        if blocks < 2 or (config.max_model_len is not None and fits < config.max_model_len):
            raise KVCacheTooSmallError(
                f"the KV cache holds {fits} tokens, less than one sequence of {limit}; "
                f"lower --max-model-len, or raise {self._memory_setting()}"
            )
        mirror = self._new_mirror(blocks)
        self._batches = self._new_builder(mirror)
        return self._new_cache(blocks, mirror)

    def _new_builder(self, mirror: ContextMirror | None) -> BatchBuilder:
        config, model = self._config, self._model_config
        metadata = MetadataBuilder(
            CacheShape(config.block_size, model.num_kv_heads),
            model.sliding_windows,
            self._dtype,
            self._device,
            mirror,
        )
        return BatchBuilder(
            metadata,
            block_size=config.block_size,
            device=self._device,
            by_rows=self._decoder.attends_by_rows,
        )

    def _new_mirror(self, blocks: int) -> ContextMirror | None:
        """A copy of decoding contexts pays on a CPU, for layers that attend to all of them."""
        model = self._model_config
        layers = tuple(i for i, window in enumerate(model.sliding_windows) if window is None)
        if self._device.type != "cpu" or not layers or self._decoder.attends_by_rows:
            return None
        shape = MirrorShape(layers, model.num_kv_heads, self._config.block_size, model.head_dim)
        max_bytes = int(blocks * self._block_bytes() * _MIRROR_SHARE)
        return ContextMirror(shape, max_bytes=max_bytes, dtype=self._dtype)

    def _new_cache(self, blocks: int, mirror: ContextMirror | None = None) -> PagedKVCache:
        model = self._model_config
        return PagedKVCache(
            num_layers=model.num_layers,
            num_blocks=blocks,
            num_kv_heads=model.num_kv_heads,
            block_size=self._config.block_size,
            head_dim=model.head_dim,
            dtype=self._dtype,
            device=self._device,
            mirror=mirror,
        )

    def _block_bytes(self) -> int:
        model = self._model_config
        return 2 * model.num_layers * model.kv_size * self._config.block_size * self._dtype.itemsize

    def _memory_setting(self) -> str:
        if self._config.num_kv_blocks is not None:
            return "--num-kv-blocks"
        cpu = self._device.type == "cpu"
        return "--kv-cache-memory" if cpu else "--gpu-memory-utilization"

    def _memory_for_blocks(self) -> int:
        """Bytes: as configured on a CPU; on a GPU what the configured share leaves after the
        weights and the largest step."""
        if self._device.type == "cpu":
            return int(self._config.kv_cache_memory / (1 + _MIRROR_SHARE))
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(self._device)
        before = torch.cuda.memory_allocated(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        self._largest_step()
        step = torch.cuda.max_memory_allocated(self._device) - before
        torch.cuda.empty_cache()
        return int(free - step - total * (1 - self._config.gpu_memory_utilization))

    def _largest_step(self) -> None:
        """Prefill as many tokens as one step may hold, in a cache made for the purpose."""
        config = self._config
        limit = _length_limit(config, self._model_config)
        tokens = config.max_num_batched_tokens
        sizes = [limit] * (tokens // limit) + ([tokens % limit] if tokens % limit else [])
        per_sequence = [-(-size // config.block_size) for size in sizes]
        self._cache = self._new_cache(sum(per_sequence))
        first = 0
        items = []
        for uid, (size, blocks) in enumerate(zip(sizes, per_sequence, strict=True)):
            items.append(_probe(-1 - uid, size, range(first, first + blocks)))
            first += blocks
        self._execute(StepPlan(tuple(items)))
        del self._cache

    def _warm_up(self) -> None:
        """One prefill and one decode step, so that the first request finds everything set up."""
        count = min(self.info.max_model_len, self._config.block_size) - 1
        if count >= 1:
            prefill = _probe(-1, count, [0])
            self.execute(StepPlan((prefill,)))
            prefill.sequence.token_ids.append(0)
            self.execute(StepPlan((ScheduledSequence(prefill.sequence, count, 1, samples=True),)))
        self._has_bad_blocks = False
        with torch.inference_mode():
            self._cache.clear(torch.zeros(1, dtype=torch.int64, device=self._device))


def _probe(uid: int, num_tokens: int, blocks: range | list[int]) -> ScheduledSequence:
    sequence = Sequence(
        uid=uid,
        request_id="probe",
        token_ids=[0] * num_tokens,
        num_prompt_tokens=num_tokens,
        params=SamplingParams(max_tokens=1, temperature=1.0, top_p=0.9),
        block_table=list(blocks),
    )
    return ScheduledSequence(sequence, 0, num_tokens, samples=True)


def _length_limit(config: EngineConfig, model: ModelConfig) -> int:
    """The longest sequence asked for, in tokens, which the model's positions must allow."""
    longest = config.max_model_len or model.max_position_embeddings
    if longest > model.max_position_embeddings:
        raise ModelError(
            f"--max-model-len {longest} exceeds the model's {model.max_position_embeddings} "
            "positions"
        )
    return longest
