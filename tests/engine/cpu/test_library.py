"""The C code is compiled once, for the machine at hand, and what goes wrong is said."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from engine.cpu import library
from engine.cpu.library import Library, UnavailableError


def test_without_a_compiler_the_reason_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="no C compiler"):
        library.build("x86-64-v3", tmp_path / "forward.so")


@pytest.mark.debian
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_what_does_not_compile_leaves_no_file_and_the_compiler_s_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.c"
    broken.write_text("int quire_panel(void) { return nonsense; }")
    monkeypatch.setattr(library, "SOURCE", broken)
    with pytest.raises(UnavailableError, match="nonsense"):
        library.build("x86-64-v3", tmp_path / "forward.so")
    assert list(tmp_path.iterdir()) == [broken]


@pytest.mark.debian
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_an_image_s_libraries_are_compiled_for_every_level_and_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["library", str(tmp_path)])
    assert library.main() == 0
    level = library.machine_level()
    assert {path.name for path in tmp_path.iterdir()} == set(map(library.file_name, library.LEVELS))
    opened = Library(tmp_path / library.file_name(level))
    assert opened.panel == 2 * opened.lanes


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "forward.so").write_bytes(b"text")
    with pytest.raises(UnavailableError, match="cannot be opened"):
        Library(tmp_path / "forward.so")


def test_a_cache_that_others_may_write_to_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = library.cache_folder()
    assert folder.stat().st_mode & 0o077 == 0
    folder.chmod(0o777)
    with pytest.raises(UnavailableError, match="not ours"):
        library.cache_folder()
    assert os.access(folder, os.W_OK)
