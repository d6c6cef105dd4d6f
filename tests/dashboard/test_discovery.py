"""Servers found by DNS: each address is one, and the page never waits for DNS twice."""

from __future__ import annotations

import threading

import pytest

from dashboard.discovery import FRESH_SECONDS, Discovery, resolve
from dashboard.feeds import feeds
from dashboard.settings import ADMIN_VARIABLE, SERVERS_VARIABLE, Server, named_url, servers, watched


class Names:
    """A resolver whose answers a test chooses."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.answered = threading.Event()

    def __call__(self, name: str) -> list[str]:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.answered.set()
        return answer


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_address_is_a_server_with_its_admin_api() -> None:
    discovery = Discovery(Names(["10.0.0.2", "10.0.0.10", "fd00::1"]))
    environment = {
        SERVERS_VARIABLE: "http://a:1 dns+http://pods:8000",
        ADMIN_VARIABLE: "none dns+http://pods:8001",
    }
    assert watched(environment, discovery) == [
        Server("http://a:1", ""),
        Server("http://10.0.0.2:8000", "http://10.0.0.2:8001"),
        Server("http://10.0.0.10:8000", "http://10.0.0.10:8001"),
        Server("http://[fd00::1]:8000", "http://[fd00::1]:8001"),
    ]
    assert servers(environment, discovery)[1] == "http://10.0.0.2:8000"


def test_without_an_admin_api_a_found_server_has_none() -> None:
    environment = {SERVERS_VARIABLE: "dns+http://pods:8000", ADMIN_VARIABLE: "none"}
    assert watched(environment, Discovery(Names(["10.0.0.2"]))) == [
        Server("http://10.0.0.2:8000", "")
    ]


def test_a_name_without_addresses_is_shown_as_it_is() -> None:
    """The page then says that it cannot be reached."""
    assert Discovery(Names([])).expanded("dns+http://pods:8000") == ["http://pods:8000"]


def test_pods_that_come_and_go_are_noticed_without_waiting() -> None:
    names, clock = Names(["10.0.0.1"], ["10.0.0.1", "10.0.0.2"]), Clock()
    discovery = Discovery(names, clock)
    assert discovery.addresses("pods") == ["10.0.0.1"]
    assert discovery.addresses("pods") == ["10.0.0.1"]
    assert names.asked == 1
    clock.now += FRESH_SECONDS
    names.answered.clear()
    assert discovery.addresses("pods") == ["10.0.0.1"], "the last answer, at once"
    assert names.answered.wait(10)
    for thread in threading.enumerate():
        if thread.name == "addresses of pods":
            thread.join(10)
    assert discovery.addresses("pods") == ["10.0.0.1", "10.0.0.2"]


def test_the_last_addresses_stay_while_dns_does_not_answer() -> None:
    asked = []

    def once(name: str) -> list[str]:
        asked.append(name)
        return ["10.0.0.1"] if len(asked) == 1 else []

    discovery = Discovery(once)
    assert discovery.addresses("pods") == ["10.0.0.1"]
    assert discovery._ask("pods") == ["10.0.0.1"]


def test_real_names() -> None:
    assert "127.0.0.1" in resolve("localhost")
    assert resolve("127.0.0.1") == ["127.0.0.1"]
    assert resolve("no-such-name.invalid") == []


def test_keys_of_a_server_survive_a_change_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.feeds._current", [])
    monkeypatch.setenv(SERVERS_VARIABLE, "http://a:1 http://b:1")
    first = feeds()
    assert feeds() is first
    first.learn_key(1, "key of b")
    monkeypatch.setenv(SERVERS_VARIABLE, "http://b:1 http://c:1")
    second = feeds()
    assert second is not first
    assert [second.key(index) for index in range(2)] == ["key of b", ""]


def test_what_is_not_a_url_is_refused() -> None:
    assert named_url(" dns+http://pods:8000/v1/ ") == "dns+http://pods:8000"
    for wrong in ("dns+pods:8000", "dns+ftp://pods", "srv+http://pods"):
        with pytest.raises(ValueError, match="is not an http"):
            named_url(wrong)
