"""The C code is compiled once, for the machine at hand, and what goes wrong is said."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.cpu import library
from engine.cpu.library import FLAGS, LEVELS, Library, LibraryUnavailableError

BEST, PAIRS, *_, BASE = LEVELS
ROOT = Path(__file__).resolve().parents[3]
CPU_FLAGS = Path("/proc/cpuinfo").read_text().split()


@pytest.fixture
def unoptimized(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests in which nothing depends on how fast the code is: it compiles in a third of the
    time."""
    flags = tuple("-O0" if flag == "-O3" else flag for flag in FLAGS)
    assert flags != FLAGS
    monkeypatch.setattr(library, "FLAGS", flags)


def test_without_a_compiler_the_reason_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LibraryUnavailableError, match="no C compiler"):
        library.build(BASE, tmp_path / "forward.so")


@pytest.mark.debian
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_a_failed_compilation_leaves_no_file_and_reports_the_compilers_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.c"
    broken.write_text("int quire_panel(void) { return nonsense; }")
    monkeypatch.setattr(library, "FORWARD_SOURCE", broken)
    with pytest.raises(LibraryUnavailableError, match="nonsense"):
        library.build(BASE, tmp_path / "forward.so")
    assert list(tmp_path.iterdir()) == [broken]


@pytest.mark.debian
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.usefixtures("unoptimized")
def test_an_image_s_libraries_are_compiled_for_every_level_and_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["library", str(tmp_path)])
    assert library.main() == 0
    assert {path.name for path in tmp_path.iterdir()} == set(map(library.file_name, LEVELS))
    for level in library.usable_levels():
        opened = Library(tmp_path / library.file_name(level))
        assert opened.panel == 2 * opened.lanes
        assert opened.bf16_products == ("avx512_bf16" in level.needs)
        assert opened.pair_inputs == (32 if level is BEST else 2)


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ("sse2 avx2 fma", ["x86-64-v3"]),
        ("fma avx2 avx512f avx512vl", ["x86-64-v4", "x86-64-v3"]),
        (
            "avx512_bf16 avx2 avx512vl fma avx512_vnni",
            ["x86-64-v4-bf16", "x86-64-v4-vnni", "x86-64-v4", "x86-64-v3"],
        ),
        (
            "avx512_bf16 avx2 avx512vl fma avx512_vnni amx_tile amx_bf16 amx_int8",
            ["x86-64-v4-amx", "x86-64-v4-bf16", "x86-64-v4-vnni", "x86-64-v4", "x86-64-v3"],
        ),
        ("avx512_vnni avx2 avx512vl fma", ["x86-64-v4-vnni", "x86-64-v4", "x86-64-v3"]),
        ("fma avx2 avx_vnni", ["x86-64-v3-vnni", "x86-64-v3"]),
        ("fma avx2 avx512_bf16 avx512_vnni", ["x86-64-v3"]),
    ],
)
def test_a_level_needs_all_its_flags(flags: str, names: list[str]) -> None:
    assert [level.name for level in library.levels_for(flags.split())] == names


@pytest.mark.parametrize("flags", ["", "sse2 avx fma", "avx2", "fma avx512vl avx512_bf16"])
def test_a_cpu_that_fits_no_level_has_no_compiled_path(flags: str) -> None:
    with pytest.raises(LibraryUnavailableError, match="no AVX2"):
        library.levels_for(flags.split())


@pytest.mark.debian
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_a_level_multiplies_pairs_in_hardware_with_its_sums_in_registers(
    tmp_path: Path,
) -> None:
    listing = tmp_path / "forward.s"
    command = ["gcc", *FLAGS, *PAIRS.flags, "-S", "-o", str(listing), str(library.FORWARD_SOURCE)]
    subprocess.run(command, check=True)
    [_, tile] = re.split("(?m)^tile_BFLOAT16_PAIRS_12_1:", listing.read_text())
    lines = tile[: tile.index("\tret")].splitlines()
    products = [n for n, line in enumerate(lines) if "\tvdpbf16ps\t" in line]
    loop = lines[products[0] : products[-1] + 1]
    assert len(products) % (12 * 2) == 0
    assert not [line for line in loop if re.search(r"(zmm.*|\()%(rsp|rbp).*zmm", line)]


@pytest.fixture
def old_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """One that does not know the best level, first on the path."""
    return first_compiler(monkeypatch, tmp_path, "*amx-tile*) echo unrecognized >&2; exit 1;;")


def first_compiler(monkeypatch: pytest.MonkeyPatch, folder: Path, case: str) -> str:
    """GCC, but for what ``case`` does for some arguments; first on the path."""
    folder /= "bin"
    folder.mkdir()
    script = folder / "gcc"
    script.write_text(f'#!/bin/sh\ncase "$*" in {case} esac\nexec {shutil.which("gcc")} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return str(script)


@pytest.mark.debian
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.usefixtures("unoptimized")
def test_a_level_that_the_compiler_does_not_know_is_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    old_compiler: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = tmp_path / "made"
    monkeypatch.setattr("sys.argv", ["library", str(made)])
    monkeypatch.setattr(library, "LEVELS", (BEST, BASE))
    assert library.main() == 0
    assert [path.name for path in made.iterdir()] == [library.file_name(BASE)]
    said = capsys.readouterr().err
    assert said == f"skipping {BEST.name}: {old_compiler} does not support {' '.join(BEST.flags)}\n"


def test_an_image_for_a_machine_without_a_compiled_path_can_be_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on arm64, whose compilers support none of the levels."""
    made, programs = tmp_path / "made", tmp_path / "bin"
    programs.mkdir()
    compiler = programs / "gcc"
    compiler.write_text("#!/bin/sh\necho unknown architecture >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr("sys.argv", ["library", str(made)])
    assert library.main() == 0
    assert list(made.iterdir()) == []
    assert capsys.readouterr().err.endswith(f"there is no compiled path for {platform.machine()}\n")


@pytest.mark.debian
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.usefixtures("unoptimized")
def test_the_best_level_that_the_compiler_supports_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, old_compiler: str
) -> None:
    monkeypatch.setattr(library, "levels_for", lambda flags: [BEST, BASE])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("QUIRE_CPU_LIBRARY_DIR", raising=False)
    found = library.library.__wrapped__()
    assert found.path.name == library.file_name(BASE)


@pytest.mark.debian
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.usefixtures("unoptimized")
def test_an_assembler_too_old_for_a_level_leaves_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As GCC 11 with the binutils of Ubuntu 20.04: the options are known, the instructions not."""
    case = "*-fsyntax-only*) ;; *amx-tile*) echo no such instruction: tilerelease >&2; exit 1;;"
    first_compiler(monkeypatch, tmp_path, case)
    monkeypatch.setattr(library, "levels_for", lambda flags: [BEST, BASE])
    monkeypatch.setattr(library, "may_use_tiles", lambda: True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("QUIRE_CPU_LIBRARY_DIR", raising=False)
    found = library.library.__wrapped__()
    assert found.path.name == library.file_name(BASE)
    assert "no such instruction: tilerelease" in caplog.text


@pytest.mark.debian
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.usefixtures("unoptimized")
def test_gcc_compiles_where_cc_is_another_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As Clang, which lacks __builtin_shuffle."""
    other = tmp_path / "cc"
    other.write_text("#!/bin/sh\necho use of unknown builtin >&2\nexit 1\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    library.build(BASE, tmp_path / "forward.so")
    assert Library(tmp_path / "forward.so").panel


@pytest.mark.skipif("amx_tile" not in CPU_FLAGS, reason="needs a CPU with AMX")
def test_a_process_that_may_not_use_amx_computes_without() -> None:
    program = "from engine.cpu.library import library; print(library().path.name)"
    command = [sys.executable, "-P", "-m", "tests.engine.cpu.without_amx"]
    done = subprocess.run(
        [*command, sys.executable, "-P", "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == library.file_name(PAIRS)
    assert library.NO_TILES in done.stderr


def test_the_best_library_in_an_image_is_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a compiler: one for a lesser level is better than none."""
    monkeypatch.setattr(library, "levels_for", lambda flags: list(LEVELS))
    monkeypatch.setattr(library, "may_use_tiles", lambda: True)
    monkeypatch.setattr(library, "Library", lambda path: path)
    monkeypatch.setenv("QUIRE_CPU_LIBRARY_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    for level in reversed(LEVELS):
        path = tmp_path / library.file_name(level)
        path.touch()
        assert library.library.__wrapped__() == path


def test_a_file_that_is_not_a_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "forward.so").write_bytes(b"text")
    with pytest.raises(LibraryUnavailableError, match="cannot open"):
        Library(tmp_path / "forward.so")


def test_a_cache_that_others_may_write_to_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = library.cache_folder()
    assert folder.stat().st_mode & 0o077 == 0
    folder.chmod(0o777)
    with pytest.raises(LibraryUnavailableError, match="other users can write"):
        library.cache_folder()
    assert os.access(folder, os.W_OK)
