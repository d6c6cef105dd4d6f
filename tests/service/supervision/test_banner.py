"""What is printed at the start can be copied and used."""

from __future__ import annotations

import json
import shlex
import urllib.parse
from typing import Any

import pytest

from service.supervision.banner import banner, ready_line
from service.supervision.listener import ServerAddress

LOCAL = ServerAddress("127.0.0.1", 8000, "127.0.0.1")
EVERYWHERE = ServerAddress("::", 8000, "::1")


def printed(address: ServerAddress = LOCAL, **more: Any) -> str:
    return banner(address, **{"model": "tiny", "path": "/models/tiny", "needs_key": False, **more})


def commands(text: str) -> list[list[str]]:
    """Those that begin with ``curl``, as a shell splits them."""
    joined = text.replace("\\\n", " ")
    return [shlex.split(line) for line in joined.splitlines() if line.strip().startswith("curl ")]


@pytest.mark.parametrize("address", [LOCAL, EVERYWHERE])
def test_every_url_reaches_the_server_from_this_machine(address: ServerAddress) -> None:
    words = [word for line in printed(address).splitlines() for word in line.split()]
    urls = [urllib.parse.urlsplit(word) for word in words if word.startswith("http")]
    assert len(urls) >= 7
    assert {(url.hostname, url.port) for url in urls} == {(address.local_host, address.port)}


def test_the_request_to_try_is_one_for_this_model() -> None:
    listed, chat = commands(printed())
    assert listed == ["curl", "http://127.0.0.1:8000/v1/models"]
    body = json.loads(chat[chat.index("-d") + 1])
    assert (body["model"], body["stream"]) == ("tiny", True)
    assert [message["role"] for message in body["messages"]] == ["user"]
    assert "Content-Type: application/json" in chat


def test_a_key_is_read_from_the_environment_and_never_printed() -> None:
    for command in commands(printed(needs_key=True)):
        assert "Authorization: Bearer $QUIRE_API_KEY" in command
    assert not any("Authorization" in " ".join(command) for command in commands(printed()))


def test_it_says_who_else_may_connect_what_to_note_and_where_grpc_is() -> None:
    assert "and others" in printed(EVERYWHERE).splitlines()[0]
    assert "and others" not in printed(LOCAL)
    assert printed(note="Mind this.").splitlines()[1] == "Mind this."
    assert "gRPC" not in printed()
    [line] = [line for line in printed(grpc_port=50051).splitlines() if "gRPC" in line]
    assert line.split() == ["gRPC", "127.0.0.1:50051"]


def test_the_last_line_says_what_loads_and_a_later_one_that_it_is_ready() -> None:
    assert printed().splitlines()[-1] == "loading tiny from /models/tiny"
    assert ready_line("tiny", 2.34) == "ready in 2.3 s: model tiny"


def test_the_admin_api_is_named_and_metrics_only_where_they_are_public() -> None:
    admin = ServerAddress("127.0.0.1", 18000, "127.0.0.1")
    assert "http://127.0.0.1:18000/admin/v1" in printed(admin=admin)
    assert "QUIRE_DASHBOARD_ADMIN_URL" not in printed(admin=admin)
    other = printed(admin=ServerAddress("127.0.0.1", 9010, "127.0.0.1"))
    command = "QUIRE_DASHBOARD_ADMIN_URL=http://127.0.0.1:9010 quire dashboard --url"
    assert f"dashboard        {command} http://127.0.0.1:8000" in other
    assert f"=http://127.0.0.1:18000 quire dashboard --url {EVERYWHERE.url}" in printed(
        EVERYWHERE, admin=admin
    )
    assert "/metrics" in printed()
    assert "/metrics" not in printed(needs_key=True)


def test_how_to_make_a_key_comes_before_the_requests_that_need_it() -> None:
    lines = printed(needs_key=True, making_keys="first:\nexport QUIRE_API_KEY=1").splitlines()
    at = lines.index("  first:")
    assert lines[at + 1] == "  export QUIRE_API_KEY=1"
    assert lines[at + 2].startswith("  curl ")
