"""Loads a decoder that transformers' code computes."""

from __future__ import annotations

import logging
import math
from typing import Any

import torch

from engine.architecture.errors import UnsupportedError
from engine.cpu.library import Library
from engine.device.memory import explaining, gib
from engine.plugin.building import new_model
from engine.plugin.config import PluginConfig
from engine.plugin.decoder import PluginDecoder
from engine.plugin.loading import loaded_model, random_model
from engine.plugin.products import Products
from engine.plugin.rope import freeze_frequencies
from engine.plugin.trial import try_kind
from engine.run.loader import LoadedDecoder, LoadSettings
from engine.run.prompt_work import prompt_logprob_work

logger = logging.getLogger(__name__)


def load_plugged(
    config: PluginConfig, settings: LoadSettings, max_positions: int, library: Library | None
) -> LoadedDecoder:
    """Load the decoder with its weights, as ``engine.run.loader.load_decoder`` does.
    ``max_positions``: tokens of the longest sequence; ``library``: computes its linear maps, if it
    computes this kind of model right. Raises WeightsError."""
    empty = new_model(config.source, torch.device("meta"), settings.dtype)
    shapes = [tuple(parameter.shape) for parameter in empty.parameters()]
    count = sum(map(math.prod, shapes))
    name = str(settings.dtype).removeprefix("torch.")
    size = gib(count * settings.dtype.itemsize)
    purpose = f"the weights, {count:,} parameters ({size} in {name})"
    products = _products(config.source, library, settings.dtype)

    def report(done: int) -> None:
        settings.on_progress("weights", min(done, count), count)

    report(0)
    device, dtype = settings.device, settings.dtype
    with explaining(device, purpose, "serve a smaller model"):
        if settings.dummy_seed is None:
            model = loaded_model(config, settings.directory, device, dtype, products, report)
        else:
            model = random_model(config, settings.dummy_seed, device, dtype, products, report)
    freeze_frequencies(model, max_positions)
    report(count)
    decoder = PluginDecoder(model, config, dtype)
    work = prompt_logprob_work(shapes, config.vocab_size, config.hidden_size)
    return LoadedDecoder(decoder, count, decoder.states, work)


def _products(source: Any, library: Library | None, dtype: torch.dtype) -> Products | None:
    if library is None:
        return None
    products = Products(library, torch.get_num_threads())
    try:
        try_kind(source, products)
    except UnsupportedError as error:
        logger.warning("computing by torch alone, which is slower: %s", error)
        return None
    pairs = dtype == torch.bfloat16 and library.bf16_products
    return Products(library, products.threads, bf16_products=pairs)
