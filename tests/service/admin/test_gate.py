"""The gate's rules beyond the matrix in tests/service/http/admin/test_application.py."""

from __future__ import annotations

import re
from typing import Any

import pytest

from observability.admin_api import AdminScope
from service.admin.gate import Actor, AdminGate, Approach, is_this_machine
from service.admin.problem import ProblemError
from service.admin_keys import admin_keys

KEYS = admin_keys(("operate:ann=operate-key-1", "read:bob=reader-key-1"))


def approach(**fields: object) -> Approach:
    given = {"address": "127.0.0.1", "host": b"localhost:18000", **fields}
    return Approach(**given)  # type: ignore[arg-type]


def test_the_actor_is_the_keys_alias() -> None:
    gate = AdminGate(KEYS, host="127.0.0.1")
    actor = gate.check(approach(authorization=b"bearer  operate-key-1 "))
    assert actor == Actor("ann", "127.0.0.1", AdminScope.OPERATE)


@pytest.mark.parametrize("sent", [b"Basic operate-key-1", b"operate-key-1", b"Bearer", b"Bearer "])
def test_another_scheme_is_no_key(sent: bytes) -> None:
    with pytest.raises(ProblemError) as caught:
        AdminGate(KEYS, host="127.0.0.1").check(approach(authorization=sent))
    assert (caught.value.status, caught.value.headers) == (
        401,
        {"www-authenticate": 'Bearer realm="admin"'},
    )


@pytest.mark.parametrize(
    ("host", "allowed", "asked", "passes"),
    [
        ("127.0.0.1", (), b"127.0.0.1:18000", True),
        ("127.0.0.1", (), b"[::1]:18000", True),
        ("127.0.0.1", (), b"LOCALHOST.", True),
        ("127.0.0.1", (), b"quire.localhost", True),
        ("127.0.0.1", (), b"127.0.0.1.evil.example", False),
        ("127.0.0.1", (), b"evil.example", False),
        ("127.0.0.1", ("ops.example",), b"ops.example:443", True),
        ("127.0.0.1", ("*",), b"evil.example", True),
        ("10.0.0.5", (), b"quire-admin.prod.svc:8001", True),
        ("10.0.0.5", ("ops.example",), b"evil.example", False),
        ("10.0.0.5", ("ops.example",), b"10.0.0.5:8001", True),
        ("::", ("ops.example",), b"[fd00::5]:8001", True),
        ("::", ("ops.example",), b"10.0.0.5.evil.example", False),
        ("127.0.0.1", ("ops.example",), b"10.0.0.5:8001", False),
    ],
)
def test_host_names_with_keys(
    host: str, allowed: tuple[str, ...], asked: bytes, passes: bool
) -> None:
    gate = AdminGate(KEYS, host=host, allowed_hosts=allowed)
    sent = approach(host=asked, authorization=b"Bearer reader-key-1")
    if passes:
        assert gate.check(sent).alias == "bob"
        return
    with pytest.raises(ProblemError) as caught:
        gate.check(sent)
    assert caught.value.status == 421


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.5"])
@pytest.mark.parametrize("asked", ["evil.example", "10.0.0.5"])
def test_without_keys_no_setting_opens_the_api_to_every_name(host: str, asked: str) -> None:
    gate = AdminGate((), host=host, allowed_hosts=("*",))
    assert gate.check(approach()).alias == "loopback"
    with pytest.raises(ProblemError, match=re.escape(asked)):
        gate.check(approach(host=asked.encode()))


@pytest.mark.parametrize("from_where", [{"address": "10.0.0.9"}, {"is_forwarded": True}])
def test_a_client_elsewhere_learns_first_that_a_key_is_missing(from_where: dict[str, Any]) -> None:
    gate = AdminGate((), host="::")
    with pytest.raises(ProblemError, match="start the server with --admin-key") as caught:
        gate.check(approach(host=b"10.0.0.5:18000", **from_where))
    assert caught.value.status == 403


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("", False),
        ("localhost.evil.example", False),
    ],
)
def test_this_machine(address: str, here: bool) -> None:
    assert is_this_machine(address) is here


def test_who_was_refused() -> None:
    keyed, keyless = AdminGate(KEYS, host="127.0.0.1"), AdminGate((), host="127.0.0.1")
    assert keyed.identify(approach(authorization=b"Bearer reader-key-1")) == "bob"
    assert keyed.identify(approach(authorization=b"Bearer wrong")) == "unknown"
    assert keyless.identify(approach()) == "loopback"
    assert keyless.identify(approach(address="10.0.0.1")) == "unknown"
