from __future__ import annotations

import pytest

from dashboard.__main__ import command, parse
from dashboard.settings import DEFAULT_URL, SERVERS_VARIABLE, servers


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
    assert "--url" in capsys.readouterr().err


def test_streamlit_is_told_where_to_listen() -> None:
    line = command("127.0.0.1", 8600)
    assert line[line.index("--server.address") + 1] == "127.0.0.1"
    assert line[line.index("--server.port") + 1] == "8600"
