"""Whether settings fit a model, as far as its small files and GGUF keys show.

``quire serve`` checks before it starts anything, and the engine again when it loads. Reads no
weights, uses no device and does not import torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from engine.architecture.config import ModelConfig, load_model_config
from engine.architecture.encoder_config import EncoderConfig, is_encoder, load_encoder_config
from engine.architecture.errors import ConfigError, ModelError, UnsupportedError
from engine.architecture.features import Feature
from engine.architecture.fields import read_object
from engine.architecture.quantization import read_quantization
from engine.architecture.unserved import refuse_other_kinds
from engine.config import EngineConfig
from engine.gguf.names import gguf_of
from engine.messages import Pooling
from engine.pooling.declared import pooling_rules
from engine.sharding.shard import Shard


def check_settings(config: EngineConfig) -> bool:
    """Return whether our own code computes ``config.model``, a directory. If not, transformers'
    code may still refuse it. Raises ModelError if it is not served with these settings."""
    if is_encoder(config.model):
        servable_encoder(config)
        _check_pooling(config)
        return True
    model = find_native(config).config
    _check_pooling(config)
    if model is None:
        return False
    Shard(0, config.tensor_parallel_size).config(model)
    return True


def _check_pooling(config: EngineConfig) -> None:
    pooling_rules(Path(config.model), asked=config.pooling, default=Pooling.LAST)


def servable_encoder(config: EngineConfig) -> EncoderConfig:
    """Return what an encoder's config.json says. Raises ModelError."""
    for flag, is_set in (
        ("--tensor-parallel-size", config.tensor_parallel_size > 1),
        ("--quantization", config.quantization != "none"),
        ("--deterministic", config.deterministic),
    ):
        if is_set:
            raise ModelError(f"{flag} supports decoders only; this model is an encoder")
    directory = Path(config.model)
    if config.load_format != "dummy":
        read_quantization(directory)  # refuses what the weights' readers do not know
    found = load_encoder_config(directory)
    positions_within(config, found.max_tokens)
    return found


class Native(NamedTuple):
    """``config``: of a decoder that our own code computes; None: it does not. ``why_not``: the
    reason; None: ``--model-impl transformers`` rules it out."""

    config: ModelConfig | None
    why_not: UnsupportedError | None = None


def find_native(config: EngineConfig) -> Native:
    """Look at a decoder's config.json. Raises ModelError if neither our own code nor that of
    transformers can serve it with these settings."""
    directory = Path(config.model)
    if config.load_format != "dummy" and gguf_of(directory) is not None:
        from engine.gguf.served import check_gguf  # imports numpy, which only these need

        check_gguf(directory, config.model_impl)
    why_not: UnsupportedError | None = None
    if config.model_impl != "transformers":
        try:
            model = load_model_config(directory)
        except UnsupportedError as error:
            if config.model_impl == "native":
                raise
            why_not = error
        else:
            _check_own_code(config, model)
            return Native(model)
    refuse_other_kinds(read_object(directory / "config.json"), why_not)
    read_quantization(directory)  # refuses what the weights' readers do not know
    _refuse_settings_of_own_code(config)
    return Native(None, why_not)


def _check_own_code(config: EngineConfig, model: ModelConfig) -> None:
    positions_within(config, model.max_tokens)
    if config.tensor_parallel_size > 1:
        if config.deterministic:
            raise ModelError("--deterministic supports a single device")
        if config.quantization != "none":
            raise ModelError(f"--quantization {config.quantization} supports a single device")
    if config.quantization != "none" and Feature.LEARNED_POSITIONS in model.features:
        raise ModelError(f"--quantization {config.quantization} does not support GPT-2")


def _refuse_settings_of_own_code(config: EngineConfig) -> None:
    """Raise ConfigError for a setting that needs our own code, which does not compute the model."""
    for flag, is_set in (
        ("--tensor-parallel-size", config.tensor_parallel_size > 1),
        (f"--quantization {config.quantization}", config.quantization != "none"),
        ("--deterministic", config.deterministic),
        ("--gpu-path triton", config.gpu_path == "triton"),
        (f"--attention {config.attention}", config.attention != "auto"),
    ):
        if not is_set:
            continue
        if config.model_impl == "transformers":
            raise ConfigError(
                f"{flag} needs Quire's own code, which --model-impl transformers excludes"
            )
        raise ConfigError(
            f"{flag} needs Quire's own code, which does not compute this model (--model-impl "
            "native says why); without it, transformers' code is tried"
        )


def positions_within(config: EngineConfig, positions: int, most: int = 0) -> int:
    """Return the length of the longest sequence. ``positions``: the model's. ``most``: how many
    ``--max-model-len`` may set, if more. Raises ModelError if it exceeds both."""
    longest, most = config.max_model_len or positions, max(positions, most)
    if longest > most:
        raise ModelError(f"--max-model-len {longest} exceeds the model's {most} positions")
    return longest
