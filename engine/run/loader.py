"""Loads a model from its directory onto a device."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from engine.architecture.config import ModelConfig
from engine.architecture.encoder_config import EncoderConfig
from engine.architecture.errors import ModelError
from engine.architecture.features import ExpertStorage, Feature
from engine.architecture.quantization import read_quantization
from engine.config import EngineConfig, OnProgress
from engine.cpu.library import Library
from engine.cpu.llama import CompiledLlama, compiled_pass_fits
from engine.device.memory import explaining, gib
from engine.gguf.names import LINK
from engine.gguf.weights import GgufWeights
from engine.gpu import availability
from engine.model import bert, gpt2, llama, parameters
from engine.model.decoder import Decoder, States
from engine.model.experts import expert_names, router_names
from engine.model.parameters import EMBEDDING, HEAD, unread_names
from engine.quantized.weights import QuantizedCheckpoint
from engine.run.prompt_work import prompt_logprob_work
from engine.run.setup import OUR_ATTENTION, ChosenAttention
from engine.sharding.collectives import ALONE, Collectives
from engine.sharding.shard import Part, parts_of
from engine.weights.experts import ExpertWeights, expert_storage, stacked_shapes
from engine.weights.families import FamilyWeights, stored_shapes
from engine.weights.head import has_own_head
from engine.weights.quantization import QuantisedWeights, Quantization
from engine.weights.sharded import ShardedWeights, SlicingSource
from engine.weights.weights import (
    CheckpointWeights,
    RandomWeights,
    Shapes,
    WeightSource,
    text_shapes,
)

_log = logging.getLogger(__name__)

AnyWeights = CheckpointWeights | GgufWeights | QuantizedCheckpoint | RandomWeights

_NOT_DETERMINISTIC = (
    "--deterministic is not supported for this model with these settings. On a CPU it needs our "
    "compiled code (a C compiler; float32 or bfloat16; --cpu-path auto; --kv-cache-dtype auto), on "
    "a GPU our Triton kernels (--gpu-path auto or triton); and one device, and a model that this "
    "code supports (docs/models.md)"
)


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """How to load weights: from ``directory``, or random ones from ``dummy_seed`` unless that is
    None. ``on_progress("weights", done, total)`` counts parameters."""

    directory: Path
    dtype: torch.dtype
    device: torch.device
    on_progress: OnProgress
    dummy_seed: int | None = None


@dataclass(frozen=True, slots=True)
class DecoderOptions:
    """With ``library`` the compiled decoder is used, with ``kernels`` the one of GPU kernels, if
    they support the model; all but the compiled one convert weights of few bits back to floats.
    ``max_positions``: tokens of the longest sequence. ``deterministic``: one of those two is
    required. ``attention``: what kernels leave prompts to."""

    max_positions: int
    library: Library | None = None
    kernels: bool = False
    collectives: Collectives = ALONE
    quantization: Quantization = "none"
    deterministic: bool = False
    attention: ChosenAttention = OUR_ATTENTION


@dataclass(frozen=True, slots=True)
class LoadedDecoder:
    """``states``: those of the sequences, if the decoder keeps any besides the KV cache."""

    decoder: Decoder[Any]
    num_parameters: int
    states: States | None = None
    prompt_logprob_work: float = 1.0  # see ModelInfo


@dataclass(frozen=True, slots=True)
class LoadedEncoder:
    encoder: bert.BertEncoder
    num_parameters: int


def parameter_shapes(config: ModelConfig) -> Shapes:
    """Return the shape of every parameter by its checkpoint name, roughly in order of use."""
    if Feature.LEARNED_POSITIONS in config.features:
        return gpt2.parameter_shapes(config)
    return parameters.parameter_shapes(config)


def load_decoder(
    config: ModelConfig, settings: LoadSettings, options: DecoderOptions
) -> LoadedDecoder:
    """Load the decoder with its weights; as one of several ranks, this rank's part of the whole
    model that ``config`` describes.

    Weights are read tensor by tensor, slightly ahead, and converted to their final layout, so at
    most one layer's exist twice, besides READ_AHEAD_BYTES of the next ones. Raises ConfigError when
    the model cannot be divided among this many ranks, and WeightsError.
    """
    config = _as_stored(config, settings)
    shard = options.collectives.shard
    own = shard.config(config)
    shapes = parameter_shapes(config)
    unused = unread_names(config)
    parts = {} if shard.size == 1 else parts_of(shapes, config, shard)
    named = stored_shapes(shapes, config)
    stored = stacked_shapes(named, config.expert_storage)
    with (
        _weights_explained(shapes, settings, shard.size),
        _weights(stored, unused, settings, config, parts) as source,
    ):
        whole: SlicingSource = source
        if config.expert_storage is not ExpertStorage.APART:
            whole = ExpertWeights(source, named, config.expert_storage)
        held: WeightSource = whole if shard.size == 1 else ShardedWeights(whole, config, shard)
        if config.features & {Feature.TENSOR_NAMES, Feature.OFFSET_NORMS}:
            held = FamilyWeights(held, shapes, config)
        decoder = _build(own, held, settings, options)
    work = prompt_logprob_work(shapes.values(), config.vocab_size, config.hidden_size)
    return LoadedDecoder(decoder, _num_parameters(shapes), prompt_logprob_work=work)


def _as_stored(config: ModelConfig, settings: LoadSettings) -> ModelConfig:
    """The files decide whether the output head is tied to the embeddings, as in transformers. They
    also decide how experts are stored: tools that quantize experts split them, and transformers
    writes their matrices transposed."""
    directory = settings.directory
    if settings.dummy_seed is not None:
        return config
    if (directory / LINK).exists():
        return _as_in_gguf(config)
    shapes = stored_shapes(parameter_shapes(config), config)
    if config.tie_word_embeddings and has_own_head(
        directory, next(iter(shapes)), settings.dtype, config.text_part
    ):
        _log.info("the model has its own output head, though config.json ties it to the embeddings")
        config = replace(config, tie_word_embeddings=False)
    if config.experts is None or config.expert_storage is ExpertStorage.APART:
        return config
    stored = text_shapes(directory, config.text_part)
    return replace(config, expert_storage=expert_storage(stored, shapes, config.expert_storage))


def _as_in_gguf(config: ModelConfig) -> ModelConfig:
    """``GgufWeights`` gives all families' parameters Llama's names, and files have the offset of
    Gemma's norms already added."""
    return replace(config, tensor_names=(), offset_norms=False, expert_storage=ExpertStorage.APART)


def load_encoder(config: EncoderConfig, settings: LoadSettings) -> LoadedEncoder:
    """Load the encoder with its weights, as ``load_decoder`` does. Raises WeightsError."""
    shapes, unused = bert.parameter_shapes(config), bert.unused_names(config)
    with (
        _weights_explained(shapes, settings, ranks=1),
        _weights(shapes, unused, settings, config) as source,
    ):
        encoder = bert.BertEncoder(config, source)
    return LoadedEncoder(encoder, _num_parameters(shapes))


def described_quantization(config: EngineConfig) -> str:
    """Return in words how weights are stored in few bits, or made so; empty if they are floats."""
    directory = Path(config.model)
    if config.load_format != "dummy":
        if (directory / LINK).exists():
            return "gguf"
        stored = read_quantization(directory)
        if stored is not None and not stored.is_floats:
            return stored.description
    return "" if config.quantization == "none" else config.quantization


def warn_if_already_quantized(config: EngineConfig) -> None:
    """Log that --quantization leaves weights alone that are already quantized."""
    stored = described_quantization(config)
    if config.quantization not in ("none", stored):
        _log.warning(
            "--quantization %s applies only to matrices stored in floats; quantized ones stay as "
            "stored (%s)",
            config.quantization,
            stored,
        )


def _num_parameters(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def _weights_explained(
    shapes: Shapes, settings: LoadSettings, ranks: int
) -> AbstractContextManager[None]:
    count = _num_parameters(shapes)
    size = gib(count * settings.dtype.itemsize // ranks)
    name = str(settings.dtype).removeprefix("torch.")
    purpose = f"the weights, {count:,} parameters" + (f" of {ranks} ranks" if ranks > 1 else "")
    advice = "serve a smaller model"
    if settings.device.type == "cuda":
        advice += ", or share it among more GPUs with --tensor-parallel-size"
    return explaining(settings.device, f"{purpose} ({size} here in {name})", advice)


def _weights(
    shapes: Shapes,
    unused: list[str],
    settings: LoadSettings,
    config: ModelConfig | EncoderConfig,
    parts: Mapping[str, Part] | None = None,
) -> AbstractContextManager[AnyWeights]:
    """``parts``: this rank's; None: everything."""

    def report(done: int, total: int) -> None:
        settings.on_progress("weights", done, total)

    dtype, device = settings.dtype, settings.device
    text_part = config.text_part if isinstance(config, ModelConfig) else None
    if settings.dummy_seed is not None:
        return nullcontext(
            RandomWeights(
                shapes, seed=settings.dummy_seed, dtype=dtype, device=device, progress=report
            )
        )
    if (path := settings.directory / LINK).exists():
        return GgufWeights(
            path,
            shapes,
            head_dim=config.head_dim if isinstance(config, ModelConfig) else 0,
            dtype=dtype,
            device=device,
            progress=report,
            unused=unused,
        )
    if (quantized := read_quantization(settings.directory)) is not None:
        return QuantizedCheckpoint(
            settings.directory,
            shapes,
            quantized,
            unused=unused,
            dtype=dtype,
            rounded=getattr(torch, config.dtype),
            device=device,
            progress=report,
            text_part=text_part,
        )
    return CheckpointWeights(
        settings.directory,
        shapes,
        unused=unused,
        dtype=dtype,
        device=device,
        progress=report,
        parts=parts,
        text_part=text_part,
    )


def _stores_few_bits_for_gpu(settings: LoadSettings) -> bool:
    """True if a GPU reads weights that are in few bits already; what is in floats stays so then."""
    if settings.device.type == "cpu" or settings.dummy_seed is not None:
        return False
    directory = settings.directory
    if (directory / LINK).exists():
        return True
    stored = read_quantization(directory)
    return stored is not None and not stored.is_floats


def _build(
    config: ModelConfig, source: WeightSource, settings: LoadSettings, options: DecoderOptions
) -> Decoder[Any]:
    """Build the decoder; ``config`` and ``source`` are those of this rank's part."""
    device, library, max_positions = settings.device, options.library, options.max_positions
    if Feature.LEARNED_POSITIONS in config.features and not options.deterministic:
        return gpt2.GPT2Model(config, source, options.collectives)
    is_alone = options.collectives.shard.size == 1
    with_kernels = (
        options.kernels
        and availability.kernels_fit(config)
        # The ranks' sums and the tiles of experts depend on the batch's size.
        and not (options.deterministic and (config.experts is not None or not is_alone))
    )
    if options.quantization != "none" and not _stores_few_bits_for_gpu(settings):
        if device.type != "cpu" and not with_kernels:
            raise ModelError(
                f"--quantization {options.quantization} needs our kernels on a GPU, which do not "
                "compute this model here (--gpu-path triton says why)"
            )
        if options.quantization == "fp8" and not with_kernels:
            raise ModelError("--quantization fp8 needs a GPU; on a CPU use int8 or int4")
        exact = router_names(config)
        if with_kernels:  # these look embeddings up, and compute logits and experts, in floats
            exact |= {EMBEDDING, HEAD} | expert_names(config)
        source = QuantisedWeights(source, options.quantization, exact)
    if with_kernels:
        from engine.gpu.attention import with_others  # imports triton, which may be absent
        from engine.gpu.llama import KernelLlama

        return KernelLlama(
            config,
            source,
            max_positions=max_positions,
            device=device,
            deterministic=options.deterministic,
            attention=with_others(options.attention.cudnn, options.attention.planned),
            collectives=options.collectives,
        )
    if library is not None and compiled_pass_fits(config, library.lanes):
        return CompiledLlama(
            config,
            source,
            library,
            max_positions=max_positions,
            threads=torch.get_num_threads(),
            bf16_products=settings.dtype == torch.bfloat16 and library.bf16_products,
            deterministic=options.deterministic,
        )
    if options.deterministic:
        raise ModelError(_NOT_DETERMINISTIC)
    _log.info("%s is computed by Quire's own code in torch", config.architecture)
    return llama.LlamaModel(
        config,
        source,
        max_positions=max_positions,
        device=device,
        collectives=options.collectives,
    )
