"""A chat request enters each room by one function, as docs/follow-a-request.md says."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest

from service.engine.sequence import EngineSequence, Waker
from service.engine.submission import Submission
from service.serving.api import CHAT_API, begin
from tests.service.serving.by_hand import client, loaded, services

PAGE = Path(__file__).resolve().parents[2] / "docs" / "follow-a-request.md"
_ROW = re.compile(r"^\| (\w+) \| `([\w.]+)` \| (\d+) \|$", re.MULTILINE)
# The vocabulary of all rooms: records and conversions, not steps of the way.
_EVERYWHERE = {"conversation", "formats", "constraint", "tenants", "errors", "telemetry"}
# Calls that do not take the request further: the admission that preparation was given, what is
# noted for the record, and facts about the model.
_BESIDE_THE_WAY = {
    ("serving", "Client.admit"),
    ("preparation", "Noted.enter"),
    ("wire", "Ignored.add"),
    ("engine", "EngineLink.waiting_sequences"),
    ("ids", "Ids.new"),
    ("checkpoint", "Checkpoint.vocabulary"),
    ("checkpoint", "ChatTemplate.variables"),
    ("app", "_overviews.<locals>.<lambda>"),
}


def room_of(frame: FrameType) -> str:
    name = str(frame.f_globals.get("__name__", ""))
    return name.split(".")[1] if name.startswith("service.") else ""


class Entries:
    """Counts the calls from one room into another, except constructors."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        room, name = room_of(frame), frame.f_code.co_qualname
        if event != "call" or not room or room in _EVERYWHERE or name.endswith("__init__"):
            return
        caller = frame.f_back
        while caller is not None and not room_of(caller):
            caller = caller.f_back
        if caller is not None and room_of(caller) in {"serving", "preparation"} - {room}:
            self.calls[room, name] += 1


async def test_a_chat_request_enters_each_room_by_the_functions_that_the_page_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = loaded()
    asking = client(services(desk))
    body = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "stream": True}).encode()
    entries, submit = Entries(), desk.submit
    submissions: list[Submission] = []

    def count(submission: Submission, waker: Waker) -> list[EngineSequence]:
        submissions.append(submission)
        return submit(submission, waker)

    monkeypatch.setattr(desk, "submit", count)
    sys.setprofile(entries)
    try:
        await begin(CHAT_API, body, asking)
    finally:
        sys.setprofile(None)
    entries.calls["engine", "EngineLink.submit"] = len(submissions)
    found = {key: times for key, times in entries.calls.items() if key not in _BESIDE_THE_WAY}
    documented = {(room, name): int(times) for room, name, times in _ROW.findall(PAGE.read_text())}
    assert found == documented
