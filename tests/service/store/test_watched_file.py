from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.store.watched_file import FileReplacedError, WatchedFile
from service.supervision.kept_memory import kept_memory


@pytest.fixture(params=["memory", "disk"])
def memory(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[int]:
    """As the supervisor makes it, here and where the kernel has none."""
    if request.param == "disk":
        monkeypatch.delattr(os, "memfd_create")
    descriptor = kept_memory(tmp_path, "store")
    yield descriptor
    os.close(descriptor)


def test_another_file_is_noticed_until_the_first_is_back(tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    watched = WatchedFile(file)
    watched.check()  # it is not there yet
    file.touch()
    watched.check()
    watched.check()
    file.rename(elsewhere)
    with pytest.raises(FileReplacedError, match=rf"{file} was deleted .* {file}-wal and"):
        watched.check()
    file.touch()
    with pytest.raises(FileReplacedError):
        watched.check()
    elsewhere.replace(file)
    watched.check()


def test_the_message_says_what_to_do_in_both_cases(tmp_path: Path) -> None:
    """To delete the log of a file that was only moved would lose what it has not taken over yet."""
    file = tmp_path / "store"
    file.touch()
    watched = WatchedFile(file)
    watched.check()
    file.rename(tmp_path / "elsewhere")
    with pytest.raises(FileReplacedError, match=r"put the file back, and nothing .*; if another"):
        watched.check()


def test_a_file_whose_state_cannot_be_read_is_not_taken_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_path: Path) -> os.stat_result:
        raise OSError(5, "Input/output error")

    file = tmp_path / "store"
    file.touch()
    watched = WatchedFile(file)
    for _ in range(2):  # as the first check, and after it
        with monkeypatch.context() as patched:
            patched.setattr(Path, "stat", fails)
            watched.check()
        watched.check()
    file.rename(tmp_path / "elsewhere")
    with pytest.raises(FileReplacedError):
        watched.check()


@pytest.mark.parametrize("another", [False, True])
def test_a_worker_that_starts_later_notices_it_too(
    another: bool, memory: int, tmp_path: Path
) -> None:
    file, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    WatchedFile(file, memory).check()  # it is not there yet: nothing to note
    file.touch()
    first, second = WatchedFile(file, memory), WatchedFile(file, memory)
    first.check()
    second.check()
    file.rename(elsewhere)
    if another:
        file.touch()
    for each in (first, second, WatchedFile(file, memory)):
        with pytest.raises(FileReplacedError):
            each.check()
    elsewhere.replace(file)
    for each in (first, second, WatchedFile(file, memory)):
        each.check()
