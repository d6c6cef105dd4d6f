"""A key is known by its digest, from either header, and admits no one else."""

from __future__ import annotations

import hashlib
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from engine.queueing import ServiceClass
from service.api_keys import api_keys
from service.errors import StoreUnavailableError, UnauthorizedError
from service.serving import keys as serving_keys
from service.serving.keys import KeyRing
from service.tenants.caller import KeyScope
from service.tenants.key_limits import KeyLimits
from service.tenants.stored_key import KeyGrant, StoredKey, new_key

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
        (b"Bearer   ", b"sk-one"),
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


def test_a_key_may_no_more_than_it_says_whatever_other_keys_of_its_alias_may() -> None:
    narrow, narrow_text = new_key(
        KeyGrant(alias="team", scopes=(KeyScope.READ,), models=("small",))
    )
    wide, wide_text = new_key(
        KeyGrant(alias="team", service_class=ServiceClass.BATCH, weight=4.0, tokens_per_minute=5)
    )
    ring = KeyRing([], changes=True)
    ring.replace([narrow, wide])
    caller = ring.check(b"", narrow_text.encode())
    assert caller.scopes == {KeyScope.READ}
    assert caller.models == {"small"}
    assert caller.limits == KeyLimits(tokens_per_minute=5)
    assert (caller.service_class, caller.weight) == (ServiceClass.BATCH, 4.0)
    caller = ring.check(b"", wide_text.encode())
    assert caller.may(KeyScope.INFERENCE)
    assert caller.models is None


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


# --- keys that come and go --------------------------------------------------------------------


def stored(alias: str = "team", **fields: object) -> tuple[StoredKey, bytes]:
    key, text = new_key(msgspec.convert({"alias": alias, **fields}, KeyGrant))
    return key, b"Bearer " + text.encode()


def test_a_stored_key_says_what_it_may() -> None:
    key, sent = stored(
        scopes=["read"], models=["m"], service_class="batch", weight=2.0, tokens_per_minute=9
    )
    ring = KeyRing((), changes=True)
    ring.replace([key])
    caller = ring.check(sent)
    assert (caller.alias, caller.owner, caller.shares) == ("team", key.digest, True)
    assert (caller.scopes, caller.models) == ({KeyScope.READ}, {"m"})
    assert (caller.service_class, caller.weight) == (ServiceClass.BATCH, 2.0)
    assert caller.limits == KeyLimits(tokens_per_minute=9)
    assert not caller.may_hurry
    assert list(ring.limited()) == ["team"]


def test_a_tenant_keeps_its_owner_when_its_key_is_rotated_and_ends() -> None:
    (old, sent_old), (new, sent_new) = stored(), stored()
    ring = KeyRing((), changes=True)
    ring.replace([old, new])
    assert ring.check(sent_old).owner == ring.check(sent_new).owner == old.digest
    ring.replace([msgspec.structs.replace(old, revoked=time.time()), new])
    assert ring.check(sent_new).owner == old.digest
    with pytest.raises(UnauthorizedError, match="was revoked"):
        ring.check(sent_old)
    ring.replace([msgspec.structs.replace(old, expires=time.time() - 1), new])
    with pytest.raises(UnauthorizedError, match="has expired"):
        ring.check(sent_old)
    ring.replace([])
    with pytest.raises(UnauthorizedError, match="Incorrect"):
        ring.check(sent_new)


def test_limits_of_an_alias_count_for_all_its_keys() -> None:
    (first, sent_first), (second, _) = stored(), stored(requests_per_minute=3)
    ring = KeyRing(api_keys(["team=sk-of-a-flag"]), changes=True)
    ring.replace([first, second])
    callers = [ring.check(sent_first), ring.check(b"Bearer sk-of-a-flag")]
    assert [caller.limits for caller in callers] == [KeyLimits(3)] * 2
    assert callers[0].owner == callers[1].owner


def test_more_tenants_with_limits_than_can_be_counted_are_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving_keys, "MOST_TENANTS", 2)
    ring = KeyRing((), changes=True)
    keys = [stored(f"team{number}", requests_per_minute=1)[0] for number in range(3)]
    with capture_logs() as lines:
        ring.replace(keys[:2])
        assert not lines
        ring.replace(keys)
        ring.replace(keys)
    assert [(line["tenants"], line["most"]) for line in lines] == [(3, 2)]


def test_a_server_whose_keys_can_change_is_never_open() -> None:
    ring = KeyRing((), changes=True)
    assert ring
    with pytest.raises(UnauthorizedError):
        ring.check(b"Bearer sk-anything")


def test_while_keys_cannot_be_read_an_unknown_one_is_not_called_wrong() -> None:
    ring = KeyRing(api_keys(["sk-one"]), changes=True)
    ring.replace([], missing="the store")
    with pytest.raises(StoreUnavailableError, match="the store"):
        ring.check(b"Bearer sk-two")
    assert ring.check(b"Bearer sk-one").alias == "key1"
    with pytest.raises(UnauthorizedError, match="didn't provide"):
        ring.check(b"")


def test_the_use_of_stored_keys_is_noted() -> None:
    (used, sent), (unused, _) = stored(), stored("idle")
    ring = KeyRing(api_keys(["sk-one"]), changes=True)
    ring.replace([used, unused])
    before = time.time()
    ring.check(sent)
    ring.check(b"Bearer sk-one")
    [(key, moment)] = ring.take_use().items()
    assert key == used.id
    assert before <= moment <= time.time()
    assert ring.take_use() == {}
