"""Addresses of servers as people write them."""

from __future__ import annotations

import pytest

from client.address import ServerAddress


@pytest.mark.parametrize(
    ("text", "host", "port", "prefix"),
    [
        ("127.0.0.1:21200", "127.0.0.1", 21200, ""),
        ("host", "host", 80, ""),
        ("https://host", "host", 443, ""),
        (" http://host:8000/v1/ ", "host", 8000, ""),
        ("http://[::1]:8000/llm/v1", "::1", 8000, "/llm"),
    ],
)
def test_scheme_version_and_port_may_be_left_out(
    text: str, host: str, port: int, prefix: str
) -> None:
    address = ServerAddress.parse(text)
    assert (address.host, address.port, address.prefix) == (host, port, prefix)
    assert address.is_encrypted == text.startswith("https")


def test_the_url_has_neither_path_nor_password() -> None:
    assert ServerAddress.parse("http://ann:secret@host:8000/v1").url == "http://host:8000"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http://a:1 http://b:2", r"several servers are named: .*; give one"),
        ("http://a:1,http://b:2", r"several servers are named"),
        ("http://a:x", r"the port must be a number from 1 to 65,535: http://a:x"),
        ("a:70000", r"the port must be a number from 1 to 65,535"),
        ("a:0", r"the port must be a number from 1 to 65,535"),
        ("http://[a", r"not an http\(s\) URL"),
        ("ftp://a", r"not an http\(s\) URL: ftp://a"),
        ("", r"not an http\(s\) URL"),
    ],
)
def test_others_are_refused_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ServerAddress.parse(text)
