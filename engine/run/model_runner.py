"""Runs a model on a device: one step of the plan after another."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from engine.architecture.config import ModelConfig, load_model_config
from engine.architecture.errors import ModelError
from engine.attention.cache import PagedKVCache
from engine.attention.metadata import CacheShape, Int64Array, MetadataBuilder
from engine.attention.mirror import ContextMirror, MirrorShape
from engine.attention.quantised import E4M3, QuantisedKVCache
from engine.config import EngineConfig
from engine.cpu.library import Library, UnavailableError, library
from engine.device.device import choose_device, choose_dtype, prefer_huge_pages, set_threads
from engine.device.memory import MemoryProfile, explaining, gib, profiled
from engine.gpu import availability
from engine.messages import Pooling, SamplingParams
from engine.pooling.declared import pooling_rules
from engine.pooling.pool import Pooler
from engine.run.batch import BatchBuilder, StepBatch
from engine.run.launched import LaunchedStep, NewestTokens, StepParts, on_device
from engine.run.loader import load_model
from engine.sampling.sampler import Sampler
from engine.sampling.sharded import Vocabulary, VocabularyParallelSampler
from engine.sharding.collectives import ALONE, Collectives
from engine.step.sequence import Sequence
from engine.step.step import ModelInfo, ScheduledSequence, StepPlan, StepResult, StepUnderWay

if TYPE_CHECKING:
    from engine.run.steady import SteadyDecode, SteadyStep

logger = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]

# Memory of ``ContextMirror`` as a share of the KV cache's.
_MIRROR_SHARE = 1 / 3

# Of the cache over which graphs are recorded for trial, whose steps touch none.
_TRIAL_BLOCKS = 2


class KVCacheTooSmallError(ModelError):
    """Not even one sequence of the longest length fits into the KV cache."""


class ModelRunner:
    """A loaded model with its KV cache and sampler. Not thread-safe.

    With ``collectives`` of several ranks it is one rank's part of a model: every rank has such a
    runner and is given the same plans, and rank 0's results are those of the model.

    ``progress(phase, done, total)`` is called while loading. Raises ModelError or DeviceError,
    with a message for whoever started the engine, when the model cannot be served.
    """

    def __init__(
        self, config: EngineConfig, progress: Progress, collectives: Collectives = ALONE
    ) -> None:
        progress("config", 0, 1)
        self._collectives = collectives
        ranks = collectives.shard.size
        self._config = config
        self._device = choose_device(config.device)
        self._steady: SteadyDecode | None = None
        directory = Path(config.model)
        whole = load_model_config(directory)
        self._model_config = collectives.shard.config(whole)
        if self._device.type == "cpu":
            prefer_huge_pages()
            matrix = self._model_config.hidden_size * self._model_config.intermediate_size
            set_threads(config.threads, matrix, ranks)
        self._dtype = _dtype_of(config, whole, self._device, ranks)
        limit = _length_limit(config, self._model_config)
        rules = pooling_rules(directory, asked=config.pooling, default=Pooling.LAST)
        runs_ahead = config.async_scheduling
        if runs_ahead is None:
            runs_ahead = self._device.type != "cpu"
        progress("config", 1, 1)
        with torch.inference_mode():
            loaded = load_model(
                directory,
                whole,
                dummy_seed=config.seed if config.load_format == "dummy" else None,
                max_positions=limit,
                dtype=self._dtype,
                device=self._device,
                progress=progress,
                library=self._compiled_path() if ranks == 1 else None,
                kernels=self._has_kernels(),
                collectives=collectives,
                quantization=config.quantization,
            )
            self._decoder = loaded.decoder
            vocabulary = Vocabulary(whole.vocab_size, collectives)
            sampler = Sampler(
                vocab_size=whole.vocab_size,
                eos_token_ids=whole.eos_token_ids,
                device=self._device,
            )
            self._parts = StepParts(
                loaded.decoder,
                sampler
                if ranks == 1
                else VocabularyParallelSampler(sampler, vocabulary, tells_tokens=runs_ahead),
                vocabulary,
                Pooler(rules.pooling),
                rules,
                self._device,
            )
            self._last_launched: LaunchedStep | SteadyStep | None = None
            self._has_bad_blocks = False
            progress("kv_cache", 0, 1)
            self._cache = self._allocate(limit)
            with self._graphs_explained(f"lower --max-num-seqs or {self._memory_setting()}"):
                self._steady = self._new_steady(limit, self._cache)
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
            kv_cache_bytes=self._cache.num_bytes * ranks,
            eos_token_ids=self._model_config.eos_token_ids,
            tokenizer_dir=config.model,
            generates=self._model_config.generates,
            embedding_size=self._model_config.hidden_size,
            pooling=rules.pooling,
            matryoshka_dimensions=rules.matryoshka_dimensions,
            tensor_parallel_size=ranks,
        )
        self.launch = self._launch if runs_ahead else None
        progress("warmup", 0, 1)
        with explaining(self._device, "the first steps", f"lower {self._memory_setting()}"):
            self._warm_up()
        progress("warmup", 1, 1)

    @property
    def clears_blocks(self) -> bool:
        """Whether blocks are zeroed before reuse, as numbers that are none may be in some."""
        return self._has_bad_blocks

    def clear_blocks(self) -> None:
        """From now on zero blocks before reuse: another rank saw numbers that are none."""
        self._has_bad_blocks = True

    def execute(self, plan: StepPlan) -> StepResult:
        """Compute the planned tokens and sample where the plan says so. Running a plan again is
        harmless. Raises DeviceLostError when the accelerator is gone."""
        with on_device(self._device):
            return self._execute(plan)

    def forget(self, uid: int) -> None:
        """Drop what is kept for a sequence that is finished."""
        self._parts.sampler.forget(uid)
        self._parts.pooler.forget(uid)

    def _execute(self, plan: StepPlan) -> StepResult:
        step = self._start(plan, None)
        step.sample(frozenset())
        return step.result()

    def _launch(self, plan: StepPlan) -> StepUnderWay:
        with on_device(self._device):
            self._last_launched = self._start(plan, self._last_launched)
        return self._last_launched

    def _start(
        self, plan: StepPlan, before: LaunchedStep | SteadyStep | None
    ) -> LaunchedStep | SteadyStep:
        """``before``: the step that samples the plan's pending tokens."""
        newest = None if before is None else before.newest()
        if self._steady is None:
            return self._forward(plan, newest)
        if self._steady.accepts(plan.scheduled):
            return self._steady.launch(plan.scheduled, newest)
        self._steady.forget()
        return self._forward(plan, newest)

    def _forward(self, plan: StepPlan, newest: NewestTokens | None) -> LaunchedStep:
        batch = self._batches.build(plan)
        if self._has_bad_blocks:
            self._cache.clear(torch.from_numpy(batch.fresh_blocks).to(self._device))
        if newest is not None:
            newest.fill(batch)
        rows = self._wanted_rows(batch)
        kept = None if rows is None else torch.from_numpy(rows).to(self._device)
        hidden = self._decoder.hidden_states(
            batch.token_ids, batch.positions, self._cache, batch.metadata, kept
        )
        last_rows = batch.last_rows if rows is None else np.arange(len(batch.items))
        return LaunchedStep(self._parts, batch, hidden, last_rows, self._on_bad_numbers)

    def _wanted_rows(self, batch: StepBatch) -> Int64Array | None:
        """The rows whose final states are wanted; None: all."""
        needs_every_row = any(
            item.sequence.params.prompt_logprobs is not None
            or (item.sequence.embed is not None and self._parts.pooler.needs_every_token)
            for item in batch.items
        )
        if needs_every_row or len(batch.items) == batch.token_ids.shape[0]:
            return None
        return batch.last_rows

    def _on_bad_numbers(self) -> None:
        # Numbers that are none may have reached the cache. From now on blocks are zeroed before
        # reuse: a masked slot still spoils a sum if it holds infinity.
        self._has_bad_blocks = True

    # --- loading -------------------------------------------------------------------------------

    def _compiled_path(self) -> Library | None:
        """For a CPU, unless it is switched off or cannot be had here."""
        if self._device.type != "cpu" or self._dtype == torch.float16:
            return None
        if self._config.cpu_path == "torch" or self._is_quantised:
            return None
        try:
            return library()
        except UnavailableError as error:
            logger.warning("computing by torch alone, which is slower: %s", error)
            return None

    def _has_kernels(self) -> bool:
        """Whether to compute by our GPU kernels. Raises ModelError when they are asked for in
        vain."""
        path = self._config.gpu_path
        if path == "torch" or (path == "auto" and self._device.type != "cuda"):
            return False
        if self._collectives.shard.size > 1:
            if path == "triton":
                raise ModelError("--gpu-path triton: not yet with --tensor-parallel-size above 1")
            return False
        try:
            availability.require_triton(self._device)
        except availability.UnavailableError as error:
            if path == "triton":
                raise ModelError(f"--gpu-path triton: {error}") from error
            logger.warning("computing by torch alone, which is slower: %s", error)
            return False
        return True

    @property
    def _has_steady(self) -> bool:
        return self._decoder.attends_ragged and self._config.cuda_graphs

    def _new_steady(self, limit: int, cache: PagedKVCache) -> SteadyDecode | None:
        """Decode steps of fixed shape, for a decoder of kernels."""
        if not self._has_steady:
            return None
        from engine.gpu.llama import KernelLlama  # imports triton, which is not everywhere
        from engine.run.steady import SteadyDecode

        assert isinstance(self._decoder, KernelLlama)
        return SteadyDecode(
            self._decoder,
            cache,
            max_rows=self._config.max_num_seqs,
            max_positions=limit,
            vocab_size=self._model_config.vocab_size,
            device=self._device,
        )

    def _allocate(self, limit: int) -> PagedKVCache:
        """The KV cache, and the batch builder for its shape. Raises KVCacheTooSmallError."""
        config = self._config
        self._batches = self._new_builder(None)
        blocks = config.num_kv_blocks
        where_memory_went = ""
        if blocks is None:
            memory, where_memory_went = self._memory_for_blocks(limit)
            needed = -(-limit // config.block_size) * config.max_num_seqs
            blocks = min(needed, max(0, memory) // self._block_bytes())
        blocks = self._collectives.minimum(blocks)
        fits = blocks * config.block_size
        if blocks < 2 or (config.max_model_len is not None and fits < config.max_model_len):
            raise KVCacheTooSmallError(
                f"the KV cache holds {fits} tokens, less than one sequence of {limit}"
                f"{where_memory_went}; lower --max-model-len, or raise {self._memory_setting()}"
            )
        purpose = f"a KV cache of {blocks} blocks, {gib(blocks * self._block_bytes())}"
        with explaining(self._device, purpose, f"lower {self._memory_setting()}"):
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
            ragged=self._decoder.attends_ragged,
        )

    def _new_mirror(self, blocks: int) -> ContextMirror | None:
        """A copy of decoding contexts pays on a CPU, for layers that attend to all of them."""
        model = self._model_config
        layers = tuple(i for i, window in enumerate(model.sliding_windows) if window is None)
        gathers = not (self._decoder.attends_by_rows or self._decoder.attends_ragged)
        if self._device.type != "cpu" or not layers or not gathers or self._is_quantised:
            return None
        shape = MirrorShape(layers, model.num_kv_heads, self._config.block_size, model.head_dim)
        max_bytes = int(blocks * self._block_bytes() * _MIRROR_SHARE)
        return ContextMirror(shape, max_bytes=max_bytes, dtype=self._dtype)

    def _new_cache(self, blocks: int, mirror: ContextMirror | None = None) -> PagedKVCache:
        model = self._model_config
        if self._is_quantised:
            return QuantisedKVCache(
                num_layers=model.num_layers,
                num_blocks=blocks,
                num_kv_heads=model.num_kv_heads,
                block_size=self._config.block_size,
                head_dim=model.head_dim,
                dtype=self._dtype,
                device=self._device,
            )
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
        elements = 2 * model.num_layers * model.kv_size * self._config.block_size
        return elements * (E4M3 if self._is_quantised else self._dtype).itemsize

    @property
    def _is_quantised(self) -> bool:
        return self._config.kv_cache_dtype == "fp8"

    def _memory_setting(self) -> str:
        if self._config.num_kv_blocks is not None:
            return "--num-kv-blocks"
        cpu = self._device.type == "cpu"
        return "--kv-cache-memory" if cpu else "--gpu-memory-utilization"

    def _memory_for_blocks(self, limit: int) -> tuple[int, str]:
        """Bytes: as configured on a CPU; on a GPU what the configured share leaves after the
        weights, the largest step and the CUDA graphs. And, for people, what these take."""
        if self._device.type == "cpu":
            share = self._config.kv_cache_memory / self._collectives.shard.size
            return int(share / (1 + _MIRROR_SHARE)), ""
        profile = self._profile(limit)
        return profile.for_blocks(self._config.gpu_memory_utilization), f" ({profile})"

    def _profile(self, limit: int) -> MemoryProfile:
        """What a step and the graphs take of a GPU's memory, before there is a KV cache."""

        def step() -> None:
            tokens = self._config.max_num_batched_tokens
            purpose = f"a step of {tokens} tokens beside the weights"
            with explaining(self._device, purpose, "lower --max-num-batched-tokens"):
                self._largest_step()

        def record() -> SteadyDecode | None:
            with self._graphs_explained("lower --max-num-seqs"):
                return self._new_steady(limit, self._new_cache(_TRIAL_BLOCKS))

        return profiled(self._device, step, record if self._has_steady else None)

    def _graphs_explained(self, advice: str) -> AbstractContextManager[None]:
        purpose = f"CUDA graphs of decode steps of up to {self._config.max_num_seqs} sequences"
        return explaining(self._device, purpose, f"{advice}, or do without by --no-cuda-graphs")

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
            self.execute(StepPlan((ScheduledSequence(prefill.sequence, count, 1, completes=True),)))
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
    return ScheduledSequence(sequence, 0, num_tokens, completes=True)


def _dtype_of(
    config: EngineConfig, model: ModelConfig, device: torch.device, ranks: int
) -> torch.dtype:
    if config.quantization == "none":
        return choose_dtype(config.dtype, model.dtype, device)
    if device.type != "cpu" or config.dtype not in ("auto", "float32"):
        raise ModelError(
            f"--quantization {config.quantization} supports float32 on a CPU, not "
            f"--dtype {config.dtype} on {device}"
        )
    if ranks > 1:
        raise ModelError(f"--quantization {config.quantization} supports a single device")
    if model.family == "gpt2":
        raise ModelError(f"--quantization {config.quantization} does not support GPT-2")
    return torch.float32


def _length_limit(config: EngineConfig, model: ModelConfig) -> int:
    """The longest sequence asked for, in tokens, which the model's positions must allow."""
    longest = config.max_model_len or model.max_position_embeddings
    if longest > model.max_position_embeddings:
        raise ModelError(
            f"--max-model-len {longest} exceeds the model's {model.max_position_embeddings} "
            "positions"
        )
    return longest
