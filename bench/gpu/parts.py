"""All other kernels: matrix products of every shape that is served, fused operations, sampling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from engine.gpu.kernels.few_bit_product import few_bit_product
from engine.gpu.kernels.few_bit_vectors import few_bit_vectors
from engine.gpu.kernels.few_bits import FewBitWeight
from engine.gpu.kernels.launch import FEW_ROWS, VECTOR_ROWS, VectorTiles
from engine.gpu.kernels.logprobs import gather_logprobs
from engine.gpu.kernels.product import product
from engine.gpu.kernels.rms_norm import add_rms_norm
from engine.gpu.kernels.rope_store import norm_rope_store
from engine.gpu.kernels.sampling import sample
from engine.gpu.kernels.skinny import skinny_product
from engine.messages import SamplingParams
from engine.sampling.device import sampling_tensors

PRODUCTS: Final[dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "torch": functional.linear,
    "skinny": skinny_product,
    "deterministic": product,
}
ROWS: Final = (1, 4, 16, 64, 256)
# Weights of few bits: bits, inputs of a group (None: all), and whether codes are E4M3 numbers.
FEW_BITS: Final[dict[str, tuple[int, int | None, bool]]] = {
    "int4": (4, 128, False),
    "int4-32": (4, 32, False),
    "int8": (8, 32, False),
    "fp8": (8, None, True),
}
# Tiles of one row besides the table's.
_OTHER_TILES: Final = (VectorTiles(1, 32, 4), VectorTiles(4, 32, 4), VectorTiles(2, 32, 2))
KINDS: Final[dict[str, dict[str, Any]]] = {
    "greedy": {"temperature": 0.0},
    "plain": {},
    "top_p": {"top_p": 0.9},
    "top_k_top_p": {"top_k": 20, "top_p": 0.95},
}


def measure(report: Report, machine: Machine) -> None:
    for name, sizes, few in all_products(machine):
        measure_products = partial(few_bit_products, few) if few else products
        report.add(name, partial(measure_products, *sizes, machine), needs=4)
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


def all_products(machine: Machine) -> Iterator[tuple[str, tuple[int, int], str]]:
    """Yield each row's name, the matrix's inputs and outputs, and its entry of ``FEW_BITS``, if it
    is of few bits."""
    for model in MODELS:
        for name, sizes in matrices(model, machine).items():
            yield f"product {model} {name}", sizes, ""
    for name, sizes in matrices("llama-8b", machine).items():
        for few in FEW_BITS if name != "logits" else ():
            yield f"product llama-8b {few} {name}", sizes, few


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


def few_bit_products(kind: str, inputs: int, outputs: int, machine: Machine) -> Row:
    """Measure the same with weights of few bits, in microseconds, next to bfloat16 by torch.
    ``tiles``: one row, by turns, lanes and warps of other tiles."""
    sample = few_bit_weight(kind, inputs, outputs, machine)
    count = machine.copies(sample.num_bytes)
    weights = [sample, *(few_bit_weight(kind, inputs, outputs, machine) for _ in range(count - 1))]
    floats = torch.randn(
        machine.copies(inputs * outputs * 2), outputs, inputs, device=machine.device, dtype=BF16
    )
    found: Row = {"mb": sample.num_bytes / 1e6}
    for rows in ROWS:
        x = torch.randn(rows, inputs, device=machine.device, dtype=BF16)
        multiply = few_bit_vectors if rows <= VECTOR_ROWS else few_bit_product
        own = machine.seconds([partial(multiply, x, weight) for weight in weights], rounds=7)
        bf16 = machine.seconds(
            [partial(functional.linear, x, weight) for weight in floats], rounds=7
        )
        floor = machine.ceilings.floor(moved=sample.num_bytes, computed=2 * inputs * outputs * rows)
        found[f"rows_{rows}"] = {"ours": round(own * 1e6, 1), "bf16": round(bf16 * 1e6, 1)}
        found[f"of_floor_{rows}"] = floor / own
        found[f"over_bf16_{rows}"] = bf16 / own
    x = torch.randn(1, inputs, device=machine.device, dtype=BF16)
    found["tiles"] = {
        f"{tiles.turns}-{tiles.lanes}-{tiles.warps}": round(
            machine.seconds(
                [partial(few_bit_vectors, x, weight, tiles=tiles) for weight in weights], rounds=7
            )
            * 1e6,
            1,
        )
        for tiles in _OTHER_TILES
    }
    return found


def few_bit_weight(kind: str, inputs: int, outputs: int, machine: Machine) -> FewBitWeight:
    """Return a weight of random codes."""
    bits, group, is_float = FEW_BITS[kind]
    device, block = machine.device, 1024 // bits
    words = torch.randint(
        *(-(2**31), 2**31), (outputs, -(-inputs // block) * 32), device=device, dtype=torch.int32
    )
    if is_float:
        words &= 0x77777777  # no codes that are not numbers
    group = group or inputs
    scales = torch.rand(outputs, -(-inputs // group), device=device).half()
    return FewBitWeight(words, scales, None, group, bits, inputs, is_float)


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
