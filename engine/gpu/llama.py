"""A Llama-like decoder of fused kernels and matrix products.

Each layer takes nine launches: four products, QK norm with rotary embedding and storing in the
cache, attention, the gate, and two residual additions with the norm that follows. For one row it
takes six: norms, the gate and the additions are part of the products. With several ranks, two sums
over them are added.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.architecture.config import ModelConfig
from engine.architecture.features import QKNorm, sliding
from engine.architecture.rope import NO_ROPE
from engine.architecture.rotary import RotaryEmbedding
from engine.attention.cache import PagedKVCache
from engine.attention.layout import Layout, Ragged, expect
from engine.gpu.attention import DETERMINISTIC, TRITON, AttentionKernels, AttentionPlan
from engine.gpu.availability import kernels_fit
from engine.gpu.feed_forward import AnyFeedForward, load_feed_forward
from engine.gpu.kernels.launch import VECTOR_ROWS, merge_counters
from engine.gpu.kernels.product import product
from engine.gpu.kernels.rms_norm import add_rms_norm, rms_norm
from engine.gpu.kernels.rope_store import norm_rope_store
from engine.gpu.kernels.skinny import Norm
from engine.gpu.matrices import KernelMatrices
from engine.gpu.projection import Projection
from engine.model.parameters import EMBEDDING, HEAD, NORM, fused_qk_norm, fused_qkv
from engine.sharding.collectives import ALONE, Collectives
from engine.sharding.layers import vocabulary_embedding
from engine.weights.weights import WeightSource

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KernelLayer:
    """One layer's weights; ``qk_norm`` [2, head_dim]: of queries and keys."""

    input_norm: Tensor
    qkv: Projection
    qk_norm: Tensor | None
    output: Projection
    post_norm: Tensor
    feed: AnyFeedForward
    window: int | None
    scale: float


# By window.
_Plans = dict[int | None, AttentionPlan]


class KernelLlama:
    """See ``engine.model.decoder.Decoder``. Computes what ``LlamaModel`` does, up to rounding."""

    layout_type = Ragged

    def __init__(
        self,
        config: ModelConfig,
        source: WeightSource,
        *,
        max_positions: int,
        device: torch.device,
        deterministic: bool = False,
        attention: AttentionKernels = TRITON,
        collectives: Collectives = ALONE,
    ) -> None:
        """``deterministic``: a token's result is the same to the bit in any batch, however its
        prompt is divided; ``attention`` is not used then. ``collectives``: as for
        ``engine.model.llama.LlamaModel``. A layer's matrices that ``source`` has in few bits stay
        so, unless ``deterministic``."""
        if not kernels_fit(config):
            raise ValueError("the kernels do not compute this model")
        self._config = config
        self._attention = DETERMINISTIC if deterministic else attention
        self._deterministic = deterministic
        self._collectives = collectives
        merge_counters(device, 0)
        embedding = source.tensor(EMBEDDING)
        self._embed = vocabulary_embedding(embedding, config.vocab_size, collectives)
        matrices = KernelMatrices(source, embedding.dtype, device, not deterministic)
        self._layers = [
            _layer(config, matrices, number, deterministic=deterministic)
            for number in range(config.num_layers)
        ]
        if matrices.kept or matrices.dequantized:
            logger.info(
                "layers' matrices that stay in few bits on the GPU: %d, dequantized: %d",
                matrices.kept,
                matrices.dequantized,
            )
        self._windows = {layer.window for layer in self._layers}
        self._norm = source.tensor(NORM)
        self._head = embedding if config.tie_word_embeddings else source.tensor(HEAD)
        ropes = {
            rope: RotaryEmbedding(rope or NO_ROPE, config.head_dim, max_positions, device)
            for rope in config.ropes
        }
        self._rotations = [ropes[rope].cosines_and_sines() for rope in config.ropes]

    @property
    def dtype(self) -> torch.dtype:
        """That of the states and of ``narrow_logits``."""
        return self._head.dtype

    @property
    def num_logits(self) -> int:
        """Columns of ``narrow_logits``: those of this rank's part of the vocabulary."""
        return self._head.shape[0]

    @property
    def hidden_size(self) -> int:
        return self._config.hidden_size

    @property
    def fewest_unrecorded(self) -> int | None:
        """See ``AttentionKernels``."""
        return self._attention.fewest_unrecorded

    def hidden_states(
        self,
        token_ids: Tensor,
        positions: Tensor,
        cache: PagedKVCache,
        layout: Layout,
        rows: Tensor | None = None,
    ) -> Tensor:
        tables = expect(Ragged, layout)
        config, eps = self._config, self._config.norm_eps
        plans = {
            window: self._attention.plan(
                tables,
                window=window,
                heads=config.num_heads,
                kv_heads=config.num_kv_heads,
                head_dim=config.head_dim,
                dtype=self.dtype,
            )
            for window in self._windows
        }
        summed = self._collectives.all_reduce  # of a product whose inputs ranks share
        residual = self._embed(token_ids)
        if residual.shape[0] <= VECTOR_ROWS and not self._deterministic:
            return self._states_of_few(residual, positions, cache, plans, rows)
        x = rms_norm(residual, self._layers[0].input_norm, eps)
        for number, layer in enumerate(self._layers):
            mixed = self._attend(number, layer.qkv(x), positions, cache, plans)
            is_last = number + 1 == len(self._layers)
            if is_last and rows is not None:
                residual, mixed = residual.index_select(0, rows), mixed.index_select(0, rows)
            x = add_rms_norm(summed(layer.output(mixed)), residual, layer.post_norm, eps)
            x = summed(layer.feed(x))
            following = self._norm if is_last else self._layers[number + 1].input_norm
            x = add_rms_norm(x, residual, following, eps)
        return x

    def _states_of_few(
        self,
        residual: Tensor,
        positions: Tensor,
        cache: PagedKVCache,
        plans: _Plans,
        rows: Tensor | None,
    ) -> Tensor:
        """Of several ranks the first adds the residual to its part of each sum; the others' copies
        are not read."""
        eps, summed = self._config.norm_eps, self._collectives.all_reduce
        leads = self._collectives.shard.rank == 0
        for number, layer in enumerate(self._layers):
            qkv = layer.qkv.of_few(residual, norm=Norm(layer.input_norm, eps))
            mixed = self._attend(number, qkv, positions, cache, plans)
            if number + 1 == len(self._layers) and rows is not None:
                residual, mixed = residual.index_select(0, rows), mixed.index_select(0, rows)
            added_to = residual if leads else None
            residual = summed(layer.output.of_few(mixed, residual=added_to))
            added_to = residual if leads else None
            residual = summed(layer.feed.of_few(residual, Norm(layer.post_norm, eps), added_to))
        return rms_norm(residual, self._norm, eps)

    def _attend(
        self, number: int, qkv: Tensor, positions: Tensor, cache: PagedKVCache, plans: _Plans
    ) -> Tensor:
        """Store a layer's keys and values and attend. Returns [rows, heads * head_dim]."""
        config, layer = self._config, self._layers[number]
        plan = plans[layer.window]
        qkv = qkv.view(qkv.shape[0], -1, config.head_dim)
        blocks, scales = cache.layer(number), cache.scales(number)
        norm_rope_store(
            qkv,
            blocks,
            plan.tables.slots,
            positions,
            num_heads=config.num_heads,
            rotations=self._rotations[number],
            norm_weight=layer.qk_norm,
            eps=config.norm_eps,
            scales=scales,
            keeps_keys=bool(plan.fresh),
        )
        return self._attention.attend(
            qkv,
            blocks,
            plan,
            num_heads=config.num_heads,
            scale=layer.scale,
            window=layer.window,
            scales=scales,
        )

    def prepare(self, most_rows: int) -> None:
        """Make what depends on the number of a prompt's rows, up to that many in a step."""
        if self._attention.fresh is not None:
            self._attention.fresh.prepare(
                most_rows,
                heads=self._config.num_heads,
                kv_heads=self._config.num_kv_heads,
                head_dim=self._config.head_dim,
                dtype=self.dtype,
                device=self._head.device,
            )

    def logits(self, hidden: Tensor) -> Tensor:
        return self.narrow_logits(hidden).float()

    def narrow_logits(self, hidden: Tensor, out: Tensor | None = None) -> Tensor:
        """Return the logits before conversion to float32, [rows, num_logits] in the model's
        dtype, in ``out`` if given."""
        if self._deterministic:
            return product(hidden, self._head, out=out)
        return torch.mm(hidden, self._head.t(), out=out)


def _layer(
    config: ModelConfig, matrices: KernelMatrices, number: int, *, deterministic: bool
) -> KernelLayer:
    source = matrices.source
    prefix = f"model.layers.{number}."
    attention = prefix + "self_attn."
    qk_norm = None
    if config.qk_norm is QKNorm.HEAD:
        # One row per head; all query heads share one norm, and all key heads another.
        qk_norm = fused_qk_norm(config, source, number)[[0, config.num_heads]]
    return KernelLayer(
        input_norm=source.tensor(prefix + "input_layernorm.weight"),
        qkv=Projection(
            matrices.qkv(config, attention),
            fused_qkv(config, source, number, "bias") if config.qkv_bias else None,
            deterministic,
        ),
        qk_norm=qk_norm,
        output=Projection.load(matrices, attention + "o_proj", config.output_bias, deterministic),
        post_norm=source.tensor(prefix + "post_attention_layernorm.weight"),
        feed=load_feed_forward(config, matrices, number, deterministic=deterministic),
        window=sliding(config.windows[number]),
        scale=config.attention_scales[number],
    )
