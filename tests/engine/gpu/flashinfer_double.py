"""Does what flashinfer documents of ``BatchPrefillWithPagedKVCacheWrapper``, in float64 on any
device: the signatures are those of flashinfer-python 0.6.4, as far as Quire uses them."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor


@dataclass
class Recorded:
    wrappers: list[Wrapper] = field(default_factory=list)
    plans: list[dict[str, Any]] = field(default_factory=list)
    runs: int = 0
    planned_by: list[int] = field(default_factory=list)

    def module(self) -> SimpleNamespace:
        def new(workspace: Tensor, kv_layout: str = "NHD") -> Wrapper:
            assert kv_layout == "HND"
            assert workspace.dtype is torch.uint8
            self.wrappers.append(Wrapper(self, len(self.wrappers)))
            return self.wrappers[-1]

        return SimpleNamespace(BatchPrefillWithPagedKVCacheWrapper=new)


class Wrapper:
    def __init__(self, recorded: Recorded, number: int) -> None:
        self._recorded = recorded
        self._number = number

    def plan(
        self,
        qo_indptr: Tensor,
        paged_kv_indptr: Tensor,
        paged_kv_indices: Tensor,
        paged_kv_last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        *,
        causal: bool = False,
        sm_scale: float | None = None,
        window_left: int = -1,
        q_data_type: str | torch.dtype = "float16",
        kv_data_type: str | torch.dtype | None = None,
    ) -> None:
        for on_host in (qo_indptr, paged_kv_indptr, paged_kv_last_page_len):
            assert on_host.device.type == "cpu"  # else it is read back from the device
            assert on_host.dtype is torch.int32
        assert paged_kv_indices.dtype is torch.int32
        assert len(paged_kv_indices) == paged_kv_indptr[-1]
        assert causal
        assert sm_scale == 1.0
        self._rows = qo_indptr.tolist()
        self._pages = paged_kv_indptr.tolist()
        self._indices = paged_kv_indices.long()
        self._lasts = paged_kv_last_page_len.tolist()
        self._shape = (num_qo_heads, num_kv_heads, head_dim_qk)
        self._page_size = page_size
        self._left = window_left
        assert q_data_type is kv_data_type
        self._dtype = q_data_type
        self._recorded.planned_by.append(self._number)
        self._recorded.plans.append({"rows": self._rows, "left": window_left})

    def run(
        self,
        q: Tensor,
        paged_kv_cache: Tensor,
        *,
        k_scale: float | None = None,
        out: Tensor | None = None,
        enable_pdl: bool | None = None,
    ) -> Tensor:
        heads, kv_heads, head_dim = self._shape
        assert q.is_contiguous()
        assert q.shape == (self._rows[-1], heads, head_dim)
        assert q.dtype is paged_kv_cache.dtype is self._dtype
        assert paged_kv_cache.shape[1:] == (2, kv_heads, self._page_size, head_dim)
        assert out is not None
        assert out.shape == q.shape
        assert k_scale is not None
        assert enable_pdl is False  # None: as the device supports it
        for i, last in enumerate(self._lasts):
            first, end = self._rows[i : i + 2]
            pages = self._indices[self._pages[i] : self._pages[i + 1]]
            length = (len(pages) - 1) * self._page_size + last
            assert 0 < last <= self._page_size
            found = paged_kv_cache[pages].double().permute(1, 2, 0, 3, 4).flatten(2, 3)
            keys, values = found[:, :, :length].repeat_interleave(heads // kv_heads, dim=1)
            places = torch.arange(length, device=q.device)
            at = places[length - (end - first) :, None]
            seen = places <= at
            if self._left >= 0:
                seen &= places >= at - self._left
            scores = torch.einsum("qhd,hkd->hqk", q[first:end].double(), keys) * k_scale
            weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
            out[first:end] = torch.einsum("hqk,hkd->qhd", weights, values).to(out.dtype)
        self._recorded.runs += 1
        return out
