"""Builds a ``ModelRunner``: loads the model, allocates what it needs, warms it up."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from engine.architecture.errors import ModelError
from engine.attention.cache import PagedKVCache
from engine.attention.layout import LayoutBuilder, Ragged
from engine.config import EngineConfig, OnProgress
from engine.device.device import answers
from engine.device.memory import MemoryProfile, explaining, gib, profiled
from engine.heap import release_free_memory
from engine.model.decoder import Decoder
from engine.plugin.config import PluginConfig
from engine.pooling.pool import Pooler
from engine.run.batch import BatchBuilder
from engine.run.caches import MIRROR_SHARE, AnyKVCache, Caches, cache_dtype
from engine.run.launched import StepParts
from engine.run.loader import (
    DecoderOptions,
    LoadedDecoder,
    LoadSettings,
    described_quantization,
    load_decoder,
    warn_if_already_quantized,
)
from engine.run.model_runner import ModelRunner
from engine.run.setup import (
    RunnerSetup,
    choose_attention,
    compiled_library,
    has_kernels,
    set_up,
    with_default_sizes,
)
from engine.run.snapshots import num_snapshots, state_bytes
from engine.run.trials import EVERYTHING, next_trial_item, trial_item
from engine.sampling.sampler import Sampler
from engine.sampling.sharded import Vocabulary, VocabularyParallelSampler
from engine.sharding.collectives import ALONE, Collectives
from engine.step.step import ModelInfo, StepPlan

if TYPE_CHECKING:
    from engine.gpu.sampler import KernelSampler
    from engine.run.mixed import MixedSteps
    from engine.run.steady import SteadyDecode

_log = logging.getLogger(__name__)

_FEWER_TOKENS = "lower --max-num-batched-tokens"

# Size of the cache used to record trial graphs, whose steps access none of it.
_TRIAL_BLOCKS = 2


class Recorded(NamedTuple):
    """Steps of fixed shape; none without kernels, or with ``--no-cuda-graphs``."""

    steady: SteadyDecode | None = None
    mixed: MixedSteps | None = None


NOTHING_RECORDED = Recorded()


class KVCacheTooSmallError(ModelError):
    """The KV cache cannot hold even one sequence of the maximum length."""


def load_model_runner(
    config: EngineConfig, on_progress: OnProgress, collectives: Collectives = ALONE
) -> ModelRunner:
    """Load a model; with ``collectives`` of several ranks, load one rank's runner. Raises
    ModelError or DeviceError, with a message for the operator, when the model cannot be served."""
    on_progress("config", 0, 1)
    setup = set_up(config, collectives)
    on_progress("config", 1, 1)
    with torch.inference_mode():
        with_kernels = has_kernels(setup)
        if with_kernels and config.gpu_path == "auto" and setup.ranks == 1:
            try:
                return _assembled(setup, on_progress, with_kernels=True)
            except Exception as error:
                if not _comes_from_triton(error):
                    raise
                reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
                _log.warning(
                    "computing by torch alone, which is slower: a kernel cannot be compiled for "
                    "this GPU (%s)",
                    reason,
                )
            gc.collect()  # the error's frames held the weights
            with_kernels = False
        return _assembled(setup, on_progress, with_kernels=with_kernels)


def _comes_from_triton(error: Exception) -> bool:
    """True if a kernel could not be compiled, or takes more than the device has."""
    return type(error).__module__.split(".")[0] == "triton"


def _assembled(setup: RunnerSetup, on_progress: OnProgress, *, with_kernels: bool) -> ModelRunner:
    setup = with_default_sizes(setup, with_kernels=with_kernels)
    loaded = _load(setup, on_progress, with_kernels=with_kernels)
    assembly = Assembly(setup, loaded, with_kernels=with_kernels)
    on_progress("kv_cache", 0, 1)
    batches, cache = assembly.allocate()
    recorded = assembly.record(cache)
    on_progress("kv_cache", 1, 1)
    on_progress("warmup", 0, 1)
    assembly.warm_up(batches, cache, recorded)
    release_free_memory()  # what loading used temporarily
    on_progress("warmup", 1, 1)
    return assembly.runner(batches, cache, recorded)


def _load(setup: RunnerSetup, on_progress: OnProgress, *, with_kernels: bool) -> LoadedDecoder:
    config = setup.config
    dummy_seed = config.seed if config.load_format == "dummy" else None
    settings = LoadSettings(Path(config.model), setup.dtype, setup.device, on_progress, dummy_seed)
    warn_if_already_quantized(config)
    if isinstance(setup.whole, PluginConfig):
        from engine.run.plugged import load_plugged  # imports transformers, which takes seconds

        return load_plugged(setup.whole, settings, setup.max_positions, compiled_library(setup))
    return load_decoder(
        setup.whole,
        settings,
        DecoderOptions(
            setup.max_positions,
            compiled_library(setup),
            with_kernels,
            setup.collectives,
            config.quantization,
            config.deterministic,
            choose_attention(setup, with_kernels=with_kernels),
        ),
    )


class Assembly:
    """Builds the parts of a runner around a loaded decoder. Its methods need
    ``torch.inference_mode``."""

    def __init__(self, setup: RunnerSetup, loaded: LoadedDecoder, *, with_kernels: bool) -> None:
        self._setup = setup
        self._config = setup.config
        self._sizes = setup.sizes
        self._device = setup.device
        self._loaded = loaded
        self._decoder = loaded.decoder
        self._caches = Caches(setup, loaded.decoder.layout_type, cache_dtype(setup, loaded.decoder))
        self._parts = _step_parts(setup, loaded, with_kernels=with_kernels)
        self._can_record = True
        self._num_snapshots = 0

    def runner(
        self, batches: BatchBuilder, cache: AnyKVCache, recorded: Recorded = NOTHING_RECORDED
    ) -> ModelRunner:
        return ModelRunner(
            self._info(cache),
            self._parts,
            batches,
            cache,
            steady=recorded.steady,
            mixed=recorded.mixed,
            # A state may be read again only until the next step is launched.
            runs_ahead=self._setup.runs_ahead and self._loaded.states is None,
        )

    def allocate(self) -> tuple[BatchBuilder, AnyKVCache]:
        """Allocate the KV cache and a batch builder for it. Raises KVCacheTooSmallError."""
        config, limit = self._config, self._setup.max_positions
        blocks = config.num_kv_blocks
        where_memory_went = ""
        if blocks is None:
            memory, where_memory_went = self._memory_for_blocks()
            memory -= self._reserve_snapshots(memory, config.max_model_len or 0)
            needed = -(-limit // self._sizes.block_size) * self._sizes.max_num_seqs
            blocks = min(needed, max(0, memory) // self._caches.bytes_per_block)
        else:
            self._reserve_snapshots(blocks * self._caches.bytes_per_block)
        blocks = self._setup.collectives.minimum(blocks)
        fits = blocks * self._sizes.block_size
        advice = f"lower {self._setup.memory_setting}"
        if blocks < 2 or (config.max_model_len is not None and fits < config.max_model_len):
            raise KVCacheTooSmallError(
                f"the KV cache holds {fits} tokens, less than one sequence of {limit}"
                f"{where_memory_went}; lower --max-model-len, or raise "
                f"{self._setup.memory_setting}"
            )
        purpose = f"a KV cache of {blocks} blocks, {gib(blocks * self._caches.block_bytes)}"
        with explaining(self._device, purpose, advice):
            storage = self._caches.create(blocks, mirrored=True)
            return self._new_batches(storage.layouts), storage.cache

    def record(self, cache: AnyKVCache) -> Recorded:
        """Record steps of fixed shape, if the decoder consists of kernels."""
        return self._try_recording(cache, f"lower --max-num-seqs or {self._setup.memory_setting}")

    def warm_up(self, batches: BatchBuilder, cache: AnyKVCache, recorded: Recorded) -> None:
        """Run one prefill and one decode step, so that everything is set up before the first
        request. Their runner, and any NaN or infinity it noted, is discarded."""
        with explaining(self._device, "the first steps", f"lower {self._setup.memory_setting}"):
            if self._decoder.layout_type is Ragged:
                from engine.gpu.llama import KernelLlama  # imports triton, if it is installed

                assert isinstance(self._decoder, KernelLlama)
                self._decoder.prepare(self._sizes.max_num_batched_tokens)
            self._run_first_steps(self.runner(batches, cache, recorded))
            cache.clear(torch.zeros(1, dtype=torch.int64, device=self._device))

    def _run_first_steps(self, runner: ModelRunner) -> None:
        count = min(runner.info.max_model_len, self._sizes.block_size) - 1
        if count >= 1:
            prefill = trial_item(-1, count, [0])
            runner.execute(StepPlan((prefill,)))
            runner.execute(StepPlan((next_trial_item(prefill),)))
            runner.forget(prefill.sequence.uid)

    def _info(self, cache: AnyKVCache) -> ModelInfo:
        config, model = self._config, self._setup.model
        return ModelInfo(
            model=config.model,
            architecture=model.architecture,
            dtype=str(self._setup.dtype).removeprefix("torch."),
            device=str(self._device),
            num_parameters=self._loaded.num_parameters,
            vocab_size=model.vocab_size,
            max_model_len=min(self._setup.max_positions, cache.num_blocks * self._sizes.block_size),
            block_size=self._sizes.block_size,
            num_kv_blocks=cache.num_blocks,
            kv_cache_bytes=cache.num_bytes * self._setup.ranks,
            eos_token_ids=model.eos_token_ids,
            tokenizer_dir=config.model,
            generates=model.generates,
            prompt_logprob_work=self._loaded.prompt_logprob_work,
            step_seconds=self._setup.step_seconds,
            embedding_size=model.hidden_size,
            pooling=self._setup.pooling.pooling,
            matryoshka_dimensions=self._setup.pooling.matryoshka_dimensions,
            tensor_parallel_size=self._setup.ranks,
            shares_prefixes=self._loaded.states is None or self._num_snapshots > 0,
            num_snapshots=self._num_snapshots,
            implementation="transformers" if isinstance(model, PluginConfig) else "native",
            quantization=described_quantization(config),
            unserved_inputs=() if model.text_part is None else model.text_part.inputs,
            default_sizes=self._setup.default_sizes,
        )

    # --- memory --------------------------------------------------------------------------------

    def _memory_for_blocks(self) -> tuple[int, str]:
        """Return the bytes available for blocks: as configured on a CPU; on a GPU the configured
        share minus the weights, the largest step and the CUDA graphs. Also return a text that lists
        these."""
        if self._device.type == "cpu":
            share = self._config.kv_cache_memory / self._setup.ranks
            return int(share / (1 + MIRROR_SHARE)), ""
        profile = self._profile()
        return profile.for_blocks(self._config.gpu_memory_utilization), f" ({profile})"

    def _reserve_snapshots(self, memory: int, needed_tokens: int = 0) -> int:
        """Decide how many states are kept for shared prefixes, of the ``memory`` for the KV cache,
        in which ``needed_tokens`` must have room; return the bytes that they take."""
        states = self._loaded.states
        if states is None or not self._config.enable_prefix_caching:
            return 0
        storage = self._caches.create(_TRIAL_BLOCKS)
        one = state_bytes(self.runner(self._new_batches(storage.layouts), storage.cache), states)
        size, block_bytes = self._sizes.block_size, self._caches.bytes_per_block
        self._num_snapshots = num_snapshots(
            memory,
            one,
            token_bytes=-(-block_bytes // size),
            needed=max(2, -(-needed_tokens // size)) * block_bytes,
        )
        return self._num_snapshots * one

    def _profile(self) -> MemoryProfile:
        """Measure how much GPU memory a step and the graphs take, before there is a KV cache."""

        def prepare() -> Callable[[], None]:
            with explaining(self._device, "a trial's KV cache next to the weights", _FEWER_TOKENS):
                return self._largest_steps()

        def record() -> Recorded:
            cache = self._caches.create(_TRIAL_BLOCKS).cache
            return self._try_recording(cache, "lower --max-num-seqs")

        return profiled(self._device, prepare, record if self._records else None)

    def _graphs_explained(self, advice: str) -> AbstractContextManager[None]:
        purpose = f"CUDA graphs of steps of up to {self._sizes.max_num_seqs} sequences"
        return explaining(
            self._device, purpose, f"{advice}, or turn them off with --no-cuda-graphs"
        )

    def _largest_steps(self) -> Callable[[], None]:
        """Return a function that prefills as many tokens as one step may have, and samples as many
        as it may, with everything that a request can require. Their temporary cache lives as long
        as the function."""
        limit, tokens = self._setup.max_positions, self._sizes.max_num_batched_tokens
        rows = min(self._sizes.max_num_seqs, tokens)
        sizes = [limit] * (tokens // limit) + ([tokens % limit] if tokens % limit else [])
        per_sequence = [-(-size // self._sizes.block_size) for size in sizes]
        storage = self._caches.create(sum(per_sequence))
        runner = self.runner(self._new_batches(storage.layouts), storage.cache)
        first = 0
        items = []
        for uid, (size, blocks) in enumerate(zip(sizes, per_sequence, strict=True)):
            items.append(trial_item(-1 - uid, size, range(first, first + blocks)))
            first += blocks
        # All of them write the same block, as nothing of it is used.
        last = -len(items)
        decodes = tuple(trial_item(last - 1 - row, 1, [0], EVERYTHING) for row in range(rows))

        def steps() -> None:
            purpose = f"a step of {tokens} tokens next to the weights"
            with explaining(self._device, purpose, _FEWER_TOKENS):
                runner.execute(StepPlan(tuple(items)))
            purpose = f"sampling for {rows} sequences next to the weights"
            with explaining(self._device, purpose, "lower --max-num-seqs"):
                runner.execute(StepPlan(decodes))
                if self._loaded.states is not None:  # a sequence then has that of the step before
                    runner.execute(StepPlan(tuple(next_trial_item(item) for item in decodes)))
            for item in (*items, *decodes):
                runner.forget(item.sequence.uid)

        return steps

    # --- parts ---------------------------------------------------------------------------------

    @property
    def _records(self) -> bool:
        wanted = self._config.cuda_graphs and self._can_record
        return self._decoder.layout_type is Ragged and wanted

    def _try_recording(self, cache: AnyKVCache, advice: str) -> Recorded:
        """Return nothing where CUDA graphs cannot be recorded; one sentence in the log says why.
        Raises ModelError if several ranks would have to agree on that."""
        try:
            with self._graphs_explained(advice):
                return self._new_recorded(cache)
        except ModelError:
            raise
        except Exception as error:
            if _comes_from_triton(error) or not answers(self._device):
                raise
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            if self._setup.ranks > 1:
                raise ModelError(
                    f"CUDA graphs cannot be recorded here ({reason}); --no-cuda-graphs computes "
                    "without them"
                ) from error
            _log.warning(
                "steps are launched kernel by kernel, which is slower: CUDA graphs cannot be "
                "recorded here (%s)",
                reason,
            )
            self._can_record = False
            return NOTHING_RECORDED

    def _new_recorded(self, cache: AnyKVCache) -> Recorded:
        if not self._records:
            return NOTHING_RECORDED
        from engine.gpu.graphs import new_pool
        from engine.gpu.llama import KernelLlama  # imports triton, which is not always installed
        from engine.run.mixed import MixedSteps
        from engine.run.steady import SteadyDecode

        sizes, device, positions = self._sizes, self._device, self._setup.max_positions
        sampler = self._parts.kernel_sampler
        assert isinstance(self._decoder, KernelLlama)
        assert isinstance(cache, PagedKVCache)
        assert sampler is not None
        pool = new_pool(device)
        # First what needs most memory, of which the others then take parts.
        mixed = MixedSteps(
            self._decoder,
            cache,
            max_rows=sizes.max_num_seqs,
            max_tokens=sizes.max_num_batched_tokens,
            max_positions=positions,
            device=device,
            pool=pool,
            collectives=self._setup.collectives,
        )
        steady = SteadyDecode(
            self._decoder,
            cache,
            sampler,
            max_rows=sizes.max_num_seqs,
            max_positions=positions,
            vocab_size=self._setup.model.vocab_size,
            device=device,
            pool=pool,
            collectives=self._setup.collectives,
        )
        return Recorded(steady, mixed)

    def _new_batches(self, layouts: LayoutBuilder) -> BatchBuilder:
        by_kernel = self._parts.kernel_sampler is not None
        return BatchBuilder(
            layouts,
            block_size=self._sizes.block_size,
            draws_from=self._setup.model.vocab_size if by_kernel else None,
        )


def _step_parts(setup: RunnerSetup, loaded: LoadedDecoder, *, with_kernels: bool) -> StepParts:
    vocabulary = Vocabulary(setup.whole.vocab_size, setup.collectives)
    sampler = Sampler(
        vocab_size=setup.whole.vocab_size,
        eos_token_ids=setup.whole.eos_token_ids,
        device=setup.device,
    )
    return StepParts(
        loaded.decoder,
        sampler
        if setup.ranks == 1
        else VocabularyParallelSampler(sampler, vocabulary, tells_tokens=setup.runs_ahead),
        _kernel_sampler(sampler, loaded.decoder, vocabulary) if with_kernels else None,
        vocabulary,
        Pooler(setup.pooling.pooling),
        setup.pooling,
        setup.device,
        loaded.states,
    )


def _kernel_sampler(
    sampler: Sampler, decoder: Decoder[Any], vocabulary: Vocabulary
) -> KernelSampler:
    from engine.gpu.llama import KernelLlama  # imports triton, which is not always installed
    from engine.gpu.sampler import KernelSampler
    from engine.gpu.shared_sampler import SharedKernelSampler

    logits = decoder.narrow_logits if isinstance(decoder, KernelLlama) else decoder.logits
    if vocabulary.is_divided:
        return SharedKernelSampler(sampler, logits, vocabulary)
    return KernelSampler(sampler, logits)
