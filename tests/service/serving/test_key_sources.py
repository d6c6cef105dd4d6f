"""The ring knows what the store and the file have, whatever happens to either."""

from __future__ import annotations

import asyncio
import datetime
import errno
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from service.errors import StoreUnavailableError, UnauthorizedError
from service.serving import key_sources
from service.serving.key_sources import KeySources
from service.serving.keys import KeyRing
from service.store.key_store import KeyStore
from service.store.place import store_place
from service.tenants.key_limits import KeyLimits
from service.tenants.stored_key import KeyGrant

KEY = b"Bearer file-key-%d"


def write(path: Path, *numbers: int) -> None:
    """As a mounted Secret is exchanged."""
    draft = path.with_suffix(".draft")
    keys = "".join(f'[[keys]]\nalias = "filed"\nkey = "file-key-{n}"\n' for n in numbers)
    draft.write_text(keys)
    draft.replace(path)


def known(ring: KeyRing, *numbers: int) -> list[bool]:
    def is_known(number: int) -> bool:
        try:
            return ring.check(KEY % number).alias == "filed"
        except UnauthorizedError:
            return False

    return [is_known(number) for number in numbers]


async def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    write(path, 1)
    ring = KeyRing((), changes=True)
    told: list[int] = []
    sources = KeySources(ring, file=path, changed=lambda: told.append(1))
    assert known(ring, 1, 2) == [True, False]
    await sources.look()
    before = len(told)
    write(path, 1, 2)
    await sources.look()
    assert known(ring, 1, 2) == [True, True]
    await sources.look()
    assert len(told) == before + 1


@pytest.mark.parametrize("breaks", ["broken", "gone", "unreadable"])
async def test_a_file_that_cannot_be_used_changes_nothing(tmp_path: Path, breaks: str) -> None:
    path = tmp_path / "keys.toml"
    write(path, 1)
    ring = KeyRing((), changes=True)
    sources = KeySources(ring, file=path)
    if breaks == "broken":
        path.write_text('[[keys]]\nalias = "filed"\nkey = ')
    else:
        path.unlink()
        if breaks == "unreadable":
            path.mkdir()
    await sources.look()
    assert known(ring, 1) == [True]
    if breaks == "unreadable":
        path.rmdir()
    write(path, 2)
    await sources.look()
    assert known(ring, 1, 2) == [False, True]


@pytest.mark.parametrize(
    ("name", "text"), [("k.toml", ""), ("k.toml", "# keys\n"), ("k.json", "{}"), ("k.txt", "\n")]
)
async def test_a_file_that_was_emptied_ends_no_key(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    write(tmp_path / "first.toml", 1)
    first = {
        ".toml": (tmp_path / "first.toml").read_text(),
        ".json": '{"keys": [{"alias": "filed", "key": "file-key-1"}]}',
        ".txt": "filed=file-key-1",
    }
    path.write_text(first[path.suffix])
    ring = KeyRing((), changes=True)
    sources = KeySources(ring, file=path)
    path.write_text(text)
    with capture_logs() as lines:
        await sources.look()
    assert known(ring, 1) == [True]
    [line] = lines
    assert line["log_level"] == "error"
    assert "the last good keys stay" in line["event"]


async def test_an_explicitly_empty_list_ends_all_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    write(path, 1)
    ring = KeyRing((), changes=True)
    sources = KeySources(ring, file=path)
    path.write_text("keys = []\n")
    with capture_logs() as lines:
        await sources.look()
    assert known(ring, 1) == [False]
    assert lines[0]["log_level"] == "warning"
    assert "all its keys are now invalid" in lines[0]["event"]


@pytest.mark.parametrize("touched", [True, False])
async def test_an_unreadable_file_is_reported_once_and_read_when_it_can_be(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    touched: bool,
) -> None:
    path = tmp_path / "keys.toml"
    write(path, 1)
    ring = KeyRing((), changes=True)

    def refuse(_: Path, **__: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:  # root may read every file
        patch.setattr(key_sources, "read_key_file", refuse)
        sources = KeySources(ring, file=path)
        await sources.look()
        await sources.look()
        assert capsys.readouterr().out.count("Permission denied") == 1
    if touched:
        path.chmod(0o600)
    await sources.look()
    assert known(ring, 1) == [True]
    with monkeypatch.context() as patch:
        patch.setattr(key_sources, "read_key_file", refuse)
        path.chmod(0o640)
        await sources.look()
        assert capsys.readouterr().out.count("Permission denied") == 1
    assert known(ring, 1) == [True]


async def test_a_file_that_was_never_read_makes_nobody_wrong(tmp_path: Path) -> None:
    ring = KeyRing((), changes=True)
    KeySources(ring, file=tmp_path / "none.toml")
    with pytest.raises(StoreUnavailableError, match="keys file"):
        ring.check(KEY % 1)


async def test_keys_of_the_store_follow_it_and_stay_while_it_is_away(tmp_path: Path) -> None:
    place = store_place(f"sqlite:///{tmp_path}/store.sqlite3")
    desk = KeyStore(place)
    await desk.prepare()
    made = await desk.create(KeyGrant(alias="team"))
    sent = f"Bearer {made.text}".encode()
    ring, is_up = KeyRing((), changes=True), [False]
    heard: list[bool] = []
    sources = KeySources(ring, store=KeyStore(place), is_up=lambda: is_up[0], on_away=heard.append)
    await sources.look()
    with pytest.raises(StoreUnavailableError):
        ring.check(sent)
    assert heard[-1]
    is_up[0] = True
    await sources.look()
    assert ring.check(sent).alias == "team"
    assert not heard[-1]
    moved = tmp_path / "moved"
    moved.mkdir()
    for file in tmp_path.glob("store.sqlite3*"):
        os.rename(file, moved / file.name)
    await sources.store.close()  # type: ignore[union-attr]
    (tmp_path / "store.sqlite3").mkdir()  # so that it cannot be opened
    await sources.look()
    assert heard[-1]
    assert ring.check(sent).alias == "team"
    (tmp_path / "store.sqlite3").rmdir()
    await desk.close()
    for file in moved.iterdir():
        os.rename(file, tmp_path / file.name)
    await desk.revoke("team")
    await sources.look()
    with pytest.raises(UnauthorizedError, match="revoked"):
        ring.check(sent)
    later = await desk.create(KeyGrant(alias="later"))
    await sources.look_early()
    assert ring.check(f"Bearer {later.text}".encode()).alias == "later"
    await desk.close()
    await sources.close()


async def test_keys_can_be_read_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = store_place(f"sqlite:///{tmp_path}/store.sqlite3")
    desk = KeyStore(place)
    await desk.prepare()
    made = await desk.create(KeyGrant(alias="team"))
    ring, heard = KeyRing((), changes=True), list[bool]()
    monkeypatch.setattr(key_sources, "_USE_SECONDS", 0.0)
    sources = KeySources(ring, store=KeyStore(place), on_away=heard.append)
    await sources.look()
    assert ring.check(f"Bearer {made.text}".encode()).alias == "team"
    with sqlite3.connect(tmp_path / "store.sqlite3") as raw:
        raw.execute(
            "CREATE TRIGGER full BEFORE UPDATE ON quire_keys "
            "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
        )
    raw.close()
    with capture_logs() as lines:
        await sources.look()
    assert (lines, heard[-1]) == ([], False)
    with sqlite3.connect(tmp_path / "store.sqlite3") as raw:
        raw.execute("DROP TRIGGER full")
    raw.close()
    await sources.look()  # nothing is lost
    [key] = await desk.keys()
    assert key.last_used is not None
    await desk.close()
    await sources.close()


async def test_a_key_that_was_just_made_is_found_by_looking_early(tmp_path: Path) -> None:
    place = store_place(f"sqlite:///{tmp_path}/store.sqlite3")
    desk = KeyStore(place)
    await desk.prepare()
    ring = KeyRing((), changes=True)
    sources = KeySources(ring, store=KeyStore(place))
    await sources.look()
    made = await desk.create(KeyGrant(alias="team"))
    await sources.look_early()
    assert ring.check(f"Bearer {made.text}".encode()).alias == "team"
    await desk.close()
    await sources.close()


class _SlowStore(KeyStore):
    """Responds once ``may_answer``, or fails with ``error``."""

    def __init__(self, path: Path) -> None:
        super().__init__(store_place(f"sqlite:///{path}/store.sqlite3"))
        self.looks: list[float] = []
        self.may_answer = asyncio.Event()
        self.error: Exception | None = None

    async def newer(self, revision: int = 0) -> None:
        self.looks.append(time.monotonic())
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error


async def test_unknown_keys_share_looks_that_are_some_time_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = 0.05
    monkeypatch.setattr(key_sources, "_EARLY_SECONDS", apart)
    store = _SlowStore(tmp_path)
    store.may_answer.set()
    sources = KeySources(KeyRing((), changes=True), store=store)
    for looks in (1, 2, 3):
        await asyncio.gather(*(sources.look_early() for _ in range(10)))
        assert len(store.looks) == looks  # none shares one that has ended
    first, second, third = store.looks
    assert min(second - first, third - second) >= apart
    store.error = StoreUnavailableError("away")
    await sources.look_early()
    assert len(store.looks) == 4
    await sources.look_early()  # the store is known to be away
    assert len(store.looks) == 4
    await sources.close()


async def test_a_flood_of_unknown_keys_is_not_kept_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_sources, "_MOST_AWAITING", 2)
    store = _SlowStore(tmp_path)
    sources = KeySources(KeyRing((), changes=True), store=store)
    waiting = [asyncio.create_task(sources.look_early()) for _ in range(2)]
    await asyncio.sleep(0)  # both wait
    await sources.look_early()
    assert not any(task.done() for task in waiting)
    store.may_answer.set()
    await asyncio.gather(*waiting)
    await sources.close()


async def test_no_request_waits_long_for_an_early_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_sources, "_EARLY_SECONDS", 0.01)
    store = _SlowStore(tmp_path)
    sources = KeySources(KeyRing((), changes=True), store=store)
    await sources.look_early()
    assert len(store.looks) == 1
    await sources.close()


async def test_without_a_source_that_changes_nothing_is_looked_at() -> None:
    sources = KeySources(KeyRing(()))
    await sources.look_early()
    await sources.close()


async def test_when_a_key_was_used_is_stored_at_the_end(tmp_path: Path) -> None:
    place = store_place(f"sqlite:///{tmp_path}/store.sqlite3")
    desk = KeyStore(place)
    await desk.prepare()
    made = await desk.create(KeyGrant(alias="team"))
    ring = KeyRing((), changes=True)
    sources = KeySources(ring, store=KeyStore(place))
    await sources.look()
    ring.check(f"Bearer {made.text}".encode())
    await sources.close()
    [key] = await desk.keys()
    assert key.last_used is not None
    await desk.close()


async def test_limits_are_those_of_the_newest_key_that_has_not_expired(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=0.3)
    first = '[[keys]]\nalias = "filed"\nkey = "file-key-1"\nrequests_per_minute = 5\n'
    second = '[[keys]]\nalias = "filed"\nkey = "file-key-2"\nrequests_per_minute = 9\n'
    third = '[[keys]]\nalias = "lasting"\nkey = "file-key-3"\nexpires = 2999-01-01T00:00:00Z\n'
    path.write_text(f"{first}{second}expires = {end.isoformat()}\n{third}")
    ring = KeyRing((), changes=True)
    sources = KeySources(ring, file=path)
    assert ring.check(KEY % 1).limits == KeyLimits(9)
    while ring.check(KEY % 1).limits == KeyLimits(9):
        assert time.time() < end.timestamp() + 20
        await sources.look()
    assert time.time() >= end.timestamp()
    assert ring.check(KEY % 1).limits == KeyLimits(5)
