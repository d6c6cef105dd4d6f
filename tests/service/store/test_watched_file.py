from __future__ import annotations

from pathlib import Path

import pytest

from service.store.watched_file import FileReplacedError, WatchedFile


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
