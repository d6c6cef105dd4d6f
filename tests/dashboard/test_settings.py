from __future__ import annotations

import socket

import pytest

from dashboard.__main__ import check, check_address, command, main, parse
from dashboard.settings import (
    ADMIN_VARIABLE,
    DEFAULT_URL,
    SERVERS_VARIABLE,
    Server,
    server_name,
    servers,
    watched,
)


def test_without_a_word_it_looks_at_this_machine() -> None:
    assert servers({}) == [DEFAULT_URL]


def test_several_servers_may_be_named() -> None:
    listed = "http://a:1/v1, http://b:2 http://a:1"
    assert servers({SERVERS_VARIABLE: listed}) == ["http://a:1", "http://b:2"]


def test_a_wrong_address_is_named() -> None:
    with pytest.raises(ValueError, match="'b:2' is not an http"):
        servers({SERVERS_VARIABLE: "http://a:1 b:2"})


def test_the_command_line_refuses_a_wrong_address(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--url", "nowhere"])
    assert "--url/--base-url: 'nowhere' is not an http:// or" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["127.0.0.1", "::"])
def test_an_address_that_is_taken_is_named(host: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit, match=rf"port {port} of {host}: Address already in use"):
            main(["--host", host, "--port", str(port)])
    check_address(host, port)
    with pytest.raises(SystemExit, match=r"of 192\.0\.2\.1: Cannot assign"):
        check_address("192.0.2.1", port)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (SERVERS_VARIABLE, "nowhere"),
        ("QUIRE_DASHBOARD_PRICES", "cheap"),
        ("QUIRE_DASHBOARD_TRACE_URL", "nowhere"),
        ("QUIRE_DASHBOARD_SIGN_IN_HOURS", "forever"),
    ],
)
def test_a_wrong_variable_ends_it_before_it_starts(name: str, value: str) -> None:
    with pytest.raises(SystemExit, match=f"^quire dashboard: .*{value}"):
        check({name: value})
    check({})


def test_streamlit_is_told_where_to_listen() -> None:
    line = command("127.0.0.1", 8600)
    assert line[line.index("--server.address") + 1] == "127.0.0.1"
    assert line[line.index("--server.port") + 1] == "8600"
    assert "--server.address" not in command("::", 8600)  # it listens on all by itself


def test_an_admin_api_is_sought_where_quire_serve_puts_it() -> None:
    (server,) = watched({SERVERS_VARIABLE: "http://a:8000"})
    assert server == Server("http://a:8000", "http://a:18000")
    assert server.name == "a:8000"
    assert server_name("https://gateway/b") == "gateway/b"
    assert watched({SERVERS_VARIABLE: "http://a:60000"})[0].admin == ""
    assert watched({SERVERS_VARIABLE: "http://[::1]:8000"})[0].admin == "http://[::1]:18000"


def test_admin_apis_are_named_in_the_servers_order() -> None:
    both = {SERVERS_VARIABLE: "http://a:1 http://b:1"}
    named = watched({**both, ADMIN_VARIABLE: "none http://c:2/"})
    assert [server.admin for server in named] == ["", "http://c:2"]
    with pytest.raises(ValueError, match="names 1 admin APIs for 2 servers"):
        watched({**both, ADMIN_VARIABLE: "http://c:2"})


@pytest.mark.parametrize("port", ["-1", "65536", "99999", "x"])
def test_a_port_that_cannot_be_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([f"--port={port}"])
    assert "argument --port: a port is 0 to 65535" in capsys.readouterr().err
    assert parse(["--port", "65535"]).port == 65535
