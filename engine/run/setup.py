"""Settings determined before a decoder's weights are loaded: device, dtype, limits, code path."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch

from engine.architecture.config import ModelConfig
from engine.architecture.errors import ModelError, UnsupportedError
from engine.architecture.features import sliding
from engine.config import LARGE_DEVICE_BYTES, LARGE_SIZES, SIZES, EngineConfig, StepSizes
from engine.cpu.library import Library, LibraryUnavailableError, library
from engine.device.device import (
    choose_device,
    choose_dtype,
    gpu_memory,
    set_threads,
)
from engine.gguf.names import LINK
from engine.gpu import availability
from engine.gpu.fresh import require_cudnn
from engine.gpu.planned import PlannedAttention, require_flashinfer
from engine.messages import Pooling
from engine.plugin.config import PluginConfig
from engine.pooling.declared import PoolingRules, pooling_rules
from engine.run.missing_rows import warn_of_missing_rows
from engine.servable import find_native, positions_within
from engine.sharding.collectives import Collectives
from engine.weights.head import stores_head

logger = logging.getLogger(__name__)


# Two of them are hardly noticed: what is left of one when a request comes, and the next one.
_STEP_SECONDS = 0.1

AnyConfig = ModelConfig | PluginConfig


@dataclass(frozen=True, slots=True)
class RunnerSetup:
    """``whole``: the model; ``model``: this rank's part of it, the same for a single rank.
    ``max_positions``: tokens of the longest sequence, if the KV cache has room for them;
    ``default_sizes``: those of the device, where ``config`` says nothing."""

    config: EngineConfig
    collectives: Collectives
    whole: AnyConfig
    model: AnyConfig
    device: torch.device
    dtype: torch.dtype
    max_positions: int
    pooling: PoolingRules
    default_sizes: StepSizes = SIZES

    @property
    def sizes(self) -> StepSizes:
        return self.config.sizes(self.default_sizes)

    @property
    def ranks(self) -> int:
        return self.collectives.shard.size

    @property
    def runs_ahead(self) -> bool:
        asked = self.config.async_scheduling
        return self.device.type != "cpu" if asked is None else asked

    @property
    def step_seconds(self) -> float | None:
        """How long a step of prompts should take, where a short one is as efficient as a long one.
        A GPU needs many rows, and so does a mixture, whose experts each get few of a step's."""
        model = self.model
        is_plain = isinstance(model, ModelConfig) and model.experts is None
        return _STEP_SECONDS if is_plain and self.may_compile else None

    @property
    def may_compile(self) -> bool:
        """True if our library for CPUs may compute the model, unless it is unavailable here."""
        if self.device.type != "cpu" or self.dtype == torch.float16 or self.ranks > 1:
            return False
        return self.config.cpu_path != "torch" and not self.is_cache_quantised

    @property
    def is_cache_quantised(self) -> bool:
        return self.config.kv_cache_dtype == "fp8"

    @property
    def memory_setting(self) -> str:
        """The flag that sets the KV cache's size."""
        if self.config.num_kv_blocks is not None:
            return "--num-kv-blocks"
        cpu = self.device.type == "cpu"
        return "--kv-cache-memory" if cpu else "--gpu-memory-utilization"


def set_up(config: EngineConfig, collectives: Collectives) -> RunnerSetup:
    """Determine the settings, and set this process's threads. Raises ModelError or DeviceError when
    the model cannot be served as ``config`` says."""
    ranks = collectives.shard.size
    device = choose_device(config.device)
    directory = Path(config.model)
    whole = read_config(config, has_files=_has_files(config))
    if collectives.shard.rank == 0:
        _report(whole)
        warn_of_missing_rows(directory, whole.vocab_size)
    model = whole if isinstance(whole, PluginConfig) else collectives.shard.config(whole)
    if device.type == "cpu":
        processes = ranks * config.data_parallel_size
        set_threads(config.threads, model.largest_matrix, processes)
    return RunnerSetup(
        config,
        collectives,
        whole,
        model,
        device,
        _choose_dtype(config, whole, device),
        positions_within(
            config,
            model.max_tokens,
            model.dynamic_tokens if isinstance(model, PluginConfig) else 0,
        ),
        pooling_rules(directory, asked=config.pooling, default=Pooling.LAST),
    )


def _report(model: AnyConfig) -> None:
    """Log which parts of the model are not served or not known."""
    if model.text_part is not None:
        logger.info(
            "serving only the language model of %s: input other than text (%s) is not supported",
            model.architecture,
            ", ".join(model.text_part.inputs),
        )
    if not model.generates:
        logger.info(
            "%s has no output head in its files, so it serves embeddings only",
            model.architecture,
        )
    if model.generates and not model.eos_token_ids:
        logger.warning(
            "no end-of-sequence token is known, so answers end only at stop strings or at their "
            "token limit; set eos_token_id in generation_config.json, or eos_token in "
            "tokenizer_config.json"
        )


def _has_files(config: EngineConfig) -> bool:
    return config.load_format != "dummy" and not (Path(config.model) / LINK).exists()


def read_config(config: EngineConfig, *, has_files: bool) -> AnyConfig:
    """Read config.json, for our own code or for that of transformers. ``has_files``: whether
    safetensors files decide if there is an output head. Raises ModelError when the one that
    ``config`` requires, or either, does not support it."""
    directory = Path(config.model)
    model, why_not = find_native(config)
    if model is not None:
        return _as_stored(model, directory) if has_files else model
    from engine.plugin.reading import read_plugin_config  # takes seconds to import

    try:
        found = read_plugin_config(directory, has_files=has_files)
    except UnsupportedError as error:
        if why_not is None:
            raise
        raise UnsupportedError(f"{why_not}; nor is it by transformers' code: {error}") from error
    logger.info("%s is computed by transformers' code over Quire's KV cache", found.architecture)
    return found


def _as_stored(model: ModelConfig, directory: Path) -> ModelConfig:
    """Some embedding models are published without the output head that config.json describes; the
    files decide, as in sentence-transformers."""
    if not model.generates or model.tie_word_embeddings or stores_head(directory, model.text_part):
        return model
    return replace(model, generates=False, tie_word_embeddings=True)


def compiled_library(setup: RunnerSetup) -> Library | None:
    """Return the library for a CPU, unless it is disabled or unavailable here."""
    if not setup.may_compile:
        return None
    try:
        return library()
    except LibraryUnavailableError as error:
        logger.warning("computing by torch alone, which is slower: %s", error)
        return None


def has_kernels(setup: RunnerSetup) -> bool:
    """True if our GPU kernels are to be used: by all ranks or none. Raises ModelError when they are
    required but cannot run."""
    path = setup.config.gpu_path
    if isinstance(setup.model, PluginConfig):
        return False
    if path == "torch" or (path == "auto" and setup.device.type != "cuda"):
        return False
    why_not = ""
    try:
        availability.require_kernels(setup.device, is_cache_fp8=setup.is_cache_quantised)
    except availability.KernelsUnavailableError as error:
        why_not = str(error)
    if not setup.collectives.minimum(int(not why_not)):
        why_not = why_not or "another rank cannot run kernels; its log says why"
        if path == "triton":
            raise ModelError(f"--gpu-path triton: {why_not}")
        logger.warning("computing by torch alone, which is slower: %s", why_not)
        return False
    availability.prepare_early_launch(wanted=setup.config.programmatic_launch)
    return True


def with_default_sizes(setup: RunnerSetup, *, with_kernels: bool) -> RunnerSetup:
    """Return ``setup`` with the default sizes of its device, the same on all ranks."""
    is_large = (
        with_kernels
        and isinstance(setup.model, ModelConfig)
        and availability.kernels_fit(setup.model)
        and gpu_memory(setup.device) >= LARGE_DEVICE_BYTES
    )
    if not setup.collectives.minimum(int(is_large)):
        return setup
    return replace(setup, default_sizes=LARGE_SIZES)


class ChosenAttention(NamedTuple):
    """What attends for prompts where it fits, in place of our kernels."""

    cudnn: bool = False
    planned: PlannedAttention | None = None


OUR_ATTENTION = ChosenAttention()


def choose_attention(setup: RunnerSetup, *, with_kernels: bool) -> ChosenAttention:
    """Raises ModelError when ``--attention`` requires what cannot run here."""
    config, asked, model = setup.config, setup.config.attention, setup.model
    if asked == "auto" or isinstance(model, PluginConfig):
        return OUR_ATTENTION
    if not (with_kernels and availability.kernels_fit(model)):
        raise ModelError(
            f"--attention {asked} needs our GPU kernels, which do not compute this model here "
            "(--gpu-path triton says why); --attention auto needs none"
        )
    if asked == "triton":
        return OUR_ATTENTION
    for setting, is_set in (
        ("--deterministic", config.deterministic),
        ("--kv-cache-dtype fp8", setup.is_cache_quantised),
    ):
        if is_set:
            raise ModelError(f"--attention {asked}: not with {setting}; use --attention triton")
    try:
        return _required(asked, setup, model)
    except availability.KernelsUnavailableError as error:
        raise ModelError(f"--attention {asked}: {error}") from error


def _required(asked: str, setup: RunnerSetup, model: ModelConfig) -> ChosenAttention:
    if asked == "cudnn":
        require_cudnn(
            setup.device,
            heads=model.num_heads,
            kv_heads=model.num_kv_heads,
            head_dim=model.head_dim,
            dtype=setup.dtype,
        )
        return ChosenAttention(cudnn=True)
    planned = PlannedAttention(
        model.num_heads,
        model.num_kv_heads,
        model.head_dim,
        setup.sizes.block_size,
        setup.dtype,
        setup.device,
    )
    require_flashinfer(planned, {sliding(window) for window in model.windows})
    return ChosenAttention(planned=planned)


def _choose_dtype(config: EngineConfig, model: AnyConfig, device: torch.device) -> torch.dtype:
    if config.quantization == "none":
        return choose_dtype(config.dtype, model.dtype, device)
    if device.type == "cpu" and config.dtype not in ("auto", "float32"):
        raise ModelError(
            f"--quantization {config.quantization} supports float32 on a CPU, not "
            f"--dtype {config.dtype} on {device}"
        )
    if device.type != "cpu":
        return choose_dtype(config.dtype, model.dtype, device)
    return torch.float32
