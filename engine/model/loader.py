"""From a model directory to a decoder on a device."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.cpu.library import Library
from engine.cpu.llama import CompiledLlama, fits
from engine.model import gpt2, llama
from engine.model.config import ModelConfig
from engine.model.decoder import Decoder
from engine.model.weights import Checkpoint, RandomWeights, Shapes, WeightSource

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class LoadedModel:
    decoder: Decoder
    num_parameters: int


def parameter_shapes(config: ModelConfig) -> Shapes:
    """Every parameter of the model by its checkpoint name."""
    if config.family == "gpt2":
        return gpt2.parameter_shapes(config)
    return llama.parameter_shapes(config)


def load_model(
    directory: Path,
    config: ModelConfig,
    *,
    dummy_seed: int | None,
    max_positions: int,
    dtype: torch.dtype,
    device: torch.device,
    progress: Progress,
    library: Library | None = None,
) -> LoadedModel:
    """The decoder with its weights; random ones from ``dummy_seed`` unless that is None.

    Weights are read tensor by tensor into their final layout, so at most one layer's exist
    twice. ``progress("weights", done, total)`` counts parameters. With ``library`` the decoder is
    the compiled one, if it knows the model. Raises WeightsError.
    """
    shapes = parameter_shapes(config)
    num_parameters = sum(math.prod(shape) for shape in shapes.values())

    def report(done: int, total: int) -> None:
        progress("weights", done, total)

    if dummy_seed is not None:
        source = RandomWeights(shapes, seed=dummy_seed, dtype=dtype, device=device, progress=report)
        return LoadedModel(_build(config, source, max_positions, device, library), num_parameters)
    unused = [llama.HEAD] if config.tie_word_embeddings else []
    with Checkpoint(
        directory, shapes, unused=unused, dtype=dtype, device=device, progress=report
    ) as checkpoint:
        return LoadedModel(
            _build(config, checkpoint, max_positions, device, library), num_parameters
        )


def _build(
    config: ModelConfig,
    source: WeightSource,
    max_positions: int,
    device: torch.device,
    library: Library | None,
) -> Decoder:
    if config.family == "gpt2":
        return gpt2.GPT2Model(config, source)
    if library is not None and fits(config, library.lanes):
        return CompiledLlama(
            config,
            source,
            library,
            max_positions=max_positions,
            threads=torch.get_num_threads(),
        )
    return llama.LlamaModel(config, source, max_positions=max_positions, device=device)
