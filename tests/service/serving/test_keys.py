"""A key is known by its digest, from either header, and admits no one else."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api_keys import api_keys
from service.errors import UnauthorizedError
from service.serving.keys import KeyRing

RING = KeyRing(api_keys(["sk-one", "two=sk-two", "sk-one"], priority=["sk-two"]))


def test_a_caller_is_the_digest_of_its_key() -> None:
    for key in ("sk-one", "sk-two"):
        caller = RING.check(f"Bearer {key}".encode())
        assert caller.owner == hashlib.sha256(key.encode()).hexdigest()
        assert caller.alias == ("two" if key == "sk-two" else "key1")
        assert caller.shares
        assert caller.may_hurry == (key == "sk-two")


@pytest.mark.parametrize(
    ("authorization", "api_key"),
    [
        (b"Bearer sk-one", b""),
        (b"bearer  sk-one ", b"sk-two"),
        (b"", b" sk-one"),
        (b"Basic c2stdHdv", b"sk-one"),
        (b"Bearer ", b"sk-one"),
        (b"sk-two", b"sk-one"),
    ],
)
def test_a_key_stands_in_either_header_the_standard_one_first(
    authorization: bytes, api_key: bytes
) -> None:
    assert RING.check(authorization, api_key) == RING.check(b"Bearer sk-one")


@given(st.binary(max_size=24))
def test_nothing_else_is_a_key(key: bytes) -> None:
    for headers in ((b"Bearer " + key, b""), (b"", key)):
        with pytest.raises(UnauthorizedError):
            RING.check(*headers)


def test_a_missing_key_is_told_from_a_wrong_one() -> None:
    with pytest.raises(UnauthorizedError, match="didn't provide"):
        RING.check(b"Basic abc")
    with pytest.raises(UnauthorizedError, match="Incorrect"):
        RING.check(b"Bearer sk-on")


def test_a_key_that_is_the_only_one_shares_with_nobody() -> None:
    caller = KeyRing(api_keys(["sk-one", "sk-one"])).check(b"Bearer sk-one")
    assert (caller.shares, caller.may_hurry) == (False, True)
    assert not KeyRing([])
    assert RING


def test_two_keys_of_one_alias_are_one_tenant_known_by_the_first() -> None:
    """So that a key can be replaced while clients still use the old one."""
    ring = KeyRing(api_keys(["team=sk-old", "team=sk-new"]))
    old, new = ring.check(b"Bearer sk-old"), ring.check(b"Bearer sk-new")
    assert old == new
    assert (new.owner, new.alias) == (hashlib.sha256(b"sk-old").hexdigest(), "team")
    assert (new.shares, new.may_hurry) == (False, True)
    three = KeyRing(api_keys(["team=sk-old", "sk-other"], priority=["team=sk-new"]))
    callers = [three.check(f"Bearer sk-{name}".encode()) for name in ("old", "new", "other")]
    assert [caller.owner == callers[0].owner for caller in callers] == [True, True, False]
    assert [caller.may_hurry for caller in callers] == [False, True, False]
    assert all(caller.shares for caller in callers)


def test_whose_sampled_flag_counts() -> None:
    keys = api_keys(["team=sk-one", "guest=sk-two"], priority=["ops=sk-three"])

    def may_sample(ring: KeyRing) -> list[bool]:
        sent = (b"sk-one", b"sk-two", b"sk-three")
        return [ring.check(b"Bearer " + key).may_sample for key in sent]

    assert may_sample(KeyRing(keys)) == [False, False, True]
    assert may_sample(KeyRing(keys, ("team",))) == [True, False, False]
    assert KeyRing(api_keys(["sk-only"])).check(b"Bearer sk-only").may_sample


def test_a_key_may_be_sent_with_its_alias_as_it_was_configured() -> None:
    ring = KeyRing(api_keys(["team=sk-one", "abc=def"]))
    for whole, key in ((b"team=sk-one", b"sk-one"), (b"abc=def", b"def")):
        assert ring.check(b"Bearer " + whole) == ring.check(b"", key)
    with pytest.raises(UnauthorizedError):
        ring.check(b"Bearer team=def")
    with pytest.raises(UnauthorizedError):
        ring.check(b"Bearer team")
