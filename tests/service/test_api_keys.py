"""A key's alias is separated from the key, and every key has one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api_keys import api_keys, split_alias


@pytest.mark.parametrize(
    ("written", "alias", "key"),
    [
        ("sk-0123", None, "sk-0123"),
        ("alice=sk-0123", "alice", "sk-0123"),
        ("team_a-2=sk=01=", "team_a-2", "sk=01="),
        (f"{'a' * 32}=k", "a" * 32, "k"),
        (f"{'a' * 33}=k", None, f"{'a' * 33}=k"),
        ("Alice=sk-0123", None, "Alice=sk-0123"),
        ("c2VjcmV0a2V5MQ==", None, "c2VjcmV0a2V5MQ=="),  # the padding of base64
        ("c2VjcmV0a2V5MTI=", None, "c2VjcmV0a2V5MTI="),
        ("deadbeef==", None, "deadbeef=="),
        ("=sk-0123", None, "=sk-0123"),
        ("a b=sk-0123", None, "a b=sk-0123"),
    ],
)
def test_an_alias_is_a_short_plain_word_before_the_first_equals_sign(
    written: str, alias: str | None, key: str
) -> None:
    assert split_alias(written) == (alias, key)


@given(st.from_regex(r"[a-z0-9_-]{1,32}", fullmatch=True), st.text(min_size=1))
def test_a_key_with_an_alias_may_hold_anything_but_begin_with_an_equals_sign(
    alias: str, key: str
) -> None:
    expected = (None, f"{alias}={key}") if key.startswith("=") else (alias, key)
    assert split_alias(f"{alias}={key}") == expected


def test_keys_without_an_alias_are_named_by_their_position() -> None:
    keys = api_keys(["sk-a", "bob=sk-b", "sk-c", "sk-a"], priority=["sk-d", "sk-c"])
    assert [(key.key, key.alias, key.has_priority) for key in keys] == [
        ("sk-a", "key1", False),
        ("sk-b", "bob", False),
        ("sk-c", "key3", True),
        ("sk-d", "key4", True),
    ]


@pytest.mark.parametrize("plain", [["sk-a", "bob=sk-a"], ["bob=sk-a", "sk-a", "bob=sk-a"]])
def test_a_key_written_with_and_without_its_alias_is_one(plain: list[str]) -> None:
    [key] = api_keys(plain)
    assert (key.key, key.alias, key.written) == ("sk-a", "bob", "bob=sk-a")


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        (["bob=sk-a", "eve=sk-a"], "two aliases, 'bob' and 'eve'"),
        (["other=sk-a"], "'other' is reserved"),
        (["loadtest=sk-a"], "'loadtest' is reserved"),
        (["sk-b", "key1=sk-a"], "'key1' is reserved"),
    ],
)
def test_aliases_that_would_mislead_are_refused_without_quoting_a_key(
    plain: list[str], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        api_keys(plain)
    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize(
    ("plain", "priority", "which"),
    [
        (["sk-a", "alice="], [], r"^key 2 is empty after '='"),
        (["sk-a", "="], [], r"^key 2 is empty"),
        (["sk-a"], ["deadbeef="], r"^priority key 1 is empty.*ALIAS=KEY, even if the key itself"),
    ],
)
def test_an_alias_without_a_key_is_refused_without_quoting_what_may_be_one(
    plain: list[str], priority: list[str], which: str
) -> None:
    with pytest.raises(ValueError, match=which) as caught:
        api_keys(plain, priority)
    assert "alice" not in str(caught.value)
    assert "deadbeef" not in str(caught.value)
    assert api_keys(["me=deadbeef="])[0].key == "deadbeef="


def test_a_key_is_not_in_what_is_printed_of_it() -> None:
    assert "sk-a" not in repr(api_keys(["bob=sk-a", "sk-ab"]))
