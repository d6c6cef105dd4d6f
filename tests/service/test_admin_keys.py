"""Admin keys: scopes and aliases as they are written."""

from __future__ import annotations

import pytest

from observability.admin_api import AdminScope
from service.admin_keys import admin_keys


def test_a_key_has_the_scope_and_alias_that_are_written_before_it() -> None:
    keys = admin_keys(("operate:ann=first-key", "read=second-key", "third-key"))
    assert [(key.alias, key.scope, key.key) for key in keys] == [
        ("ann", AdminScope.OPERATE, "first-key"),
        ("read2", AdminScope.READ, "second-key"),
        ("operate3", AdminScope.OPERATE, "third-key"),
    ]


def test_base64_that_ends_in_an_equals_sign_is_a_whole_key() -> None:
    [key] = admin_keys(("read==abcdefg",))
    assert (key.key, key.scope) == ("read==abcdefg", AdminScope.OPERATE)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (("read:loopback=long-enough",), "reserved"),
        (("read:operate1=long-enough",), "reserved"),
        (("operate=short",), "8 characters"),
        (("long-enough", "read:prometheus="), r"key 2 is empty after 'read:prometheus='"),
        (("operate:me=",), r"key 1 is empty after 'operate:me='"),
        (("operate=",), r"key 1 is empty after 'operate='"),
        (("read:Bob=long-enough",), r"key 1 begins with 'read:', so it must be SCOPE:ALIAS=KEY"),
        (("operate:long-enough",), r"key 1 begins with 'operate:'"),
        (("read=long-enough", "operate=long-enough"), "already given"),
    ],
)
def test_a_wrong_key_is_refused_without_quoting_it(written: tuple[str, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        admin_keys(written)
    assert "long-enough" not in str(caught.value)
    assert "short;" not in str(caught.value)


def test_a_key_is_not_in_its_own_description() -> None:
    assert "long-enough" not in repr(admin_keys(("read:bob=long-enough",)))
