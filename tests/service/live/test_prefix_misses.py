"""Why a prompt was not cached: in the reply for its client, in the log line for operators, and in
the metrics."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from tests.service.live.test_who import line_of
from tests.service.running import RunningService

BLOCK = 16
FIRST = list(range(1, 1 + 3 * BLOCK))


def asked(service: RunningService, prompt: list[int], **fields: Any) -> tuple[Any, dict[str, Any]]:
    """Return what the reply says of the prefix cache, and the request's log line."""
    body = {"prompt": prompt, "max_tokens": 1, "timings": True, **fields}
    _, headers, reply = service.exchange("POST", "/v1/completions", json.dumps(body).encode(), {})
    return json.loads(reply)["timings"]["prefix"], line_of(service, headers["x-request-id"])


def missed(service: RunningService) -> dict[str, float]:
    name = 'quire_prefix_miss_tokens_total{model="tiny",reason="'
    page = service.get("/metrics")[1].decode()
    found = [line.removeprefix(name) for line in page.splitlines() if line.startswith(name)]
    return {line.partition('"')[0]: float(line.rpartition(" ")[2]) for line in found}


def test_the_reply_the_log_line_and_the_metric_say_why_a_prompt_was_not_cached(
    service: RunningService,
) -> None:
    salt = uuid.uuid4().hex  # so that nothing of other tests is found
    before = missed(service)
    prefix, first = asked(service, FIRST, cache_salt=salt)
    assert prefix == {"matched": 0, "of": 48, "stopped": "first_seen"}
    assert first["prefix_miss"] == "first_seen"
    prefix, line = asked(service, FIRST, cache_salt=salt)
    assert prefix == {"matched": 32, "of": 48, "stopped": "short"}
    other = [*FIRST[:BLOCK], *(token + 1 for token in FIRST[BLOCK:])]
    prefix, line = asked(service, other, cache_salt=salt)
    assert prefix == {"matched": 16, "of": 48, "stopped": "diverged"}
    assert (line["prefix_miss"], line["prefix_diverged_from"]) == ("diverged", first["request_id"])
    prefix, line = asked(service, FIRST, cache_salt=salt, prompt_logprobs=0)
    assert prefix == {"matched": 0, "of": 48, "stopped": "whole_prompt"}
    after = missed(service)
    grown = {reason: after[reason] - before.get(reason, 0) for reason in after}
    assert {reason: grown[reason] for reason in ("first_seen", "short", "diverged")} == {
        "first_seen": 48,
        "short": 16,
        "diverged": 32,
    }
    assert grown["whole_prompt"] == 48


def test_a_reply_does_not_say_what_is_cached_under_another_salt(service: RunningService) -> None:
    mine, other = uuid.uuid4().hex, uuid.uuid4().hex
    prompt = [token + 100 for token in FIRST]
    asked(service, prompt, cache_salt=mine)
    prefix, line = asked(service, prompt, cache_salt=other)
    assert prefix == {"matched": 0, "of": 48, "stopped": "first_seen"}
    assert line["prefix_miss"] == "salt"
    assert "prefix_diverged_from" not in line or line["prefix_diverged_from"] is None


def test_an_eviction_says_how_long_ago_it_was(service: RunningService) -> None:
    salt = uuid.uuid4().hex
    asked(service, FIRST, cache_salt=salt)
    metrics = service.get("/metrics")[1].decode().splitlines()
    blocks = sum(float(line.rpartition(" ")[2]) for line in metrics if "quire_kv_blocks{" in line)
    long = [token % 200 + 1 for token in range(15 * BLOCK)]
    for number in range(int(blocks) // 15 + 2):  # until every other block was used
        asked(service, long, cache_salt=f"{salt}-{number}")
    prefix, line = asked(service, FIRST, cache_salt=salt)
    assert prefix["stopped"] == "evicted"
    assert line["prefix_evicted_s"] >= 0


def test_without_a_prefix_cache_every_miss_is_off(tiny_model: Path, tmp_path: Path) -> None:
    options = ("--no-enable-prefix-caching",)
    with RunningService(tiny_model, tmp_path, engine_args=options) as service:
        service.wait_ready()
        for _ in range(2):  # the second would find the first's blocks
            prefix, line = asked(service, FIRST)
            assert prefix == {"matched": 0, "of": 48, "stopped": "off"}
            assert line["prefix_miss"] == "off"
        assert missed(service)["off"] == 96
