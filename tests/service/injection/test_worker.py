"""What is wrapped for each fault of the worker, and that nothing is for the others.

``tests/e2e/test_faults.py`` has the faults themselves, on a running server."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.faults.page import FaultPage
from engine.faults.table import parse_fault
from observability.tracing import IdentityTracer
from service.engine.link import EngineLink
from service.engine.submission import Submission
from service.formats import PLAIN
from service.generation import generator
from service.injection.worker import InjectedError, inject_into_worker
from service.output.events import Event
from service.output.formed import FormedParser
from service.output.parser import OutputParser
from service.output.spans import TokenSpans

SUBMISSION = cast("Submission", object())


@pytest.fixture(autouse=True)
def real_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is replaced is put back."""
    monkeypatch.setattr(time, "time", time.time)
    monkeypatch.setattr(time, "time_ns", time.time_ns)
    for kind in (OutputParser, FormedParser):
        monkeypatch.setitem(vars(generator), kind.__name__, kind)


def injected(folder: Path, *texts: str) -> tuple[FaultPage, Any]:
    page = FaultPage.create(folder / "faults", [parse_fault(text) for text in texts])
    link = SimpleNamespace(on_submit=None)
    inject_into_worker(page, cast("EngineLink", link), IdentityTracer())
    return page, link


def test_faults_of_other_places_wrap_nothing(tmp_path: Path) -> None:
    _, link = injected(tmp_path, "engine_kill", "slow_step")
    assert link.on_submit is None
    assert vars(generator)["OutputParser"] is OutputParser


def test_the_clock_jumps_at_its_request_and_once(tmp_path: Path) -> None:
    page, link = injected(tmp_path, "clock_jump:after=1:seconds=-3600")
    begin, begin_ns, steady = time.time(), time.time_ns(), time.monotonic()
    link.on_submit(SUBMISSION)
    assert time.time() - begin < 1800
    for _ in range(3):
        link.on_submit(SUBMISSION)
    assert -3600 <= time.time() - begin < -1800
    assert -3600e9 <= time.time_ns() - begin_ns < -1800e9
    assert 0 <= time.monotonic() - steady < 1800
    assert page.counts("clock_jump").injected == 1


def test_a_stalled_worker_stands_still_in_its_loop(tmp_path: Path) -> None:
    page = FaultPage.create(tmp_path / "faults", [parse_fault("worker_stall:seconds=0.1")])
    seen: list[Submission] = []
    link = SimpleNamespace(on_submit=seen.append)
    inject_into_worker(page, cast("EngineLink", link), IdentityTracer())
    begin = time.monotonic()
    link.on_submit(SUBMISSION)
    assert time.monotonic() - begin >= 0.1
    assert seen == [SUBMISSION]  # the one that was called before still is


@pytest.mark.parametrize("kind", [OutputParser, FormedParser])
def test_one_parser_breaks_and_the_next_is_whole(tmp_path: Path, kind: type[OutputParser]) -> None:
    injected(tmp_path, "parser_error:after=1")
    logs: list[list[Event]] = [[], [], []]
    parsers = [vars(generator)[kind.__name__](PLAIN, TokenSpans(), log, tools={}) for log in logs]
    for parser in (parsers[0], parsers[2]):
        parser.feed_token("Hi", 1)
    with pytest.raises(InjectedError):
        parsers[1].feed_token("Hi", 1)
    assert [len(log) for log in logs] == [1, 0, 1]


def test_a_hanging_exporter_without_an_exporter_is_harmless(tmp_path: Path) -> None:
    page, _ = injected(tmp_path, "exporter_hang")
    assert page.counts("exporter_hang").injected == 0
