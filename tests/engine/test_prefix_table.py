"""The table of block names that workers see while an engine changes it."""

from __future__ import annotations

import hashlib
import random
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.messages import SamplingParams
from engine.prefix_table import PrefixTableReader, PrefixTableWriter, prefix_table_path
from engine.schedule.prefix import PrefixCache
from engine.step.sequence import Sequence

BLOCKS = 64
ROOT = Path(__file__).resolve().parents[2]


def name(number: int) -> bytes:
    return hashlib.blake2b(number.to_bytes(8, "little"), digest_size=16).digest()


def clustered(number: int) -> bytes:
    """Names that all belong into a few slots, so that most are found elsewhere."""
    return struct.pack("=Q", (number << 16) | number % 3) + bytes(8)


@pytest.mark.parametrize("named", [name, clustered])
@settings(max_examples=60, deadline=None)
@given(changes=st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=200))
def test_a_reader_finds_what_was_added_and_not_removed(
    tmp_path_factory: pytest.TempPathFactory, named: object, changes: list[tuple[bool, int]]
) -> None:
    assert callable(named)
    path = tmp_path_factory.mktemp("table") / "engine.prefixes"
    table = PrefixTableWriter(path, BLOCKS, 16)
    reader = PrefixTableReader(path)
    there: set[int] = set()
    for adds, number in changes:
        if adds and number not in there:
            table.add(named(number))
            there.add(number)
        elif not adds:
            table.remove(named(number))
            there.discard(number)
    assert [number for number in range(41) if named(number) in reader] == sorted(there)
    assert len(table) == len(there)


def test_a_full_cache_fits_and_more_is_left_out(tmp_path: Path) -> None:
    table = PrefixTableWriter(tmp_path / "t", BLOCKS, 16)
    reader = PrefixTableReader(tmp_path / "t")
    for number in range(1000):
        table.add(name(number))
    assert all(name(number) in reader for number in range(BLOCKS))
    assert name(5000) not in reader  # and the search ends


def change(path: str, seconds: float) -> None:
    """Keep half of the names, always the same ones; add and remove the others."""
    table = PrefixTableWriter(Path(path), 1024, 16)
    for number in range(512):
        table.add(name(number))
    rng = random.Random(5)
    there: list[int] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if len(there) < 500 and rng.random() < 0.5:
            number = rng.randrange(10_000, 1 << 40)
            table.add(name(number))
            there.append(number)
        elif there:
            table.remove(name(there.pop(rng.randrange(len(there)))))


def test_a_reader_during_changes_sees_no_name_that_was_never_added(tmp_path: Path) -> None:
    path = tmp_path / "t"
    code = f"from {__name__} import change; change({str(path)!r}, 2.0)"
    writer = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    while not path.exists():
        assert writer.poll() is None
        time.sleep(0.01)
    reader = PrefixTableReader(path)
    while name(511) not in reader:
        assert writer.poll() is None
    missed = false = looked = 0
    while writer.poll() is None:
        for number in range(0, 512, 16):
            looked += 1
            missed += name(number) not in reader
            false += name(number + 1_000) in reader
    assert writer.wait() == 0
    assert false == 0
    assert looked > 1_000
    assert missed <= looked / 1_000  # while a name was being moved


@pytest.mark.parametrize("content", [b"", b"x" * 64, bytes(64)])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(ValueError, match="does not hold block names"):
        PrefixTableReader(tmp_path / "t")
    with pytest.raises(FileNotFoundError):
        PrefixTableReader(tmp_path / "u")


def test_the_next_engine_s_table_leaves_the_old_one_to_its_readers(tmp_path: Path) -> None:
    path = prefix_table_path(tmp_path / "engine-1.sock")
    assert path == tmp_path / "engine-1.prefixes"
    PrefixTableWriter(path, BLOCKS, 16).add(name(1))
    old = PrefixTableReader(path)
    PrefixTableWriter(path, 2 * BLOCKS, 32).add(name(2))
    new = PrefixTableReader(path)
    assert (name(1) in old, name(2) in old) == (True, False)
    assert (name(1) in new, name(2) in new) == (False, True)
    assert (old.block_size, new.block_size) == (16, 32)


def test_the_table_has_exactly_the_blocks_that_the_cache_has(tmp_path: Path) -> None:
    table = PrefixTableWriter(tmp_path / "t", 16, 4)
    reader = PrefixTableReader(tmp_path / "t")
    cache = PrefixCache(16, 4)
    cache.publish(table)
    rng = random.Random(1)
    names: set[bytes] = set()
    for uid in range(200):
        tokens = [rng.randrange(2) for _ in range(rng.randrange(4, 33))]
        one = Sequence(uid, "r", tokens, len(tokens), SamplingParams(max_tokens=1))
        hits = cache.match(one)
        for block in hits:
            cache.pool.share(block)
        one.block_table = hits + [
            cache.pool.allocate() for _ in range(-(-len(tokens) // 4) - len(hits))
        ]
        cache.keep(one, len(hits) * 4, len(tokens))
        names |= set(one.block_hashes)
        cache.release(one.block_table)
        assert {each for each in names if each in reader} == {
            each for each in names if cache.pool.find(each) is not None
        }
    assert cache.pool.evictions > 50
