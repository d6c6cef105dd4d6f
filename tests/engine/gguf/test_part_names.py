from __future__ import annotations

from pathlib import Path

import pytest

from engine.gguf.part_names import MAX_PARTS, PartName, named_part, part_name, parts_by_name


def test_a_name_says_which_part_of_how_many() -> None:
    found = part_name("Q4_K_M/tiny-Q4_K_M-00002-of-00003.gguf")
    assert found == PartName("Q4_K_M/tiny-Q4_K_M", 2, 3)
    assert found.of(1) == "Q4_K_M/tiny-Q4_K_M-00001-of-00003.gguf"
    upper = part_name("TINY-00001-of-00002.GGUF")
    assert upper is not None
    assert upper.of(2) == "TINY-00002-of-00002.GGUF"


@pytest.mark.parametrize(
    "name",
    [
        *("tiny.gguf", "tiny-1-of-3.gguf", "-00001-of-00003.gguf", "tiny-00001-of-00003.bin"),
        *("tiny-00000-of-00003.gguf", "tiny-00004-of-00003.gguf", "tiny-00001-of-00003.gguf.x"),
        "tiny-0000١-of-00003.gguf",
    ],
)
def test_other_names_are_of_no_part(name: str) -> None:
    assert part_name(name) is None


def test_a_path_leads_to_the_first_name_of_a_part(tmp_path: Path) -> None:
    """In the hub's cache, such a name itself is a link to another one."""
    part = tmp_path / "tiny-00001-of-00002.gguf"
    (tmp_path / "blob").touch()
    part.symlink_to("blob")
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "near.gguf").symlink_to(Path("..", part.name))
    (tmp_path / "model.gguf").symlink_to(tmp_path / "made" / "near.gguf")
    assert named_part(part) == part
    found = named_part(tmp_path / "model.gguf")
    assert (found.name, found.parent.resolve()) == (part.name, tmp_path.resolve())
    for name in ("none", "blob", "circle"):
        if name == "circle":
            (tmp_path / name).symlink_to(name)
        assert named_part(tmp_path / name) == tmp_path / name


def test_a_name_leads_to_all_parts(tmp_path: Path) -> None:
    path = tmp_path / "tiny-00002-of-00003.gguf"
    assert parts_by_name(path) == [
        tmp_path / f"tiny-0000{number}-of-00003.gguf" for number in (1, 2, 3)
    ]
    assert parts_by_name(tmp_path / "tiny.gguf") == [tmp_path / "tiny.gguf"]
    many = tmp_path / "tiny-00001-of-99999.gguf"
    assert parts_by_name(many) == [many]
    assert len(parts_by_name(tmp_path / f"tiny-00002-of-{MAX_PARTS:05d}.gguf")) == MAX_PARTS
