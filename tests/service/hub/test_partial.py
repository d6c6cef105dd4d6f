"""Unfinished files are found by what they will be. How they continue is in test_pull.py."""

from __future__ import annotations

from pathlib import Path

from service.hub.partial import partial_files


def test_both_forms_of_a_name(tmp_path: Path) -> None:
    for name in ("aa.0123abcd.incomplete", "aa.incomplete", "bb.incomplete", "cc", "dd.lock"):
        (tmp_path / name).touch()
    found = partial_files(tmp_path)
    assert {digest: len(paths) for digest, paths in found.items()} == {"aa": 2, "bb": 1}


def test_a_cache_that_does_not_exist_has_none(tmp_path: Path) -> None:
    assert partial_files(tmp_path / "missing") == {}
