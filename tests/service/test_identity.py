from __future__ import annotations

import socket

import pytest

from service.identity import identity


def test_it_tells_servers_of_one_host_and_pods_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    assert identity(8000) == f"{socket.gethostname()}:8000" != identity(8010)
    monkeypatch.setattr(socket, "gethostname", lambda: "quire-7d9f-abcde")
    assert identity(8000) == "quire-7d9f-abcde:8000"
