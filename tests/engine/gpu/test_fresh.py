"""Contexts that lie in the batch are attended without the cache, in few sizes, and nothing of what
follows them there is read."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend

from engine.gpu.availability import KernelsUnavailableError
from engine.gpu.fresh import FEWEST_ROWS, FreshAttention, padded_rows, require_cudnn, sizes

CPU = torch.device("cpu")


def expected(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    rows, heads, head_dim = query.shape
    groups = heads // key.shape[1]
    q, k, v = query.double(), key.double(), value.double()
    k, v = (part.repeat_interleave(groups, dim=1) for part in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) * 0.2
    hidden = torch.ones(rows, rows, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, v).reshape(rows, heads * head_dim)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (4, 1)])
@pytest.mark.parametrize("rows", [7, 256, 300])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 8e-3), (torch.float16, 1e-3)]
)
def test_slices_of_a_fused_projection_equal_float64(
    rows: int, heads: int, kv_heads: int, dtype: torch.dtype, tolerance: float
) -> None:
    torch.manual_seed(rows)
    qkv = torch.randn(rows + 40, heads + 2 * kv_heads, 16).to(dtype)
    qkv[:20] = qkv[20 + rows :] = float("nan")  # other sequences' rows
    own = qkv[20 : 20 + rows]
    query, (key, value) = own[:, :heads], own[:, heads:].chunk(2, dim=1)
    out = torch.full((rows + 1, heads * 16), 9.0, dtype=dtype)
    FreshAttention(SDPBackend.MATH)(query, key, value, scale=0.2, out=out[:rows])
    wanted = expected(query, key, value)
    assert (out[:rows] - wanted).norm() <= tolerance * wanted.norm()
    assert torch.equal(out[rows], torch.full((heads * 16,), 9.0, dtype=dtype))


def test_lengths_are_padded_to_few_sizes() -> None:
    for rows in range(1, 20_000, 37):
        assert rows <= padded_rows(rows) <= max(rows * 9 / 8, rows + 255)
        assert padded_rows(padded_rows(rows)) == padded_rows(rows)
    every = {padded_rows(rows) for rows in range(FEWEST_ROWS, 8193)}
    assert sorted(every) == list(sizes(FEWEST_ROWS, 8192))
    assert len(every) < 32


def test_every_size_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    attend = torch.nn.functional.scaled_dot_product_attention

    def noted(q: torch.Tensor, *args: object, **options: object) -> torch.Tensor:
        seen.append(q.shape[2])
        return attend(q, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", noted)
    fresh = FreshAttention(SDPBackend.MATH, fewest=200)
    options = {"heads": 2, "kv_heads": 1, "head_dim": 8}
    fresh.prepare(700, **options, dtype=torch.float32, device=CPU)
    assert seen == [256, 512, 768]
    seen.clear()
    fresh.prepare(199, **options, dtype=torch.float32, device=CPU)
    assert seen == []


def test_what_cudnn_cannot_do_is_said_in_a_sentence() -> None:
    heads = {"heads": 4, "kv_heads": 2, "head_dim": 64}
    with pytest.raises(KernelsUnavailableError, match="needs an NVIDIA GPU"):
        require_cudnn(CPU, **heads, dtype=torch.bfloat16)
    with pytest.raises(KernelsUnavailableError, match="in 16 bits, and the model is in float32"):
        require_cudnn(torch.device("cuda", 0), **heads, dtype=torch.float32)


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch without CUDA stands for one without")
def test_a_device_that_fails_the_trial_is_named_without_a_traceback() -> None:
    with pytest.raises(KernelsUnavailableError, match=r"cannot run here with heads of 64 \(.+\)"):
        require_cudnn(
            torch.device("cuda", 0), heads=4, kv_heads=2, head_dim=64, dtype=torch.bfloat16
        )
