"""Where a model lies in the cache, and when it is there as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.hub.place import CheckedFile, ModelPlace, Record, is_hub_name, is_unchanged

COMMIT = "a" * 40
OTHER = "b" * 40


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen3-0.6B",
        "a/b",
        "openai-community/gpt2",
        "x_y/z.w-1",
        "A" * 96 + "/b",
        "a/b:Q4_K_M",
        "a/b:c.gguf",
    ],
)
def test_names_on_a_hub(name: str) -> None:
    assert is_hub_name(name)


@pytest.mark.parametrize(
    "text",
    [
        *("gpt2", "", "/", "/a/b", "a/b/", "a/b/c", "./a", "../a", "~/a", "a/.hidden", "-a/b"),
        *(
            "a/..",
            "a--b/c",
            "a/b..c",
            "a b/c",
            "a/b\n",
            "simulated:h100-8b",
            "a/b?x",
            *("a/b:", "a/b:c/d", "a/b:.c", "a/b:c:d", "a:b/c", ":b"),
            "A" * 97 + "/b",
        ),
    ],
)
def test_what_is_no_name_is_a_path(text: str) -> None:
    assert not is_hub_name(text)


def test_a_name_that_exists_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_hub_name("models/mine")
    (tmp_path / "models" / "mine").mkdir(parents=True)
    assert not is_hub_name("models/mine")


def test_each_variant_has_its_own_record(tmp_path: Path) -> None:
    original, q4 = (ModelPlace.of(f"owner/name{one}", None, str(tmp_path)) for one in ("", ":Q4"))
    assert (original.asked, q4.asked) == ("owner/name", "owner/name:Q4")
    assert original.folder == q4.folder
    file = q4.snapshot(COMMIT) / "a-Q4.gguf"
    file.parent.mkdir(parents=True)
    file.touch()
    found = file.stat()
    checked = CheckedFile(found.st_size, found.st_mtime_ns, "")
    q4.set_commit(COMMIT)
    q4.write_record(COMMIT, Record(True, {file.name: checked}))
    assert q4.whole_snapshot() == file.parent
    assert q4.gguf_in(file.parent) == file
    assert original.whole_snapshot() is None
    assert original.gguf_in(file.parent) is None


def test_a_variant_stays_at_its_commit_when_another_one_is_newer(tmp_path: Path) -> None:
    q4, q8, original = (
        ModelPlace.of(f"owner/name{end}", None, str(tmp_path)) for end in (":Q4_K_M", ":Q8_0", "")
    )
    q4.set_commit("a" * 40)
    assert q8.commit() == original.commit() == "a" * 40
    q8.set_commit("b" * 40)
    assert (q4.commit(), q8.commit(), original.commit()) == ("a" * 40, "b" * 40, "a" * 40)
    original.set_commit("c" * 40)
    assert (q4.commit(), q8.commit(), original.commit()) == ("a" * 40, "b" * 40, "c" * 40)
    q4.set_commit("c" * 40)
    assert q4.commit() == "c" * 40


def made(cache: Path, revision: str = "main") -> ModelPlace:
    return ModelPlace.of("owner/name", revision, str(cache))


def fill(place: ModelPlace, commit: str = COMMIT, *, is_whole: bool = True) -> Path:
    """Put one file there, and record it."""
    directory = place.snapshot(commit)
    directory.mkdir(parents=True)
    path = directory / "config.json"
    path.write_text("{}")
    found = path.stat()
    file = CheckedFile(found.st_size, found.st_mtime_ns, "0" * 40)
    place.write_record(commit, Record(is_whole, {"config.json": file}))
    return directory


def test_the_layout_is_that_of_the_library(tmp_path: Path) -> None:
    place = made(tmp_path)
    assert place.snapshot(COMMIT) == tmp_path / "models--owner--name" / "snapshots" / COMMIT
    assert place.commit() is None
    place.set_commit(COMMIT)
    assert (tmp_path / "models--owner--name" / "refs" / "main").read_text() == COMMIT
    assert place.commit() == COMMIT


def test_a_revision_may_have_slashes_and_a_commit_is_itself(tmp_path: Path) -> None:
    place = made(tmp_path, "refs/pr/7")
    place.set_commit(COMMIT)
    assert made(tmp_path, "refs/pr/7").commit() == COMMIT
    by_commit = made(tmp_path, OTHER)
    by_commit.set_commit(OTHER)
    assert by_commit.commit() == OTHER
    assert not (by_commit.folder / "refs" / OTHER).exists()


def test_a_pinned_revision_keeps_its_commit_while_another_process_moves_it(tmp_path: Path) -> None:
    made(tmp_path).set_commit(COMMIT)
    pinned = ModelPlace("owner/name", "main", tmp_path, COMMIT)
    made(tmp_path).set_commit(OTHER)
    assert pinned.commit() == COMMIT
    pinned.set_commit(COMMIT)
    assert made(tmp_path).commit() == COMMIT


def test_a_snapshot_is_whole_as_long_as_no_file_changes(tmp_path: Path) -> None:
    place = made(tmp_path)
    directory = fill(place)
    assert place.whole_snapshot() is None  # it is not known that the revision is this commit
    place.set_commit(COMMIT)
    assert place.whole_snapshot() == directory
    (directory / "config.json").write_text("{ }")
    assert place.whole_snapshot() is None


@pytest.mark.parametrize("damage", ["partial", "missing", "unreadable", "no record"])
def test_a_snapshot_that_is_not_whole(tmp_path: Path, damage: str) -> None:
    place = made(tmp_path)
    directory = fill(place, is_whole=damage != "partial")
    place.set_commit(COMMIT)
    record = place.folder / "quire" / f"{COMMIT}.json"
    if damage == "missing":
        (directory / "config.json").unlink()
    elif damage == "unreadable":
        record.write_bytes(b"{")
    elif damage == "no record":
        record.unlink()
    assert place.whole_snapshot() is None


def test_a_ref_that_holds_no_commit_is_none(tmp_path: Path) -> None:
    place = made(tmp_path)
    ref = place.folder / "refs" / "main"
    ref.parent.mkdir(parents=True)
    for text in ("", "main", "a" * 39, "../" * 14, "\xff"):
        ref.write_bytes(text.encode("latin-1"))
        assert place.commit() is None


def test_a_file_without_a_record_is_not_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    assert not is_unchanged(path, None)
    assert not is_unchanged(tmp_path / "missing", CheckedFile(1, 0, ""))


def test_what_others_read_at_any_moment_is_readable_by_all(tmp_path: Path) -> None:
    place = made(tmp_path)
    fill(place)
    place.set_commit(COMMIT)
    written = [path for path in place.folder.rglob("*") if path.parent.name in ("refs", "quire")]
    assert len(written) == 2  # and no temporary file
    assert {path.stat().st_mode & 0o777 for path in written} == {0o644}
