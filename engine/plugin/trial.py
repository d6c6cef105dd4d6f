"""Compares a tiny model of a kind with transformers' own attention, before a large one is loaded.

What the gate cannot see shows here: two sequences are computed in chunks and single tokens, in
mixed batches over a paged KV cache, and once as a whole by transformers.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from engine.architecture.errors import UnsupportedError
from engine.attention.cache import PagedKVCache
from engine.attention.groups import GroupedKVCache, GroupedPlanBuilder, groups_of
from engine.attention.layout import BatchRows, CacheShape, PromptChunk
from engine.attention.plans import PlanBuilder
from engine.messages import SamplingParams
from engine.plugin.building import first_line, new_model
from engine.plugin.config import AttentionLayer, PluginConfig
from engine.plugin.decoder import PluginDecoder
from engine.plugin.gate import attention_layers
from engine.plugin.inline import implementation
from engine.plugin.mixers import mixers
from engine.plugin.probe import probe
from engine.plugin.products import Products, takes_stored, use_products
from engine.plugin.rope import freeze_frequencies
from engine.plugin.shrinking import shrunk
from engine.step.sequence import Sequence
from engine.step.step import ScheduledSequence

_CPU = torch.device("cpu")
_BLOCK_SIZE = 8
# Tokens of each sequence, and how many of each a step computes.
_LENGTHS = (23, 14)
_STEPS = ((9, 7), (1, 1), (1, 0), (0, 1), (8, 4), (1, 1), (3, 0))
# The largest difference of logits, as a share of their range. Float32 rounding stays below a
# hundredth of it, and a wrong mask, scale or state is far above.
TOLERANCE = 1e-4
# A tiny model has fewer. Those of which it is not known how to make them smaller have more.
_MOST_PARAMETERS = 20_000_000


def try_kind(config: Any, products: Products | None = None) -> None:
    """Raises UnsupportedError if a tiny model like ``config`` gives other logits than transformers
    does. ``products``: compute its linear maps by them."""
    name = config.model_type
    try:
        tiny = shrunk(config)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            difference = _difference(tiny, products)
    except UnsupportedError:
        raise
    except Exception as error:
        raise UnsupportedError(
            f"a tiny {name} cannot be tried out, so a large one is not supported "
            f"({first_line(error)})"
        ) from error
    if not difference <= TOLERANCE:
        raise UnsupportedError(
            f"a tiny {name} gives other logits over Quire's KV cache than transformers computes "
            f"(by {difference:.1g} of their range), so a large one is not supported"
        )


def _difference(config: Any, products: Products | None) -> float:
    empty = new_model(config, torch.device("meta"), torch.float32)
    size = sum(parameter.numel() for parameter in empty.parameters())
    if size > _MOST_PARAMETERS:
        raise ValueError(f"it still has {size:,} parameters")
    freeze_frequencies(empty, max(_LENGTHS))
    probed = probe(empty)
    keeping = mixers(empty)
    layers = attention_layers(empty, config, probed.calls, keeping)
    model: Any = new_model(config, _CPU, torch.float32)
    fill_strongly(model)
    if products is not None:
        round_weights(model)
    freeze_frequencies(model, max(_LENGTHS))
    sequences = [torch.randint(3, probed.vocab_size, (length,)) for length in _LENGTHS]
    with torch.inference_mode():
        model.set_attn_implementation("eager")
        expected = [model(input_ids=ids[None], use_cache=False).logits[0] for ids in sequences]
        model.set_attn_implementation(implementation(config))
        if products is not None:
            _store_halved(model)
            use_products(model, products)
        found = _in_steps(model, _settings(config, layers, tuple(keeping)), sequences)
    span = max(float(logits.max() - logits.min()) for logits in expected)
    worst = max(
        float((one - other).abs().max()) for one, other in zip(expected, found, strict=True)
    )
    return worst / span


def fill_strongly(model: nn.Module) -> None:
    """Give a model random weights large enough that each part of it shows in its logits."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0, 0.15)
            elif "norm" in name and name.endswith("weight"):
                parameter.add_(torch.randn_like(parameter) * 0.1)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.3)


def round_weights(model: nn.Module) -> None:
    """Round weights to bfloat16 values, such as those of most checkpoints."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16())


def _store_halved(model: nn.Module) -> None:
    """Store weights in bfloat16 where products take them so, as a checkpoint is loaded."""
    kept = {
        parameter
        for part in model.modules()
        if not takes_stored(part)
        for parameter in part.parameters(recurse=False)
    }
    for parameter in model.parameters():
        if parameter not in kept:
            parameter.data = parameter.data.bfloat16()


def _in_steps(model: nn.Module, settings: PluginConfig, sequences: list[Tensor]) -> list[Tensor]:
    """Return each sequence's logits, computed as ``_STEPS`` says."""
    decoder = PluginDecoder(model, settings, torch.float32)
    groups = groups_of(settings.kv_layers)
    per_sequence = -(-max(_LENGTHS) // _BLOCK_SIZE)
    # Blocks in another order than the tokens, as in a cache that has been used for a while.
    tables = np.random.default_rng(0).permutation(len(sequences) * per_sequence)
    tables = tables.reshape(len(sequences), -1)
    cache = GroupedKVCache(
        [
            PagedKVCache(
                num_layers=len(group.layers),
                num_blocks=tables.size,
                num_kv_heads=group.num_kv_heads,
                block_size=_BLOCK_SIZE,
                head_dim=group.head_dim,
                dtype=torch.float32,
                device=_CPU,
            )
            for group in groups
        ]
    )
    builder = GroupedPlanBuilder(
        [
            PlanBuilder(
                CacheShape(_BLOCK_SIZE, group.num_kv_heads), group.windows, torch.float32, _CPU
            )
            for group in groups
        ]
    )
    planned = [_sequence(i, ids) for i, ids in enumerate(sequences)]
    logits: list[list[Tensor]] = [[] for _ in sequences]
    done = [0] * len(sequences)
    for step in _STEPS:
        parts = [(i, done[i], count) for i, count in enumerate(step) if count]
        parts.sort(key=lambda part: (part[2] > 1, -part[1]))  # single tokens first, longest first
        batch = builder.build(_rows(parts, sequences, tables, planned))
        # Twice, as a step may be: what it wrote the first time must not matter.
        for _ in range(2):
            hidden = decoder.hidden_states(batch.token_ids, batch.positions, cache, batch.layout)
        rows = torch.split(decoder.logits(hidden), [count for _, _, count in parts])
        for (i, _, count), own in zip(parts, rows, strict=True):
            logits[i].append(own)
            done[i] += count
    return [torch.cat(own) for own in logits]


def _rows(
    parts: list[tuple[int, int, int]],
    sequences: list[Tensor],
    tables: np.ndarray,
    planned: list[Sequence],
) -> BatchRows:
    """Lay out ``parts``: (sequence, first position, tokens), those of one token first."""
    sizes = [count for _, _, count in parts]
    firsts = [0, *accumulate(sizes)]
    positions = np.concatenate([np.arange(start, start + count) for _, start, count in parts])
    owners = np.repeat([i for i, _, _ in parts], sizes)
    singles = [(i, start) for i, start, count in parts if count == 1]
    return BatchRows(
        token_ids=np.concatenate(
            [sequences[i][start : start + count].numpy() for i, start, count in parts]
        ),
        positions=positions,
        blocks=tables[owners, positions // _BLOCK_SIZE],
        offsets=positions % _BLOCK_SIZE,
        sizes=np.array(sizes),
        starts=np.array([start for _, start in singles], dtype=np.int64),
        tables=tables[[i for i, _ in singles]],
        chunks=[
            PromptChunk(first, start, count, tables[i])
            for first, (i, start, count) in zip(firsts, parts, strict=False)
            if count > 1
        ],
        row_key=None,
        items=[
            ScheduledSequence(planned[i], start, count, completes=False)
            for i, start, count in parts
        ],
    )


def _sequence(uid: int, token_ids: Tensor) -> Sequence:
    return Sequence(
        uid=uid,
        request_id="trial",
        token_ids=token_ids.tolist(),
        num_prompt_tokens=len(token_ids),
        params=SamplingParams(max_tokens=1),
    )


def _settings(
    config: Any, layers: tuple[AttentionLayer, ...], keeping: tuple[str, ...]
) -> PluginConfig:
    return PluginConfig(
        architecture="",
        vocab_size=0,
        hidden_size=config.hidden_size,
        largest_matrix=0,
        max_tokens=max(_LENGTHS),
        dtype="float32",
        eos_token_ids=frozenset(),
        attentions=layers,
        source=config,
        mixers=keeping,
    )
