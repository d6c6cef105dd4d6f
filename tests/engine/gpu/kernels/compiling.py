"""Compiles every kernel for a GPU that need not be present, and prints the resources each needs.

    python -m tests.engine.gpu.kernels.compiling
    python -m tests.engine.gpu.kernels.compiling early    # those of a decode step alone, small

Triton's interpreter accepts more than its compiler does. Run without TRITON_INTERPRET; Quire's
functions are called with arrays on the CPU, and only the launches are left out. What this prints
with two versions of triton is kept in ``resources``. Another version runs from a separate folder:
``pip install --no-deps --target DIR triton==VERSION``, and ``PYTHONPATH=DIR``.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver as nvidia
from triton.runtime import driver
from triton.runtime.jit import JITFunction

if TYPE_CHECKING:
    from engine.gpu.kernels.few_bits import FewBitWeight

TARGET = GPUTarget("cuda", 90, 32)
RESOURCES = Path(__file__).with_name("resources")
# Registers that leave room for four decoding programs on a multiprocessor.
DECODE_LIMIT = 128
# Bytes that they may spill over an 8-bit cache, mostly where they merge parts, which is outside the
# loop over keys. Over a 16-bit cache they spill next to nothing.
SPILL_LIMIT = 96
# Bytes of shared memory that a program may take on sm_90.
SHARED_LIMIT = 227 * 1024
# What these read before they wait, no kernel writes.
LOADS_WEIGHTS_EARLY = {"_add_rms_norm", "_few_bit_vectors", "_skinny"}


class AbsentDevice:
    """The part of a driver that compiling needs."""

    def get_current_target(self) -> GPUTarget:
        return TARGET

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


@dataclass(frozen=True)
class Compiled:
    name: str
    registers: int
    spilled: int  # bytes
    shared: int  # bytes
    warps: int
    starts_early: bool  # before the kernel before it has ended

    @property
    def fits(self) -> bool:
        return self.shared <= SHARED_LIMIT

    def __str__(self) -> str:
        return (
            f"{self.name:22} {self.registers:4} registers {self.spilled:6} B spilled "
            f"{self.shared:7} B shared {self.warps:3} warps{' early' if self.starts_early else ''}"
        )


def read(kernel: Any) -> Compiled:
    """Assembles the kernel's PTX for what the assembler says of it."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "kernel.ptx")
        path.write_text(kernel.asm["ptx"])
        ptxas = Path(nvidia.__file__).parent / "bin" / "ptxas"
        done = subprocess.run(
            [ptxas, "-v", "--gpu-name=sm_90a", path, "-o", path.with_suffix(".cubin")],
            capture_output=True,
            text=True,
            check=True,
        )
    registers = re.search(r"Used (\d+) registers", done.stderr)
    spilled = re.search(r"(\d+) bytes spill stores", done.stderr)
    assert registers is not None
    return Compiled(
        kernel.metadata.name,
        int(registers[1]),
        int(spilled[1]) if spilled else 0,
        kernel.metadata.shared,
        kernel.metadata.num_warps,
        starts_early(kernel),
    )


def starts_early(kernel: Any) -> bool:
    """Raises ValueError if such a kernel may write, or read what others have written, before it has
    waited for those before it."""
    if not kernel.metadata.launch_pdl:
        return False
    before, wait, _ = kernel.asm["ptx"].partition("griddepcontrol.wait")
    reads = "" if kernel.metadata.name in LOADS_WEIGHTS_EARLY else r"|ld\.global"
    if not wait or re.search(rf"\b(st\.global|atom\.|cp\.async|ld\.volatile{reads})", before):
        raise ValueError(f"{kernel.metadata.name} does not wait for the kernels before it")
    return True


def compiled_by(call: Callable[[], object]) -> Iterator[Compiled]:
    """What ``call`` would launch."""
    kernels: list[Any] = []
    run = JITFunction.run

    def compile_only(self: Any, *args: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = run(self, *args, warmup=True, **kwargs)
        kernels.append(kernel)
        return kernel

    JITFunction.run = compile_only
    try:
        call()
    finally:
        JITFunction.run = run
    for kernel in kernels:
        yield read(kernel)


def attention_calls(
    heads: int, kv_heads: int, head_dim: int, block_size: int, dtype: torch.dtype
) -> Iterator[Callable[[], object]]:
    from engine.gpu.kernels.decode_attention import decode_attention
    from engine.gpu.kernels.launch import UNIFORM, padded
    from engine.gpu.kernels.ragged_attention import ragged_attention

    def ints(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.int32)

    query = torch.zeros(16, heads + 2 * kv_heads, head_dim, dtype=dtype)[:, :heads]
    blocks = torch.zeros(4, 2, kv_heads, block_size, head_dim, dtype=dtype)
    tables, lengths = ints(16, 16), ints(16)
    sinks, scales = torch.zeros(heads), torch.zeros(2, kv_heads)
    for window, cap, with_sinks, kind in (
        (None, None, False, None),
        (128, 30.0, True, None),
        (128, 30.0, True, torch.float8_e4m3fn),
    ):
        stored = blocks if kind is None else blocks.to(kind)
        extras: dict[str, Any] = {
            "scale": 0.1,
            "window": window,
            "soft_cap": cap,
            "sinks": sinks if with_sinks else None,
            "scales": None if kind is None else scales,
        }
        yield lambda stored=stored, extras=extras: decode_attention(
            query, stored, tables, lengths, **extras
        )
        yield lambda stored=stored, extras=extras: ragged_attention(
            query, stored, tables, lengths, ints(17), 300, **extras
        )
        tiles = UNIFORM[padded(head_dim), dtype.itemsize]
        yield lambda stored=stored, extras=extras, tiles=tiles: ragged_attention(
            query, stored, tables, lengths, ints(17), 300, tiles=tiles, uniform=True, **extras
        )


def other_calls() -> Iterator[Callable[[], object]]:
    from engine.gpu.kernels.activation import gated
    from engine.gpu.kernels.advance import HEADER, advance, place_rows
    from engine.gpu.kernels.batch import StaticBatch, place_batch
    from engine.gpu.kernels.editing import EditRecord, Edits, edit_rows
    from engine.gpu.kernels.logprobs import gather_logprobs
    from engine.gpu.kernels.product import product
    from engine.gpu.kernels.rms_norm import add_rms_norm, rms_norm
    from engine.gpu.kernels.rope_store import norm_rope_store
    from engine.gpu.kernels.sampling import sample
    from engine.gpu.kernels.skinny import Norm, skinny_product
    from engine.messages import SamplingParams
    from engine.sampling.device import sampling_tensors

    x = torch.zeros(16, 4096, dtype=torch.bfloat16)
    yield lambda: rms_norm(x, x[0], 1e-5)
    yield lambda: add_rms_norm(x, x.clone(), x[0], 1e-5)
    for dtype in (torch.bfloat16, torch.float32):
        wide = torch.zeros(16, 4096, dtype=dtype)
        yield lambda wide=wide: product(wide, wide)
        yield lambda wide=wide: product(wide, wide, wide[0, :16])
        tall, norm = torch.zeros(512, 4096, dtype=dtype), Norm(wide[0], 1e-5)
        for few in (wide[:1], wide[:2], wide[:4]):
            yield lambda x=few, tall=tall, norm=norm: skinny_product(x, tall, norm=norm)
            yield lambda x=few, tall=tall: skinny_product(x, tall, residual=x[:, :512].clone())
            yield lambda x=few, tall=tall, norm=norm: skinny_product(
                x, tall, norm=norm, activation="silu"
            )
    for name in ("silu", "gelu", "gelu_tanh", "relu"):
        yield lambda name=name: gated(x, name)
    ints = torch.zeros(16, dtype=torch.int32)
    for head_dim, kind in ((128, torch.bfloat16), (80, torch.bfloat16), (128, torch.float8_e4m3fn)):
        qkv = torch.zeros(16, 48, head_dim, dtype=torch.bfloat16)
        blocks = torch.zeros(4, 2, 8, 16, head_dim, dtype=torch.bfloat16).to(kind)
        yield lambda qkv=qkv, blocks=blocks, kind=kind: norm_rope_store(
            *(qkv, blocks, ints, ints),
            num_heads=32,
            rotations=torch.zeros(64, qkv.shape[2] // 2, 2),
            norm_weight=qkv[0, :2],
            scales=torch.zeros(2, 8) if kind is torch.float8_e4m3fn else None,
        )
    qkv = torch.zeros(16, 48, 128, dtype=torch.bfloat16)
    blocks = torch.zeros(4, 2, 8, 16, 128, dtype=torch.bfloat16)
    yield lambda: norm_rope_store(
        *(qkv, blocks, ints, ints), num_heads=32, rotations=torch.zeros(64, 64, 2), keeps_keys=True
    )
    params = sampling_tensors([SamplingParams(max_tokens=1)] * 16, 151936, torch.device("cpu"))
    longs, factors = torch.zeros(16, dtype=torch.int64), torch.zeros(16, 3)
    edits = Edits(
        torch.zeros(16, len(EditRecord._fields), dtype=torch.int64),
        factors,
        ints.view(1, 16),
        *(longs, longs, longs, factors),
    )
    for dtype in (torch.float32, torch.bfloat16):
        logits = torch.zeros(16, 151936, dtype=dtype)
        yield lambda logits=logits: sample(logits, params, ints, in_parts=False)
        yield lambda logits=logits: sample(logits, params, ints, in_parts=True)
        yield lambda logits=logits: sample(
            logits, params, ints, rows=longs, tokens=ints, bests=params.temperature, in_parts=False
        )
        yield lambda logits=logits: edit_rows(logits, edits)
        yield lambda logits=logits: gather_logprobs(logits, ints)
    table = torch.zeros(16, 64, dtype=torch.int32)
    yield lambda: advance(ints, table, ints, ints, ints, block_size=16)
    columns = (params.temperature, params.log_min_p, params.top_k, params.top_p, params.seeds)
    records = torch.zeros(16, HEADER + 32, dtype=torch.int32)
    yield lambda: place_rows(records, ints, ints, ints, columns, table)
    static = StaticBatch.empty(rows=16, decodes=16, chunks=8, blocks=64, device=torch.device("cpu"))
    yield lambda: place_batch(ints, ints, static.layout(16), static.kept, static, 16)
    yield from few_bit_calls()


def few_bit_weight(
    outputs: int, inputs: int, bits: int, group: int, kind: str = ""
) -> FewBitWeight:
    """``kind``: "zeros", "float" or neither."""
    from engine.gpu.kernels.few_bits import FewBitWeight

    block = 32 * (32 // bits)
    words = torch.zeros(outputs, -(-inputs // block) * 32, dtype=torch.int32)
    scales = torch.zeros(outputs, -(-inputs // group), dtype=torch.float16)
    zeros = scales.clone() if kind == "zeros" else None
    return FewBitWeight(words, scales, zeros, group, bits, inputs, is_float=kind == "float")


def few_bit_calls() -> Iterator[Callable[[], object]]:
    from engine.gpu.kernels.few_bit_product import few_bit_product
    from engine.gpu.kernels.few_bit_vectors import few_bit_vectors
    from engine.gpu.kernels.few_bits import few_bits_to_floats
    from engine.gpu.kernels.skinny import Norm

    x = torch.zeros(256, 4096, dtype=torch.bfloat16)
    norm = Norm(x[0], 1e-5)
    for bits, group, kind in ((4, 32, ""), (4, 128, "zeros"), (8, 32, ""), (8, 4096, "float")):
        weight = few_bit_weight(4096, 4096, bits, group, kind)
        yield lambda weight=weight: few_bits_to_floats(weight, torch.bfloat16)
        for rows in (1, 2, 4):
            yield lambda rows=rows, weight=weight: few_bit_vectors(x[:rows], weight, norm=norm)
        yield lambda weight=weight: few_bit_vectors(x[:1], weight, residual=x[:1].clone())
        yield lambda weight=weight: few_bit_vectors(x[:1], weight, norm=norm, activation="silu")
        for rows in (4, 16, 32):
            yield lambda rows=rows, weight=weight: few_bit_product(x[:rows], weight)
        for rows, shares in ((16, 4), (32, 1), (64, 1), (256, 1)):
            yield lambda rows=rows, shares=shares, weight=weight: few_bit_product(
                x[:rows], weight, shares=shares
            )
    of_128 = few_bit_weight(4096, 4096, 4, 128)  # with other tiles than groups of 32
    for rows in (4, 16):
        yield lambda rows=rows: few_bit_product(x[:rows], of_128)


def expert_calls() -> Iterator[Callable[[], object]]:
    from engine.gpu.kernels.experts import experts_of_few, experts_of_many
    from engine.gpu.kernels.routing import Groups, choose_experts
    from engine.gpu.kernels.skinny import Norm

    yield lambda: choose_experts(torch.zeros(16, 128).bfloat16(), 8, renormalised=True)
    ints = torch.zeros(128, dtype=torch.int32)
    chosen, weights = torch.zeros(4, 8, dtype=torch.int32), torch.zeros(4, 8)
    for dtype in (torch.bfloat16, torch.float32):
        x = torch.zeros(4, 2048, dtype=dtype)
        gate_up = torch.zeros(1, 1536, 2048, dtype=dtype).expand(128, -1, -1)
        down = torch.zeros(1, 2048, 768, dtype=dtype).expand(128, -1, -1)
        for residual in (None, x.clone()):
            yield lambda x=x, gate_up=gate_up, down=down, residual=residual: experts_of_few(
                *(x, gate_up, down, chosen, weights),
                norm=Norm(x[0], 1e-6),
                activation="silu",
                residual=residual,
            )
        for rows in (16, 64):
            groups = Groups(ints[:32], torch.zeros(129, dtype=torch.int32), ints, rows, 32)
            yield lambda x=x, gate_up=gate_up, down=down, groups=groups: experts_of_many(
                *(x, gate_up, down, groups, weights), activation="silu"
            )


SHAPES = [
    (32, 8, 128, 16, torch.bfloat16),
    (32, 8, 128, 64, torch.bfloat16),
    (16, 8, 128, 16, torch.bfloat16),
    (28, 4, 128, 16, torch.float16),
    (32, 8, 64, 16, torch.bfloat16),
    (12, 12, 64, 8, torch.bfloat16),
    (8, 1, 256, 64, torch.bfloat16),
    (32, 32, 80, 32, torch.bfloat16),
    (24, 8, 96, 16, torch.bfloat16),
    (4, 2, 128, 16, torch.float32),
    (4, 2, 256, 16, torch.float32),
    (4, 2, 16, 16, torch.float32),
]


def early_calls() -> Iterator[Callable[[], object]]:
    """Of a decode step, the kernels that start early."""
    from engine.gpu.kernels.activation import gated
    from engine.gpu.kernels.advance import advance
    from engine.gpu.kernels.few_bit_vectors import few_bit_vectors
    from engine.gpu.kernels.rms_norm import add_rms_norm
    from engine.gpu.kernels.rope_store import norm_rope_store
    from engine.gpu.kernels.skinny import Norm, skinny_product

    ints, table = torch.zeros(16, dtype=torch.int32), torch.zeros(16, 64, dtype=torch.int32)
    x, weight = torch.zeros(16, 256, dtype=torch.bfloat16), torch.zeros(64, 256).bfloat16()
    norm = Norm(x[0], 1e-5)
    yield lambda: advance(ints, table, ints, ints, ints, block_size=16)
    few = x[:4]
    yield lambda: skinny_product(few, weight, norm=norm, activation="silu")
    yield lambda: skinny_product(few, weight, residual=few[:, :64].clone())
    yield lambda: few_bit_vectors(x[:1], few_bit_weight(64, 256, 4, 32), norm=norm)
    yield lambda: add_rms_norm(x, x.clone(), x[0], 1e-5)
    yield lambda: gated(x, "silu")
    qkv, blocks = x.view(16, 8, 32), torch.zeros(4, 2, 2, 16, 32, dtype=torch.bfloat16)
    rotations = torch.zeros(64, 16, 2)
    yield lambda: norm_rope_store(qkv, blocks, ints, ints, num_heads=4, rotations=rotations)
    yield next(attention_calls(4, 2, 32, 16, torch.bfloat16))
    yield from itertools.islice(expert_calls(), 3)


def print_early() -> None:
    driver.set_active(AbsentDevice())
    for call in early_calls():
        for kernel in compiled_by(call):
            print(kernel)


def main() -> int:
    if triton.knobs.runtime.interpret:
        raise SystemExit("unset TRITON_INTERPRET: interpreted kernels are not compiled")
    driver.set_active(AbsentDevice())
    too_large = 0
    for shape in SHAPES:
        print("heads {}, key heads {}, head dim {}, block size {}, {}".format(*shape))
        for call in attention_calls(*shape):
            for kernel in compiled_by(call):
                print("  ", kernel, flush=True)
                is_decode = kernel.name == "_attend_share" and shape[-1].itemsize == 2
                tight = is_decode and (
                    kernel.registers > DECODE_LIMIT or kernel.spilled > SPILL_LIMIT
                )
                too_large += not kernel.fits or bool(tight)
    print("others")
    for call in (*other_calls(), *expert_calls()):
        for kernel in compiled_by(call):
            print("  ", kernel, flush=True)
            too_large += not kernel.fits
    return 1 if too_large else 0


if __name__ == "__main__":
    sys.exit(print_early() if sys.argv[1:] == ["early"] else main())
