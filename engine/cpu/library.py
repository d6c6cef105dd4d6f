"""Compiles ``forward.c`` and its headers once per machine and loads the result.

``python -m engine.cpu.library DIR`` compiles it into DIR for every instruction set level that the
compiler supports, for an image whose machines have no compiler; at run time
``QUIRE_CPU_LIBRARY_DIR`` names that folder.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FORWARD_SOURCE = Path(__file__).with_name("forward.c")  # includes the headers in its folder

# Without -ffast-math: scores are masked with infinities, and sums must keep their order.
FLAGS = (
    *("-O3", "-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
    *("-shared", "-fPIC", "-pthread"),
)
COMPILE_SECONDS = 120


class VectorLevel(NamedTuple):
    """Instructions to compile for. ``needs``: the flags in /proc/cpuinfo of a CPU that supports
    them; ``flags``: the corresponding compiler flags."""

    name: str
    needs: frozenset[str]
    flags: tuple[str, ...]


# Best first.
LEVELS = (
    VectorLevel(
        "x86-64-v4-amx",
        frozenset(
            {"fma", "avx2", "avx512vl", "avx512_bf16", "avx512_vnni"}
            | {"amx_tile", "amx_bf16", "amx_int8"}
        ),
        (
            *("-march=x86-64-v4", "-mavx512bf16", "-mavx512vnni"),
            *("-mamx-tile", "-mamx-bf16", "-mamx-int8"),
        ),
    ),
    VectorLevel(
        "x86-64-v4-bf16",
        frozenset({"fma", "avx2", "avx512vl", "avx512_bf16", "avx512_vnni"}),
        ("-march=x86-64-v4", "-mavx512bf16", "-mavx512vnni"),
    ),
    VectorLevel(
        "x86-64-v4-vnni",
        frozenset({"fma", "avx2", "avx512vl", "avx512_vnni"}),
        ("-march=x86-64-v4", "-mavx512vnni"),
    ),
    VectorLevel("x86-64-v4", frozenset({"fma", "avx2", "avx512vl"}), ("-march=x86-64-v4",)),
    VectorLevel(
        "x86-64-v3-vnni",
        frozenset({"fma", "avx2", "avx_vnni"}),
        ("-march=x86-64-v3", "-mavxvnni"),
    ),
    VectorLevel("x86-64-v3", frozenset({"fma", "avx2"}), ("-march=x86-64-v3",)),
)

NO_TILES = "the kernel does not let this process use AMX"
ALLOW_TILES = "allow arch_prctl in the container's seccomp profile; Linux 5.16 or later is needed"

logger = logging.getLogger(__name__)


class LibraryUnavailableError(RuntimeError):
    """The compiled path is unavailable here; the message says why."""


class CompilationError(LibraryUnavailableError):
    """The compiler fails for a level; it may not for a lesser one."""


class UnknownLevelError(CompilationError):
    """The compiler does not support a level's instructions."""


class LinearStruct(ctypes.Structure):
    _fields_ = (
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("inputs", ctypes.c_int32),
        ("outputs", ctypes.c_int32),
        ("kind", ctypes.c_int32),
        ("panel_inputs", ctypes.c_int32),
        ("scale", ctypes.c_float),
    )


class LayerStruct(ctypes.Structure):
    _fields_ = (
        ("qkv", LinearStruct),
        ("value", LinearStruct),
        ("output", LinearStruct),
        ("gate_up", LinearStruct),
        ("down", LinearStruct),
        ("router", LinearStruct),
        ("expert_gate_up", ctypes.POINTER(LinearStruct)),
        ("expert_down", ctypes.POINTER(LinearStruct)),
        ("input_gate", LinearStruct),
        ("input_map", LinearStruct),
        ("attention_input", ctypes.c_void_p),
        ("attention_output", ctypes.c_void_p),
        ("feed_input", ctypes.c_void_p),
        ("feed_output", ctypes.c_void_p),
        ("experts_output", ctypes.c_void_p),
        ("router_input", ctypes.c_void_p),
        ("experts_input", ctypes.c_void_p),
        ("parallel_output", ctypes.c_void_p),
        ("expert_scales", ctypes.c_void_p),
        ("input_norm", ctypes.c_void_p),
        ("head_norms", ctypes.c_void_p),
        ("whole_qk_norm", ctypes.c_void_p),
        ("cache", ctypes.c_void_p),
        ("kv_heads", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
        ("inner", ctypes.c_int32),
        ("normed_heads", ctypes.c_int32),
        ("has_keys", ctypes.c_int32),
        ("window", ctypes.c_int32),
        ("rope", ctypes.c_int32),
        ("scale", ctypes.c_float),
        ("factor", ctypes.c_float),
    )


class ModelStruct(ctypes.Structure):
    _fields_ = (
        ("layers", ctypes.POINTER(LayerStruct)),
        ("norm", ctypes.c_void_p),
        ("num_layers", ctypes.c_int32),
        ("last_keys", ctypes.c_int32),
        ("hidden", ctypes.c_int32),
        ("heads", ctypes.c_int32),
        ("kv_heads", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
        ("inner", ctypes.c_int32),
        ("inputs", ctypes.c_int32),
        ("block_size", ctypes.c_int32),
        ("cache_kind", ctypes.c_int32),
        ("deterministic", ctypes.c_int32),
        ("gated", ctypes.c_int32),
        ("experts", ctypes.c_int32),
        ("top_k", ctypes.c_int32),
        ("expert_inner", ctypes.c_int32),
        ("renormalised", ctypes.c_int32),
        ("residual", ctypes.c_float),
        ("eps", ctypes.c_float),
    )


class BatchStruct(ctypes.Structure):
    _fields_ = (
        ("rows", ctypes.c_int32),
        ("kept_rows", ctypes.c_int32),
        ("table_width", ctypes.c_int32),
        ("longest", ctypes.c_int32),
        ("x", ctypes.c_void_p),
        ("rotations", ctypes.c_void_p),
        ("inputs", ctypes.c_void_p),
        ("query_factors", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("sequences", ctypes.c_void_p),
        ("tables", ctypes.c_void_p),
        ("kept", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p),
        ("later", ctypes.c_void_p),
    )


class Library:
    """The compiled functions. ``panel``: outputs per panel of a packed weight; ``lanes``: floats
    per vector, of which every size of a model must be a multiple; ``bf16_products``: whether it
    multiplies pairs of bfloat16; ``pair_inputs``: such a weight's inputs are padded to a
    multiple of it."""

    def __init__(self, path: Path) -> None:
        try:
            native = ctypes.CDLL(str(path))
        except OSError as error:
            raise LibraryUnavailableError(f"cannot open {path}: {error}") from error
        self.path = path
        self.panel: int = native.quire_panel()
        self.lanes: int = native.quire_lanes()
        self.bf16_products = bool(native.quire_bf16_products())
        self.pair_inputs: int = native.quire_pair_inputs()
        pointer, integer, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
        linear = ctypes.POINTER(LinearStruct)
        model, batch = ctypes.POINTER(ModelStruct), ctypes.POINTER(BatchStruct)

        def function(name: str, result: Any, *arguments: Any) -> Any:
            found: Any = native[f"quire_{name}"]
            found.restype, found.argtypes = result, arguments
            return found

        self._team = function("team", pointer, integer)
        self.scratch = function("scratch", size, model, integer, integer, integer)
        self.forward = function("forward", None, pointer, model, batch)
        self.linear = function("linear", None, pointer, linear, pointer, integer, pointer)
        self.rows = function("rows", integer, linear, pointer, integer, pointer)
        self.panel_bytes = function("panel_bytes", size, linear)
        self.pack_blocks = function(
            "pack_blocks",
            integer,
            *(pointer, linear, pointer, pointer, pointer, ctypes.POINTER(size)),
        )
        self.rms_norm = function(
            "rms_norm", None, pointer, pointer, integer, integer, ctypes.c_float, pointer
        )

    @functools.cache  # noqa: B019 - a library and its teams live as long as the process
    def team(self, threads: int) -> int:
        """Start threads that compute together. Raises LibraryUnavailableError if that fails."""
        team: int | None = self._team(threads)
        if team is None:
            raise LibraryUnavailableError(f"{threads} threads cannot be started")
        return team


@functools.cache
def library() -> Library:
    """Return the library for this machine, compiling it if needed. Raises
    LibraryUnavailableError."""
    levels = usable_levels()
    if prebuilt := os.environ.get("QUIRE_CPU_LIBRARY_DIR"):
        paths = (Path(prebuilt) / file_name(level) for level in levels)
        if found := next(filter(Path.exists, paths), None):
            return Library(found)
    return Library(_compiled(levels, cache_folder()))


def _compiled(levels: Sequence[VectorLevel], folder: Path) -> Path:
    """Return the library for the best of ``levels`` that can be compiled here; compile it if it is
    not in ``folder`` yet."""
    level, *lesser = levels
    path = folder / file_name(level)
    if path.exists():
        return path
    logger.info("compiling the CPU path for %s into %s", level.name, folder)
    try:
        build(level, path)
    except CompilationError as error:
        if not lesser:
            raise
        logger.warning("the CPU path will be slower than it could be: %s", error)
        return _compiled(lesser, folder)
    return path


def usable_levels() -> list[VectorLevel]:
    """Return the levels for this machine that its kernel lets this process use, best first. Raises
    LibraryUnavailableError."""
    levels = levels_for(cpu_flags())
    if "amx_tile" in levels[0].needs and not may_use_tiles():
        logger.warning(
            "the CPU path will be slower than it could be: %s; %s", NO_TILES, ALLOW_TILES
        )
        levels = [level for level in levels if "amx_tile" not in level.needs]
    return levels


def may_use_tiles() -> bool:
    """Ask Linux for AMX's registers, which it withholds until a process asks (the kernel's
    Documentation/arch/x86/xstate.rst). The answer is for all threads and for forked children."""
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    return bool(ctypes.CDLL(None).syscall(arch_prctl, request_permission, tile_data) == 0)


def levels_for(cpu_flags: Collection[str]) -> list[VectorLevel]:
    """Return the levels that a CPU with these flags of /proc/cpuinfo supports, best first. Raises
    LibraryUnavailableError if there are none."""
    levels = [level for level in LEVELS if level.needs <= set(cpu_flags)]
    if not levels:
        raise LibraryUnavailableError("this CPU has no AVX2")
    return levels


def cpu_flags() -> list[str]:
    """Return this machine's CPU flags. Raises LibraryUnavailableError."""
    if platform.machine() not in ("x86_64", "AMD64"):
        raise LibraryUnavailableError(f"there is no compiled path for {platform.machine()}")
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError as error:
        raise LibraryUnavailableError(f"the CPU's features cannot be read: {error}") from error
    return next((line.split(":", 1)[1].split() for line in lines if line.startswith("flags")), [])


def file_name(level: VectorLevel) -> str:
    """Return a name that depends on the sources and the flags, so that no stale file is loaded."""
    digest = hashlib.sha256(" ".join((*FLAGS, *level.flags)).encode())
    for source in (FORWARD_SOURCE, *sorted(FORWARD_SOURCE.parent.glob("*.h"))):
        digest.update(source.read_bytes())
    return f"forward-{digest.hexdigest()[:16]}-{level.name}.so"


def cache_folder(purpose: str = "cpu") -> Path:
    """Return this user's folder for compiled files, or for another ``purpose``. Raises
    LibraryUnavailableError."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "quire" / purpose
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise LibraryUnavailableError(f"other users can write to {folder}")
    except OSError as error:
        raise LibraryUnavailableError(f"cannot create {folder}: {error}") from error
    return folder


def build(level: VectorLevel, path: Path) -> None:
    """Compile for ``level`` into ``path``; the file appears complete or not at all. Raises
    LibraryUnavailableError; CompilationError if the compiler fails, and UnknownLevelError if
    another one would do."""
    # Not Clang, which lacks some of GCC's operations on vectors; cc may be either.
    compiler = next(filter(None, map(shutil.which, ("gcc", "cc"))), None)
    if compiler is None:
        raise LibraryUnavailableError("there is no C compiler (gcc)")
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        done = _run([compiler, *FLAGS, *level.flags, "-o", str(made), str(FORWARD_SOURCE), "-lm"])
        if done.returncode:
            if _run([compiler, *level.flags, "-fsyntax-only", "-x", "c", os.devnull]).returncode:
                raise UnknownLevelError(f"{compiler} does not support {' '.join(level.flags)}")
            raise CompilationError(f"{compiler} failed: {done.stderr.strip()[-500:]}")
        made.replace(path)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LibraryUnavailableError(f"{command[0]} failed: {error}") from error


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    built = False
    for level in LEVELS:
        try:
            build(level, folder / file_name(level))
            built = True
        except UnknownLevelError as error:
            print(f"skipping {level.name}: {error}", file=sys.stderr)
    if not built:  # an image for another kind of machine, where the CPU computes with torch
        print(f"there is no compiled path for {platform.machine()}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
