"""What follows from whose a request is."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.queueing import ServiceClass
from service.api_keys import api_keys
from service.errors import UnauthorizedError
from service.serving.keys import KeyRing
from service.tenants.caller import ANYBODY, Caller, KeyScope
from service.tenants.tier import Tier


def caller_of(key: str, *keys: str, hurried: tuple[str, ...] = ()) -> Caller:
    return KeyRing(api_keys(keys, hurried)).check(f"Bearer {key}".encode())


def test_with_one_key_or_none_the_cache_is_shared_and_requests_say_how_urgent_they_are() -> None:
    for caller in (ANYBODY, caller_of("a", "a"), caller_of("a", "a", "a")):
        assert (caller.cache_salt(""), caller.cache_salt("mine")) == ("", "mine")
        assert (caller.priority(-1000), caller.priority(5)) == (-1000, 5)


@given(salts=st.lists(st.text(), min_size=1, max_size=4, unique=True))
def test_with_several_keys_no_two_share_a_salt_whatever_they_ask_for(salts: list[str]) -> None:
    one, two = caller_of("a", "a", "b"), caller_of("b", "a", "b")
    # One key requests, among other things, what the other one gets.
    asked = [*salts, *[one.cache_salt(salt) for salt in salts], one.owner, "a"]
    for mine, theirs in itertools.product(asked, asked):
        assert one.cache_salt(mine) != two.cache_salt(theirs)
    assert len({one.cache_salt(salt) for salt in salts}) == len(salts)
    assert one.cache_salt(salts[0]) == caller_of("a", "b", "a").cache_salt(salts[0])


def test_with_several_keys_only_those_that_may_go_ahead_of_others() -> None:
    keys = ("a", "b", "c")
    plain, first = caller_of("a", *keys, hurried=("c",)), caller_of("c", *keys, hurried=("c",))
    assert [plain.priority(asked) for asked in (-1000, -1, 0, 7)] == [0, 0, 0, 7]
    assert [first.priority(asked) for asked in (-1000, 0, 7)] == [-1000, 0, 7]


def test_a_request_that_may_go_ahead_of_other_tenants_has_the_most_urgent_class() -> None:
    keys = ("a", "b", "c")
    plain, first = caller_of("a", *keys, hurried=("c",)), caller_of("c", *keys, hurried=("c",))
    classes = [first.class_of(asked) for asked in (-1, 0, 7)]
    assert classes == [ServiceClass.INTERACTIVE, ServiceClass.STANDARD, ServiceClass.STANDARD]
    assert plain.class_of(-1) is ServiceClass.STANDARD
    assert ANYBODY.class_of(-1) is ServiceClass.STANDARD  # only its own requests to go ahead of


@pytest.mark.parametrize("may_hurry", [True, False])
@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("own", ServiceClass)
def test_a_tier_lowers_the_class_of_any_request_and_raises_it_for_some(
    own: ServiceClass, shares: bool, may_hurry: bool
) -> None:
    caller = Caller("0a" * 32, shares=shares, may_hurry=may_hurry, service_class=own)
    assert caller.class_of(0) is own
    assert caller.class_of(0, Tier.FLEX) is ServiceClass.BATCH
    assert caller.class_of(-1, Tier.FLEX) is ServiceClass.BATCH
    assert caller.class_of(0, Tier.PRIORITY) is (ServiceClass.INTERACTIVE if may_hurry else own)
    most = ServiceClass.STANDARD if own is ServiceClass.INTERACTIVE else own
    assert caller.class_of(0, Tier.STANDARD) is most


def test_a_caller_is_whose_key_it_is() -> None:
    assert caller_of("a", "a", "b").owner != caller_of("b", "a", "b").owner
    with pytest.raises(UnauthorizedError):
        caller_of("c", "a", "b")


def test_a_key_may_what_its_scopes_include() -> None:
    def allowed(*scopes: KeyScope) -> set[KeyScope]:
        caller = Caller(scopes=frozenset(scopes))
        return {scope for scope in KeyScope if caller.may(scope)}

    assert allowed() == set()
    assert allowed(KeyScope.READ) == {KeyScope.READ}
    assert allowed(KeyScope.INFERENCE) == set(KeyScope)
    assert {scope for scope in KeyScope if ANYBODY.may(scope)} == set(KeyScope)


def test_a_key_may_use_the_models_that_it_names_or_all() -> None:
    assert ANYBODY.may_use("tiny")
    assert Caller(models=frozenset({"tiny"})).may_use("tiny")
    assert not Caller(models=frozenset({"other"})).may_use("tiny")
    assert not Caller(models=frozenset()).may_use("tiny")
