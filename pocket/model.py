"""The model as the trainer sees it: Qwen3 in plain torch, right-padded batches, no cache.

Shapes: B documents, T tokens each, D hidden size, H query heads, K key/value heads, E head size,
V vocabulary. Names of modules and parameters are those of `Qwen3ForCausalLM`, so that exporting is
renaming nothing. Source of the architecture: the Qwen3 technical report (arXiv 2505.09388) and
`transformers/models/qwen3/modeling_qwen3.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

LONGEST_WITH_PRODUCTS: Final = 384
"""Tokens of a text up to which attention on a CPU is faster with explicit matrix products."""


@dataclass(frozen=True, slots=True)
class PocketShape:
    """Sizes of the model; the defaults are the shipped ones (about 3.8 M parameters)."""

    vocabulary: int = 1280
    hidden: int = 192
    layers: int = 8
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    ffn: int = 512
    theta: float = 10_000.0
    positions: int = 4096
    eps: float = 1e-6


def rotary_table(shape: PocketShape, length: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary embedding, each (length, E), halves duplicated."""
    even = torch.arange(0, shape.head_dim, 2, dtype=torch.float32)
    frequency = shape.theta ** (-even / shape.head_dim)
    angle = torch.outer(torch.arange(length, dtype=torch.float32), frequency)
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply the rotary embedding to (B, heads, T, E)."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention: queries (B, H, T, E), keys and values (B, K, T, E) -> (B, H, T, E).

    On a CPU, torch's own backward pass takes ten times the forward pass's time for short texts, so
    those are computed with matrix products.
    """
    b, h, t, e = q.shape
    if q.device.type != "cpu" or t > LONGEST_WITH_PRODUCTS:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    pairs, group = b * k.shape[1], h // k.shape[1]
    k, v = k.reshape(pairs, t, e), v.reshape(pairs, t, e)
    scores = torch.bmm(q.reshape(pairs, group * t, e) * e**-0.5, k.transpose(1, 2))
    later = torch.ones(t, t, dtype=torch.bool, device=q.device).triu(1)
    scores = scores.view(pairs, group, t, t).masked_fill(later, float("-inf"))
    shares = torch.softmax(scores, dim=-1).to(v.dtype)
    return torch.bmm(shares.view(pairs, group * t, t), v).view(b, h, t, e)


class PocketAttention(nn.Module):
    """Causal grouped-query attention with normed queries and keys: (B, T, D) -> (B, T, H*E)."""

    def __init__(self, shape: PocketShape) -> None:
        super().__init__()
        self.shape = shape
        width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden, width, bias=False)
        self.k_proj = nn.Linear(shape.hidden, kv_width, bias=False)
        self.v_proj = nn.Linear(shape.hidden, kv_width, bias=False)
        self.o_proj = nn.Linear(width, shape.hidden, bias=False)
        self.q_norm = nn.RMSNorm(shape.head_dim, eps=shape.eps)
        self.k_norm = nn.RMSNorm(shape.head_dim, eps=shape.eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, t, _ = x.shape
        heads = (b, t, -1, self.shape.head_dim)
        q = rotate(self.q_norm(self.q_proj(x).view(heads)).transpose(1, 2), cos, sin)
        k = rotate(self.k_norm(self.k_proj(x).view(heads)).transpose(1, 2), cos, sin)
        v = self.v_proj(x).view(heads).transpose(1, 2)
        # Padding lies to the right, so the causal mask already hides it from every real token.
        y = attention(q, k, v)
        return y.transpose(1, 2).reshape(b, t, -1)


class PocketFeedForward(nn.Module):
    """SwiGLU: (..., D) -> (..., D)."""

    def __init__(self, shape: PocketShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.down_proj = nn.Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))  # type: ignore[no-any-return]


class PocketLayer(nn.Module):
    """One pre-norm transformer layer."""

    def __init__(self, shape: PocketShape) -> None:
        super().__init__()
        self.self_attn = PocketAttention(shape)
        self.mlp = PocketFeedForward(shape)
        self.input_layernorm = nn.RMSNorm(shape.hidden, eps=shape.eps)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, eps=shape.eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, keep: Tensor | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D), or (N, D) for the N flat positions in `keep`."""
        y = self.self_attn(self.input_layernorm(x), cos, sin)
        if keep is not None:  # after the last attention nothing mixes positions any more
            x, y = x.flatten(0, 1)[keep], y.flatten(0, 1)[keep]
        x = x + self.self_attn.o_proj(y)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]


class PocketDecoder(nn.Module):
    """Embedding, layers and final norm."""

    def __init__(self, shape: PocketShape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(PocketLayer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden, eps=shape.eps)


class Pocket(nn.Module):
    """The whole model with tied embeddings."""

    def __init__(self, shape: PocketShape) -> None:
        super().__init__()
        self.shape = shape
        self.model = PocketDecoder(shape)
        cos, sin = rotary_table(shape, shape.positions)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.cos: Tensor
        self.sin: Tensor

    def initialise(self, seed: int) -> None:
        """Draw all weights from a seed: embeddings N(0, 0.02), matrices scaled by fan-in."""
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                nn.init.ones_(parameter)
                continue
            std = 0.02 if "embed" in name else parameter.shape[1] ** -0.5
            if "o_proj" in name or "down_proj" in name:
                std *= (2 * self.shape.layers) ** -0.5
            nn.init.normal_(parameter, std=std, generator=generator)

    def take_over(self, weights: Mapping[str, Tensor]) -> None:
        """Take over the weights of a model that differs in depth alone, and is no deeper.

        Layers that it lacks begin with outputs of zero: they compute nothing at first, so the
        deeper model gives the same logits until it is trained.

        Raises:
            ValueError: if a weight other than those of the added layers is missing.
        """
        missing = set(self.load_state_dict(dict(weights), strict=False).missing_keys)
        for name, layer in self.model.layers.named_children():
            own = {f"model.layers.{name}.{key}" for key in layer.state_dict()}
            if own <= missing:
                missing -= own
                assert isinstance(layer, PocketLayer)
                nn.init.zeros_(layer.self_attn.o_proj.weight)
                nn.init.zeros_(layer.mlp.down_proj.weight)
        if missing:
            raise ValueError(f"the initial model lacks {', '.join(sorted(missing))}")

    def forward(self, tokens: Tensor, keep: Tensor | None = None) -> Tensor:
        """Logits (B, T, V) of tokens (B, T); with flat positions `keep` (N,), only theirs (N, V).

        Answers are about a third of the text, so training pays for the last feed-forward and the
        output matrix only where there is something to learn.
        """
        length = tokens.shape[1]
        x = self.model.embed_tokens(tokens)
        cos, sin = self.cos[:length].to(x.dtype), self.sin[:length].to(x.dtype)
        last = len(self.model.layers) - 1
        for index, layer in enumerate(self.model.layers):
            x = layer(x, cos, sin, keep if index == last else None)
        return functional.linear(self.model.norm(x), self.model.embed_tokens.weight)
