"""All other kernels: matrix products of every shape that is served, fused operations, sampling."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from bench.gpu.kernels import BF16, against
from bench.gpu.model import MODELS, shape_of
from bench.gpu.report import Report, Row
from bench.gpu.timing import Machine
from engine.gpu.kernels.activation import gated
from engine.gpu.kernels.logprobs import gather_logprobs
from engine.gpu.kernels.product import product
from engine.gpu.kernels.rms_norm import add_rms_norm
from engine.gpu.kernels.rope_store import norm_rope_store
from engine.gpu.kernels.sampling import sample
from engine.gpu.kernels.skinny import FEW_ROWS, skinny_product
from engine.messages import SamplingParams
from engine.sampling.device import sampling_tensors

PRODUCTS: Final[dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "torch": functional.linear,
    "skinny": skinny_product,
    "deterministic": product,
}
ROWS: Final = (1, 4, 16, 64, 256)
KINDS: Final[dict[str, dict[str, Any]]] = {
    "greedy": {"temperature": 0.0},
    "plain": {},
    "top_p": {"top_p": 0.9},
    "top_k_top_p": {"top_k": 20, "top_p": 0.95},
}


def measure(report: Report, machine: Machine) -> None:
    for model in MODELS:
        for name, (inputs, outputs) in matrices(model, machine).items():
            report.add(
                f"product {model} {name}", partial(products, inputs, outputs, machine), needs=4
            )
    for rows in (1, 4096):
        for name, measure_one in (("add_rms_norm", norm), ("gated", gate), ("rope_store", rope)):
            report.add(f"kernel {name} {rows} rows", partial(measure_one, rows, machine))
    for rows in (1, 256):
        for name, kind in KINDS.items():
            for spread in (4.0, 0.1) if "top_p" in kind else (4.0,):
                report.add(
                    f"kernel sampling {name} {rows}x151936 spread {spread}",
                    partial(sampling, rows, kind, spread, machine),
                )
    report.add("kernel logprobs 256x151936", partial(logprobs, machine))


def matrices(model: str, machine: Machine) -> dict[str, tuple[int, int]]:
    """Return (inputs, outputs) of each product of a layer, and of the logits."""
    shape = shape_of(model, machine)
    hidden, inner = shape["hidden_size"], shape["intermediate_size"]
    queries = shape["num_attention_heads"] * shape["head_dim"]
    keys = shape["num_key_value_heads"] * shape["head_dim"]
    return {
        "qkv": (hidden, queries + 2 * keys),
        "output": (queries, hidden),
        "gate_up": (hidden, 2 * inner),
        "down": (inner, hidden),
        "logits": (hidden, shape["vocab_size"]),
    }


def products(inputs: int, outputs: int, machine: Machine) -> Row:
    """Measure x @ weight.T for several numbers of rows, in microseconds by kernel: a decode step is
    mostly products that stream a weight for a few rows. The weights in turn do not fit the L2
    cache. ``of_floor``: of the fastest."""
    size = inputs * outputs * 2
    count = machine.copies(size) + (0 if machine.dry else 1)
    weights = torch.randn(count, outputs, inputs, device=machine.device, dtype=BF16)
    found: Row = {"mb": size / 1e6}
    for rows in ROWS:
        x = torch.randn(rows, inputs, device=machine.device, dtype=BF16)
        times = {}
        for name, multiply in PRODUCTS.items():
            if rows <= FEW_ROWS or multiply is not skinny_product:
                calls = [partial(multiply, x, weight) for weight in weights]
                times[name] = machine.seconds(calls, rounds=7)
        floor = machine.ceilings.floor(moved=size, computed=size * rows)
        found[f"rows_{rows}"] = {name: round(taken * 1e6, 1) for name, taken in times.items()}
        found[f"of_floor_{rows}"] = floor / min(times.values())
    return found


def norm(rows: int, machine: Machine) -> Row:
    rows, device = machine.size(rows, 2), machine.device
    weight = torch.randn(4096, device=device, dtype=BF16)

    def inputs() -> Callable[[], Tensor]:
        x, residual = torch.randn(2, rows, 4096, device=device, dtype=BF16)
        return lambda: add_rms_norm(x, residual, weight, 1e-5)

    size = rows * 4096 * 2
    taken = machine.seconds([inputs() for _ in range(machine.copies(2 * size))])
    return against(taken, machine.ceilings.floor(moved=4 * size))


def gate(rows: int, machine: Machine) -> Row:
    rows = machine.size(rows, 2)

    def inputs() -> Callable[[], Tensor]:
        gate_up = torch.randn(rows, 2 * 14336, device=machine.device, dtype=BF16)
        return lambda: gated(gate_up, "silu")

    size = rows * 14336 * 2
    taken = machine.seconds([inputs() for _ in range(machine.copies(2 * size))])
    return against(taken, machine.ceilings.floor(moved=3 * size))


def rope(rows: int, machine: Machine) -> Row:
    heads, kv_heads, head_dim, device = 32, 8, 128, machine.device
    rows = machine.size(rows, 2)
    positions = torch.arange(rows, device=device, dtype=torch.int32)
    rotations = torch.randn(rows, head_dim // 2, 2, device=device)
    blocks = torch.zeros(-(-rows // 16), 2, kv_heads, 16, head_dim, device=device, dtype=BF16)

    def inputs() -> Callable[[], None]:
        qkv = torch.randn(rows, heads + 2 * kv_heads, head_dim, device=device, dtype=BF16)
        return lambda: norm_rope_store(
            qkv, blocks, positions, positions, num_heads=heads, rotations=rotations
        )

    size = rows * (heads + 2 * kv_heads) * head_dim * 2
    taken = machine.seconds([inputs() for _ in range(machine.copies(size))])
    return against(taken, machine.ceilings.floor(moved=2 * size))


def sampling(rows: int, kind: dict[str, Any], spread: float, machine: Machine) -> Row:
    """``spread``: of the logits. Nearly flat rows force a filter to scan the whole vocabulary."""
    vocabulary, device = machine.size(151_936, 500), machine.device
    rows = machine.size(rows, 1)
    params = [SamplingParams(max_tokens=1, seed=row, **kind) for row in range(rows)]
    tensors = sampling_tensors(params, vocabulary, device)
    positions = torch.arange(rows, device=device, dtype=torch.int32)
    size = rows * vocabulary * 2

    def inputs() -> Callable[[], object]:
        logits = (torch.randn(rows, vocabulary, device=device) * spread).to(BF16)
        return lambda: sample(logits, tensors, positions)

    taken = machine.seconds([inputs() for _ in range(min(8, machine.copies(size)))])
    return against(taken, machine.ceilings.floor(moved=size))


def logprobs(machine: Machine) -> Row:
    rows, vocabulary = machine.size(256, 2), machine.size(151_936, 500)
    logits = torch.randn(rows, vocabulary, device=machine.device)
    tokens = torch.randint(0, vocabulary, (rows,), device=machine.device)
    taken = machine.seconds([lambda: gather_logprobs(logits, tokens)])
    return against(taken, machine.ceilings.floor(moved=logits.nbytes))
