"""The decoder that runs transformers' modelling code over our KV cache."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Items
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import DynamicCache

from engine.attention.groups import GroupedKVCache, groups_of
from engine.attention.layout import GroupedPlans, Layout, expect
from engine.attention.reference import Scoring, paged_attention
from engine.plugin.body import SplitModel
from engine.plugin.config import AttentionLayer, PluginConfig
from engine.plugin.inline import use_interface
from engine.plugin.interface import set_attention
from engine.plugin.mixers import Runs, SequenceRows, take_turns
from engine.plugin.states import StatePool
from engine.step.step import ScheduledSequence


class _Step:
    """The cache and plans of the step being computed."""

    cache: GroupedKVCache
    plans: GroupedPlans


class _LayerAttention:
    """One layer's attention over the paged KV cache (see ``AttentionFunction``)."""

    def __init__(
        self, layer: AttentionLayer, step: _Step, group: int, index: int, dtype: torch.dtype
    ) -> None:
        """``group`` and ``index``: the layer's group, and its number there; ``dtype``: to attend
        in, that of the cache."""
        self._layer = layer
        self._step = step
        self._dtype = dtype
        self._group = group
        self._index = index
        self._scale = layer.key_dim**-0.5

    def __call__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        options: Mapping[str, Any],
    ) -> Tensor:
        layer, cache = self._layer, self._step.cache.groups[self._group]
        scale = options.get("scaling")
        softcap, sinks = options.get("softcap"), options.get("s_aux")
        out = paged_attention(
            _rows(query, layer.head_dim).to(self._dtype),
            _rows(key, layer.head_dim).to(self._dtype),
            _rows(value, layer.head_dim).to(self._dtype),
            cache=cache,
            layer=self._index,
            plans=self._step.plans.groups[self._group],
            window=layer.window,
            scale=self._scale if scale is None else scale,
            scoring=None if softcap is None and sinks is None else Scoring(softcap, sinks),
        )
        heads = out.view(1, query.shape[2], layer.num_heads, layer.head_dim)
        return heads[..., : layer.value_dim].to(query.dtype)


class PluginDecoder:
    """See ``engine.model.decoder.Decoder``. ``states``: of the sequences, if it has layers that
    keep one."""

    layout_type = GroupedPlans

    def __init__(self, model: nn.Module, config: PluginConfig, dtype: torch.dtype) -> None:
        """``model``: as ``engine.plugin.building`` creates it, with its weights; ``dtype``: of the
        cache."""
        use_interface(model)
        self._step = _Step()
        modules = dict(model.named_modules())
        for number, group in enumerate(groups_of(config.kv_layers)):
            for index, layer in enumerate(group.layers):
                attention = config.attentions[layer]
                function = _LayerAttention(attention, self._step, number, index, dtype)
                set_attention(modules[attention.module], function)
        self.states: StatePool | None = None
        self._runs = Runs()
        if config.mixers:
            self.states = StatePool(lambda: DynamicCache(config=config.source))
            take_turns(model, config.mixers, self._runs)
        self._model = SplitModel(model)

    def hidden_states(
        self,
        token_ids: Tensor,
        positions: Tensor,
        cache: GroupedKVCache,
        layout: Layout,
        rows: Tensor | None = None,
    ) -> Tensor:
        plans = expect(GroupedPlans, layout)
        self._step.cache, self._step.plans = cache, plans
        if self.states is not None:
            self._runs.now = _runs(plans.items, self.states)
        hidden = self._model.hidden_states(token_ids, positions)
        return hidden if rows is None else hidden.index_select(0, rows)

    def logits(self, hidden: Tensor) -> Tensor:
        return self._model.logits(hidden).float()


def _runs(items: Items[ScheduledSequence], states: StatePool) -> list[SequenceRows]:
    ends = list(accumulate(item.num_tokens for item in items))
    return [
        SequenceRows(end - item.num_tokens, end, state)
        for item, end, state in zip(items, ends, states.begin(items), strict=True)
    ]


def _rows(heads: Tensor, width: int) -> Tensor:
    """[1, heads, tokens, dim] -> [tokens, heads, width], padded with zeros."""
    rows = heads[0].transpose(0, 1)
    missing = width - rows.shape[-1]
    return functional.pad(rows, (0, missing)) if missing else rows
