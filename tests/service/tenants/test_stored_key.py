"""A new key is random, and nothing that is stored of it is the key."""

from __future__ import annotations

import re
import time

import msgspec
import pytest

from service.tenants.caller import ALL_SCOPES, KeyScope
from service.tenants.key_limits import KeyLimits
from service.tenants.stored_key import (
    KeyGrant,
    digest_of,
    named,
    new_key,
    scopes_of,
    tenant_grants,
)

TEAM = KeyGrant(alias="team", requests_per_minute=5)


def test_a_key_has_256_random_bits_and_is_stored_as_its_digest() -> None:
    made = [new_key(TEAM) for _ in range(100)]
    assert len({text for _, text in made}) == len({key.id for key, _ in made}) == 100
    for key, text in made:
        assert re.fullmatch(r"qk_[a-z2-7]{52}", text)
        assert key.digest == digest_of(text)
        assert key.shown == text[:9]
        assert text not in repr(key)
        assert text[9:].encode() not in msgspec.json.encode(key)


def test_a_key_ends_when_it_expires_or_is_revoked() -> None:
    now = time.time()
    key, _ = new_key(TEAM, now + 60)
    assert (key.is_valid(now), key.state(now)) == (True, "valid")
    assert (key.is_valid(now + 60), key.state(now + 60)) == (False, "expired")
    revoked = msgspec.structs.replace(key, revoked=now)
    assert (revoked.is_valid(now), revoked.state(now)) == (False, "revoked")
    with pytest.raises(ValueError, match="expired already"):
        new_key(TEAM, now - 1)


@pytest.mark.parametrize("alias", ["other", "loadtest", "key7"])
def test_an_alias_with_a_meaning_of_its_own_is_refused(alias: str) -> None:
    with pytest.raises(ValueError, match="reserved"):
        new_key(KeyGrant(alias=alias))


@pytest.mark.parametrize("alias", ["team\n", "a" * 32 + "\n", "\n", ""])
def test_an_alias_is_one_word_without_a_newline(alias: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"alias": alias}, KeyGrant)


def test_limits_are_those_of_the_newest_valid_key() -> None:
    now = time.time()
    first, _ = new_key(TEAM)
    second, _ = new_key(KeyGrant(alias="team", requests_per_minute=9))
    assert tenant_grants([first, second], now)["team"].limits == KeyLimits(9)
    ended = msgspec.structs.replace(second, revoked=now)
    assert tenant_grants([first, ended], now)["team"].limits == KeyLimits(5)


def test_a_name_is_an_id_or_else_an_alias() -> None:
    keys = [new_key(TEAM)[0] for _ in range(2)]
    assert named(keys, keys[1].id) == (keys[1],)
    assert named(keys, "team") == tuple(keys)
    assert named(keys, "nobody") == ()


def test_scopes() -> None:
    assert scopes_of(TEAM) is ALL_SCOPES
    assert scopes_of(KeyGrant(alias="team", scopes=(KeyScope.READ,))) == {KeyScope.READ}
