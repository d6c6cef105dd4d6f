"""The paged KV cache: keys and values in blocks of tokens, one array per layer."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.attention.mirror import ContextMirror, MirrorPart
from engine.device import pages

# A gather's workspace is allocated so much larger than needed, as contexts grow.
WORKSPACE_GROWTH = 1.25


class PagedKVCache:
    """Keys and values of all layers, float [layers, blocks, 2, kv_heads, block_size, head_dim].

    A row holds one head's keys (or values) of one block: ``block_size * head_dim`` contiguous
    elements, row number ``(block * 2 + (0 keys, 1 values)) * kv_heads + head``. Gathering by row
    number therefore yields each sequence's keys head by head with adjacent tokens, the layout that
    matrix products read fastest, without a transposition.

    Blocks start as zeros: slots that no token was written to are masked, but must be finite.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        num_blocks: int,
        num_kv_heads: int,
        block_size: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
        mirror: ContextMirror | None = None,
    ) -> None:
        self._mirror = mirror
        self.num_blocks = num_blocks
        self.num_kv_heads = num_kv_heads
        self.block_size = block_size
        self.head_dim = head_dim
        shape = (num_layers, num_blocks, 2, num_kv_heads, block_size, head_dim)
        self._blocks = _zeros(shape, dtype, device)
        self._rows = [layer.view(-1, block_size * head_dim) for layer in self._blocks]
        self._slots = [layer.view(-1, head_dim) for layer in self._blocks]
        # Reused by every gather: allocating fresh pages took longer than the copy itself.
        self._workspace = torch.empty(0, dtype=dtype, device=device)

    @property
    def dtype(self) -> torch.dtype:
        return self._blocks.dtype

    @property
    def num_bytes(self) -> int:
        return self._blocks.nbytes

    def layer(self, layer: int) -> Tensor:
        """Return the layer's array [blocks, 2, kv_heads, block_size, head_dim], for kernels."""
        return self._blocks[layer]

    def scales(self, layer: int) -> Tensor | None:
        """Return the factors by which the layer's stored keys and values must be multiplied,
        float32 [2, kv_heads]; None: they are stored unscaled."""
        return None

    def layer_pointer(self, layer: int) -> int:
        """Return the address of the layer's array, for code outside torch."""
        return self._blocks[layer].data_ptr()

    def store(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Write ``keys`` and ``values`` [tokens, kv_heads, head_dim] to ``slots``, int64
        [tokens * 2 * kv_heads], numbered as by ``CacheShape``. Returns them as stored,
        [tokens, 2 * kv_heads, head_dim]."""
        both = torch.cat((keys, values), dim=1)
        self._slots[layer].index_copy_(0, slots, both.view(-1, self.head_dim))
        return both

    def gather(self, layer: int, rows: Tensor, sequences: int) -> tuple[Tensor, Tensor]:
        """Return keys and values, each [sequences, kv_heads, tokens, head_dim], of the blocks with
        row numbers ``rows`` [2 * sequences * kv_heads * blocks]. Valid until the next gather."""
        count, width = rows.shape[0], self.block_size * self.head_dim
        if self._workspace.shape[0] < count * width:
            self._workspace = self._workspace.new_empty(0)  # its memory may be part of the next
            self._workspace = self._workspace.new_empty(int(count * width * WORKSPACE_GROWTH))
        out = self._workspace[: count * width].view(count, width)
        torch.index_select(self._rows[layer], 0, rows, out=out)
        return self._halves(out, sequences)

    def mirrored(
        self, layer: int, part: MirrorPart, rows: Tensor | None, stored: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the same from the mirror, which is filled from ``rows`` the first time; after that
        this step's ``stored`` keys and values [sequences, 2 * kv_heads, head_dim] are added."""
        if self._mirror is None:
            raise ValueError("a mirrored group without a mirror")
        context = self._mirror.context(layer, part)
        if rows is None:
            flat = context.view(-1, self.head_dim)
            flat.index_copy_(0, part.slots, stored.view(-1, self.head_dim))
        else:
            torch.index_select(self._rows[layer], 0, rows, out=context)
            self._mirror.mark_filled(layer)
        return self._halves(context, part.sequences)

    def _halves(self, rows: Tensor, sequences: int) -> tuple[Tensor, Tensor]:
        keys, values = rows.view(2, sequences, self.num_kv_heads, -1, self.head_dim).unbind(0)
        return keys, values

    def clear(self, blocks: Tensor) -> None:
        """Zero ``blocks`` (int64) in all layers."""
        self._blocks[:, blocks] = 0


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # Zeroed here, so that pages are allocated now and not during the first requests.
    return pages.zeros(*shape, dtype=dtype).zero_()
