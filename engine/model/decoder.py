"""The interface between the runner and any decoder family."""

from __future__ import annotations

from typing import Protocol, TypeVar

from torch import Tensor

from engine.attention.layout import Layout

CacheT = TypeVar("CacheT", contravariant=True)


class States(Protocol):
    """What a decoder keeps of each sequence besides the KV cache. Without the state after a prefix
    its blocks are of no use, so prefixes are shared where a state was kept: plans say where
    (``engine.schedule.snapshots``)."""

    def forget(self, uid: int) -> None:
        """Drop what is kept of a finished sequence, except in slots."""
        ...

    def num_bytes(self, uid: int) -> int:
        """Return the bytes of a sequence's newest state. All states of a model take the same."""
        ...


class Decoder(Protocol[CacheT]):
    """A decoder-only transformer over a paged KV cache of the type that goes with its layouts:
    ``GroupedKVCache`` with ``GroupedPlans``, else ``PagedKVCache``."""

    @property
    def layout_type(self) -> type[Layout]:
        """The type of layout that it reads. With ``Ragged``, token ids and positions may be
        int32."""
        ...

    def hidden_states(
        self,
        token_ids: Tensor,
        positions: Tensor,
        cache: CacheT,
        layout: Layout,
        rows: Tensor | None = None,
    ) -> Tensor:
        """Final, normalised hidden states [tokens, hidden] of int64 ``token_ids`` [tokens] at
        ``positions`` [tokens]; keys and values go to ``cache``. ``rows`` (int64, at least one):
        only those tokens' states, which spares the others most of the last layer."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 [rows, vocabulary] for ``hidden`` [rows, hidden]; of one rank of several, its
        own part of the vocabulary (see ``engine.sampling.sharded``)."""
        ...
