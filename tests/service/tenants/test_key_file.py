"""The keys file is read strictly, and no message has a key in it."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path

import pytest

from engine.queueing import ServiceClass
from service.tenants.caller import KeyScope
from service.tenants.key_file import read_key_file
from service.tenants.key_limits import KeyLimits
from service.tenants.stored_key import digest_of

SECRET = "qk_abcdefghijklmnopqrstuvwxyz234567"


def read(folder: Path, text: str, name: str = "keys.toml"):  # type: ignore[no-untyped-def]
    path = folder / name
    path.write_text(text)
    return read_key_file(path)


def test_a_key_with_all_its_fields(tmp_path: Path) -> None:
    [key] = read(
        tmp_path,
        f"""
        [[keys]]
        alias = "research"
        key = "{SECRET}"
        expires = 2027-01-01T00:00:00Z
        scopes = ["read"]
        models = ["small"]
        service_class = "batch"
        weight = 2
        priority = true
        requests_per_minute = 600
        tokens_per_day = 1_000_000
        """,
    )
    assert key.digest == digest_of(SECRET)
    assert (key.shown, key.source) == (SECRET[:9], "file")
    assert key.expires == datetime.datetime(2027, 1, 1, tzinfo=datetime.UTC).timestamp()
    assert key.grant.scopes == (KeyScope.READ,)
    assert key.grant.service_class is ServiceClass.BATCH
    assert (key.grant.weight, key.grant.priority, key.grant.models) == (2.0, True, ("small",))
    assert key.grant.limits == KeyLimits(600, None, None, 1_000_000)


def test_json_and_digests(tmp_path: Path) -> None:
    entry = {"alias": "a", "sha256": digest_of(SECRET), "expires": "2027-01-01T00:00:00Z"}
    [key] = read(tmp_path, json.dumps({"keys": [entry]}), "keys.json")
    assert (key.digest, key.shown) == (digest_of(SECRET), "")
    assert key.expires is not None
    assert read(tmp_path, "") == ()


def test_nothing_is_shown_of_a_key_that_people_chose(tmp_path: Path) -> None:
    [key] = read(tmp_path, '[[keys]]\nalias = "a"\nkey = "hunter2-hunter2"')
    assert key.shown == ""
    assert "hunter2" not in repr(key)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[keys]]\nalias = "a"', "key 1: give either"),
        (f'[[keys]]\nalias = "a"\nkey = "{SECRET}"\nsha256 = "{"0" * 64}"', "give either"),
        (f'[[keys]]\nalias = "other"\nkey = "{SECRET}"', "reserved"),
        ('[[keys]]\nalias = "a"\nkey = "short"', "fewer than 8"),
        (f'[[keys]]\nalias = "a"\nkey = "{SECRET}"\n' * 2, "key 2: it is in the file before"),
        (f'[keys]\n{SECRET} = "a"', "'keys' must be a list, not an object"),
        (f'{SECRET} = "a"', "the file has no field '…'; it may have keys"),
        (
            f'[[keys]]\nalias = "a"\nkey = "{SECRET}"\nscopes = ["{SECRET}"]',
            "'keys[1].scopes[1]' must be one of ",
        ),
        (
            f'[[keys]]\nalias = "a"\nkey = "{SECRET}"\nrequests_per_minute = 0',
            "'keys[1].requests_per_minute' must be a whole number, at least 1",
        ),
        (f'[[keys]]\nalias = "a"\nkey = "{SECRET}', "end of document"),
    ],
)
def test_what_is_wrong_is_said_without_the_key(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        read(tmp_path, text)
    assert SECRET not in str(error.value)


def test_a_text_has_keys_as_flags_do(tmp_path: Path) -> None:
    """Separated by commas or lines, each with its alias or not."""
    keys = read(tmp_path, f"{SECRET}, alice=sk-alice-1\nalice=sk-alice-2\n\n", "keys.txt")
    assert [(key.grant.alias, key.digest) for key in keys] == [
        ("key1", digest_of(SECRET)),
        ("alice", digest_of("sk-alice-1")),
        ("alice", digest_of("sk-alice-2")),
    ]
    assert {key.source for key in keys} == {"file"}
    assert read(tmp_path, "\n", "keys.txt") == ()


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("short", "key 1 has fewer than 8 characters"),
        ("other=sk-long-enough", "'other' is reserved"),
        ("a=sk-long-enough\nb=sk-long-enough", "two aliases"),
        (",".join(f"sk-number-{number}" for number in range(10_001)), "more than 10000 keys"),
    ],
)
def test_a_text_that_cannot_be_used_is_refused_without_quoting_keys(
    tmp_path: Path, text: str, wrong: str
) -> None:
    with pytest.raises(ValueError, match=wrong) as caught:
        read(tmp_path, text, "keys.txt")
    assert "long-enough" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "written"),
    [("keys.toml", "`keys = []`"), ("keys.json", '`{"keys": []}`'), ("keys.txt", "restart")],
)
def test_a_file_that_may_not_be_empty_says_how_to_revoke_all_keys(
    tmp_path: Path, name: str, written: str
) -> None:
    path = tmp_path / name
    path.write_text("{}" if name.endswith(".json") else "\n")
    assert read_key_file(path) == ()
    with pytest.raises(ValueError, match="to revoke all its keys") as raised:
        read_key_file(path, may_be_empty=False)
    assert written in str(raised.value)
