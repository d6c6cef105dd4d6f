"""Which web pages may call, and under which names the server answers."""

from __future__ import annotations

from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from service.http.origins import OriginRules
from service.wire.limit_headers import LIMIT_HEADERS
from tests.service.http.apps import CHAT, EVIL, PAGE

EVERYWHERE = "0.0.0.0"  # noqa: S104 - nothing is bound


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST.:8000", 200),
        ("127.0.0.1:8000", 200),
        ("127.8.8.8", 200),
        ("[::1]:8000", 200),
        ("", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("10.0.0.1:8000", 403),
        ("[::2]", 403),
    ],
)
def test_without_keys_only_names_of_this_machine_are_answered(
    client: TestClient[Litestar], host: str, status: int
) -> None:
    for path in ("/v1/models", "/"):
        reply = client.get(path, headers={"Host": host})
        assert reply.status_code == status, reply.text
        if status == 403:
            assert "127.0.0.1, or start it with --allowed-hosts" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("settings", "host", "status"),
    [
        ({"allowed_hosts": ("llm.example",)}, "llm.example:80", 200),
        ({"allowed_hosts": ("llm.example",)}, "evil.example", 403),
        ({"allowed_hosts": ("*",)}, "evil.example", 200),
        ({"host": EVERYWHERE}, "llm.example", 200),
        ({"host": EVERYWHERE, "allowed_hosts": ("llm.example",)}, "evil.example", 403),
        ({"host": EVERYWHERE, "allowed_hosts": ("llm.example",)}, "10.0.0.1:8000", 200),
        ({"host": "::", "allowed_hosts": ("llm.example",)}, "[fd00::2]:8000", 200),
        ({"host": "::", "allowed_hosts": ("llm.example",)}, "10.0.0.1.evil.example", 403),
        ({"host": "::1"}, "evil.example", 403),
        ({"api_key": ("key",)}, "llm.example", 200),
    ],
)
def test_other_names_where_they_are_expected(
    settings: dict[str, Any], host: str, status: int
) -> None:
    given = {"host": "127.0.0.1", "allowed_hosts": (), **settings}
    rules = OriginRules.of(
        host=given["host"],
        keys="api_key" in given,
        allowed_hosts=given["allowed_hosts"],
        allowed_origins=(),
    )
    scope: Any = {"method": "GET", "headers": [(b"host", host.encode())]}
    if status == 200:
        rules.check(scope)
    else:
        with pytest.raises(Exception, match="evil"):
            rules.check(scope)


@pytest.mark.parametrize("kind", [None, "text/plain", "application/json"])
def test_a_page_of_another_origin_cannot_use_a_server_without_keys(
    client: TestClient[Litestar], kind: str | None
) -> None:
    headers = {"Origin": EVIL} | ({} if kind is None else {"Content-Type": kind})
    reply = client.post(CHAT, content=b"{}", headers=headers)
    assert reply.status_code == 403
    assert "--allowed-origins" in reply.json()["error"]["message"]
    own = client.post(CHAT, content=b"{}", headers={"Origin": "http://quire.localhost"})
    assert own.status_code == 400


def test_a_preflight_is_answered_without_a_key(paged: TestClient[Litestar]) -> None:
    asked = {
        "Origin": PAGE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,x-stainless-os,X-Own",
    }
    for path in (CHAT, "/chat/completions", "/nope"):
        reply = paged.options(path, headers=asked)
        assert reply.status_code == 204
        assert reply.headers["access-control-allow-origin"] == PAGE
        assert "POST" in reply.headers["access-control-allow-methods"]
        listed = reply.headers["access-control-allow-headers"].split(", ")
        assert {"authorization", "content-type", "x-api-key", "x-stainless-os", "x-own"} <= set(
            listed
        )
        other = paged.options(path, headers={**asked, "Origin": EVIL})
        assert "access-control-allow-origin" not in other.headers


def test_pages_may_read_what_is_left_of_a_key_s_limits(paged: TestClient[Litestar]) -> None:
    reply = paged.get("/v1/models", headers={"Origin": PAGE})
    exposed = reply.headers["access-control-expose-headers"].split(", ")
    assert {*LIMIT_HEADERS, "retry-after", "x-should-retry"} <= set(exposed)


def test_by_default_nothing_is_said_to_pages(client: TestClient[Litestar]) -> None:
    reply = client.get("/v1/models", headers={"Origin": PAGE})
    assert not [name for name in reply.headers if name.startswith("access-control")]
