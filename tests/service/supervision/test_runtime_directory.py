"""The folder of a server's sockets is its own, and goes with it or after it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from engine.python_command import python_command
from service.supervision.runtime_directory import (
    engine_sockets,
    files_of_starts,
    lost_file,
    make_signing_key,
    read_signing_key,
    runtime_directory,
)

_OWNER = """
import sys
from service.supervision.runtime_directory import runtime_directory
with runtime_directory() as directory:
    (directory / "engine.sock").write_text("")
    print(directory, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def owner() -> tuple[subprocess.Popen[str], Path]:
    """A process with such a folder, and the folder."""
    process = subprocess.Popen(
        python_command("-c", _OWNER), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_it_is_private_and_removed_at_the_end(base: Path) -> None:
    with runtime_directory() as directory:
        assert directory.parent == base
        assert directory.stat().st_mode & 0o777 == 0o700
        (directory / "engine.sock").write_text("")
    assert list(base.iterdir()) == []


def test_only_what_a_dead_owner_left_is_swept(base: Path) -> None:
    killed, left = owner()
    living, kept = owner()
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert left.is_dir()
        elsewhere = base / "elsewhere"
        others = [base / "quire-notes", base / "quire-open", elsewhere]
        for folder in others:
            folder.mkdir(mode=0o700)
            (folder / "file").write_text("")
        (base / "quire-open" / "supervisor.lock").write_text("")
        (base / "quire-open").chmod(0o755)
        (elsewhere / "supervisor.lock").write_text("")
        link = base / "quire-link"
        link.symlink_to(elsewhere)
        with runtime_directory() as own:
            assert own.is_dir()
            assert not left.exists()
            assert (kept / "engine.sock").exists()
        assert all((folder / "file").exists() for folder in others)
        assert link.is_symlink()
        living.communicate("", 20)
        assert not kept.exists()
    finally:
        for process in (killed, living):
            process.kill()
            process.communicate()


def test_a_lock_is_not_inherited_by_what_outlives_its_owner(base: Path) -> None:
    with runtime_directory() as directory:
        held = [
            Path(f"/proc/self/fd/{name}").readlink()
            for name in os.listdir("/proc/self/fd")
            if Path(f"/proc/self/fd/{name}").exists()
        ]
        assert directory / "supervisor.lock" in held
        child = subprocess.run(
            ["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, close_fds=False
        )
        assert "supervisor.lock" not in child.stdout


def test_a_server_that_finds_no_writable_directory_says_what_to_set(tmp_path: Path) -> None:
    script = (
        "import resource, runpy, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"  # nothing can be written anywhere
        "sys.argv = ['quire', 'serve', '--port', '0', '--store-url', 'none']\n"
        "runpy.run_module('service.cli', run_name='__main__')\n"
    )
    unset = ("XDG_RUNTIME_DIR", "TMPDIR", "TMP", "TEMP")
    ended = subprocess.run(
        python_command("-c", script),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name not in unset},
        timeout=60,
    )
    assert ended.returncode == 1
    [said] = [line for line in ended.stderr.splitlines() if line.startswith("quire: ")]
    assert "No usable temporary directory found" in said
    assert "XDG_RUNTIME_DIR" in said
    assert "TMPDIR" in said
    assert "Traceback" not in ended.stderr


def test_workers_of_a_server_share_a_secret_that_others_cannot_read(tmp_path: Path) -> None:
    make_signing_key(tmp_path)
    secret = read_signing_key(tmp_path)
    assert len(secret) >= 32
    [file] = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        make_signing_key(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    make_signing_key(other)
    assert read_signing_key(other) != secret


def test_several_engines_have_numbered_sockets_and_a_single_one_has_not() -> None:
    first = Path("/run/engine.sock")
    assert engine_sockets(first, 1) == [first]
    assert engine_sockets(first, 2) == [Path("/run/engine-0.sock"), Path("/run/engine-1.sock")]


def test_what_starts_need_is_noted_and_a_removed_file_is_found(tmp_path: Path) -> None:
    directory = tmp_path / "quire-1"
    directory.mkdir()
    make_signing_key(directory)
    needed = [directory / name for name in ("engine.page", "faults", "signing.key")]
    for path in (*needed[:2], directory / "engine.sock", directory / "supervisor.lock"):
        path.touch()
    assert files_of_starts(directory) == needed
    (directory / "engine.sock").unlink()
    assert lost_file(needed) is None
    needed[1].unlink()
    assert lost_file(needed) == needed[1]
    shutil.rmtree(directory)
    assert lost_file(needed) == directory
