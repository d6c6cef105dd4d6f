"""The line that shows an answer's cost."""

from __future__ import annotations

import json
import time

from dashboard.answer import Answer, Ending, Timings, Usage
from dashboard.play.figures import cost, progress, reasoned, record


def test_while_an_answer_grows_only_the_servers_count_is_told() -> None:
    growing = Answer(sent=time.monotonic())
    assert progress(growing).startswith("Waiting for the first token, ")
    assert progress(growing, 0.0).startswith("Waiting for the first token, ")
    assert progress(growing, 0.62) == "Reading the prompt, 62.0 %"
    growing.chunks = 1
    assert progress(growing) == "Answering"
    growing.usage = Usage(completion_tokens=1250)
    growing.timings = Timings(queue_ms=12.5, time_to_first_token_ms=80.25)
    assert progress(growing) == ("queue 12.5 ms · first token 80.2 ms · 1,250 output tokens so far")


def test_without_the_servers_timings_no_speed_is_told() -> None:
    ended = Answer(sent=0.0, chunks=3, ending=Ending.STOPPED, usage=Usage(4, 3))
    assert cost(ended) == ("4 prompt tokens · 3 output tokens · stopped early")


def test_reasoning_is_told_with_the_servers_seconds() -> None:
    assert reasoned(Answer(sent=0.0, thought_ms=1500)) == "Reasoned for 1.50 s"
    assert reasoned(Answer(sent=0.0)) == "Reasoning"


def test_the_record_has_what_the_server_said_and_nothing_else() -> None:
    answer = Answer(sent=0.0, request_id="req_1", timings=Timings(queue_ms=0.125))
    assert json.loads(record(answer)) == {"request_id": "req_1", "queue_ms": 0.125}
