"""Memory that survives the process that wrote it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.supervision.kept_memory import kept_memory

WRITE = "import mmap, os, sys; m = mmap.mmap(int(sys.argv[1]), 3); m[:] = b'abc'; os.kill(0, 9)"


@pytest.mark.parametrize("kernel_has_it", [True, False])
def test_what_a_killed_child_wrote_stays(
    kernel_has_it: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernel_has_it:
        monkeypatch.delattr(os, "memfd_create")
    descriptor = kept_memory(tmp_path, "ledger")
    assert list(tmp_path.iterdir()) == ([] if kernel_has_it else [tmp_path / "worker.ledger"])
    os.ftruncate(descriptor, 3)
    child = subprocess.run(
        [sys.executable, "-c", WRITE, str(descriptor)],
        pass_fds=[descriptor],
        start_new_session=True,
    )
    assert child.returncode == -9
    assert os.pread(descriptor, 10, 0) == b"abc"
    os.close(descriptor)


def test_children_do_not_inherit_it_unless_told() -> None:
    descriptor = kept_memory(Path("/nowhere"), "ledger")
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)
