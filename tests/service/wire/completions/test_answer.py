"""Completions on the wire: a stream's chunks are the whole answer, however the tokens came."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.types import Completion

from engine.messages import FinishReason, SamplingParams, TokenLogprobs
from service.checkpoint.checkpoint import Checkpoint, load_checkpoint
from service.errors import EngineFailedError
from service.generation.choice import StopRules
from service.generation.generator import Generator
from service.generation.request import Generation, GenerationRequest
from service.tenants.caller import ANYBODY
from service.wire.completions.answer import CompletionAnswer
from service.wire.completions.request import decode_completion
from tests.service.at_once import at_once
from tests.service.wire.chat.test_answer import Desk, end_with, finish, one_each

PROMPT = "say"


@pytest.fixture(scope="module")
def checkpoint(tiny_model: Path) -> Checkpoint:
    return load_checkpoint(tiny_model)


class Played:
    """A completion whose model says ``text``, in frames of the given token counts. ``ids``: these
    tokens instead. ``stopped``: the last of them ends it."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        text: str,
        frames: Iterator[int],
        *,
        ids: list[int] | None = None,
        stopped: bool = False,
        stop: StopRules | None = None,
        **fields: Any,
    ) -> None:
        desk = Desk()
        body = json.dumps({"prompt": PROMPT, **fields}).encode()
        self.generation: Generation = at_once(
            Generator(desk, checkpoint).start(
                GenerationRequest(
                    "r",
                    [[1, 2, 3]],
                    SamplingParams(max_tokens=999),
                    0.0,
                    stop=stop or StopRules(),
                ),
                ANYBODY,
            )
        )
        answer = CompletionAnswer(
            decode_completion(body, max_choices=4),
            self.generation,
            checkpoint.vocabulary,
            response_id="cmpl-1",
            created=1,
            model="tiny",
            texts=[PROMPT],
        )
        stream = answer.stream()
        (sequence,) = desk.sequences
        (choice,) = self.generation.choices
        said = checkpoint.tokenizer.encode(text, add_special_tokens=False)
        self.ids = said if ids is None else ids
        out = [stream.begin()]
        position = 0
        while not choice.done:
            count = next(frames)
            sequence.generated += self.ids[position : position + count]
            if "logprobs" in fields:
                sequence.logprobs += [TokenLogprobs(-0.5, 1)] * len(sequence.generated[position:])
            position += count
            if position >= len(self.ids):
                finish(sequence, len(self.ids), FinishReason.STOP)
                if stopped:
                    end_with(sequence, self.ids[-1])
            choice.advance()
            out += stream.advance([choice])
        self.failed = stream.fail(EngineFailedError("the engine died"))
        out.append(stream.end())
        *events, done, rest = b"".join(out).decode().split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        self.chunks = [json.loads(event.removeprefix("data: ")) for event in events]
        self.whole = json.loads(b"".join(answer.whole()))

    @property
    def streamed(self) -> str:
        return "".join(c["text"] for chunk in self.chunks for c in chunk["choices"])


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(alphabet='aé漢🚀"\\\n ', min_size=1, max_size=12),
    frames=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    extras=st.sampled_from([{}, {"echo": True}, {"return_token_ids": True}]),
)
def test_any_frames_accumulate_to_the_whole_answer(
    checkpoint: Checkpoint, text: str, frames: list[int], extras: dict[str, Any]
) -> None:
    endless = iter([*frames, *[1] * 100])
    played = Played(checkpoint, text, endless, stream=True, **extras)
    (choice,) = played.whole["choices"]
    assert played.streamed == choice["text"] == (PROMPT if "echo" in extras else "") + text
    assert [chunk["choices"][0]["finish_reason"] for chunk in played.chunks][-1] == "stop"
    if "return_token_ids" in extras:
        streamed = [i for chunk in played.chunks for i in chunk["choices"][0]["token_ids"]]
        assert streamed == choice["token_ids"] == played.ids
        assert choice["prompt_token_ids"] == [1, 2, 3]


def test_the_best_of_several_is_the_likeliest_by_the_token_and_not_the_shortest(
    checkpoint: Checkpoint,
) -> None:
    desk = Desk()
    asked = GenerationRequest("r", [[1, 2, 3]], SamplingParams(max_tokens=999), 0.0, n=2)
    generation = at_once(Generator(desk, checkpoint).start(asked, ANYBODY))
    for sequence, text, logprob in zip(
        desk.sequences, ("No", "Yes, and more"), (-0.9, -0.5), strict=True
    ):
        sequence.generated += checkpoint.tokenizer.encode(text, add_special_tokens=False)
        sequence.logprobs += [TokenLogprobs(logprob, 1)] * len(sequence.generated)
        finish(sequence, len(sequence.generated), FinishReason.STOP)
    for each in generation.choices:
        each.advance()
    answer = CompletionAnswer(
        decode_completion(json.dumps({"prompt": PROMPT, "best_of": 2}).encode(), max_choices=4),
        generation,
        checkpoint.vocabulary,
        response_id="cmpl-1",
        created=1,
        model="tiny",
        texts=[PROMPT],
    )
    (choice,) = json.loads(b"".join(answer.whole()))["choices"]
    assert choice["text"] == "Yes, and more"


@pytest.mark.parametrize(
    "extras", [{}, {"echo": True}, {"echo": True, "logprobs": 0}, {"echo": True, "max_tokens": 0}]
)
def test_the_first_chunk_has_the_prompts_token_ids(
    checkpoint: Checkpoint, extras: dict[str, Any]
) -> None:
    ask = {"stream": True, "return_token_ids": True, **extras}
    played = Played(checkpoint, "a b", one_each(), **ask)
    first, *others = [chunk["choices"][0] for chunk in played.chunks]
    (whole,) = played.whole["choices"]
    assert first["prompt_token_ids"] == whole["prompt_token_ids"] == [1, 2, 3]
    assert not any("prompt_token_ids" in chunk for chunk in others)
    without = Played(checkpoint, "a b", one_each(), **{**ask, "return_token_ids": False})
    assert "prompt_token_ids" not in json.dumps(without.chunks)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(alphabet="aé漢🚀 ", min_size=1, max_size=12),
    frames=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    by_id=st.booleans(),
)
def test_text_offsets_are_where_characters_begin(
    checkpoint: Checkpoint, text: str, frames: list[int], by_id: bool
) -> None:
    endless = iter([*frames, *[1] * 100])
    extras = {"echo": True, "logprobs": 0, "return_tokens_as_token_ids": by_id}
    played = Played(checkpoint, text, endless, stream=True, **extras)
    (choice,) = played.whole["choices"]
    offsets = choice["logprobs"]["text_offset"][3:]
    sent = [chunk["choices"][0]["logprobs"] for chunk in played.chunks]
    assert [o for part in sent if part for o in part["text_offset"]][3:] == offsets
    for token, offset in zip(played.ids, offsets, strict=True):
        spelled = checkpoint.vocabulary.bytes_of(token)
        assert spelled[:1] in choice["text"][offset:][:1].encode()


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("end", [b"", b"x", b"\xa9"])  # an end-of-sequence token, stop_token_ids
@pytest.mark.parametrize("before", [[], [b"a"], [b"a", b"\xc3"]])
@pytest.mark.parametrize("frame", [1, 9])
def test_the_stop_token_has_logprobs_though_it_is_not_in_the_text(
    checkpoint: Checkpoint, echo: bool, end: bytes, before: list[bytes], frame: int
) -> None:
    """lm-eval counts on it: it drops the last entry."""
    spelled = checkpoint.vocabulary.token_bytes
    last = spelled.index(end) if end else min(checkpoint.vocabulary.special_ids)
    ids = [*map(spelled.index, before), last]
    played = Played(
        checkpoint,
        "",
        itertools.repeat(frame),
        ids=ids,
        stopped=True,
        stop=StopRules(token_ids=(last,) if end else ()),
        stream=True,
        echo=echo,
        logprobs=1,
        return_token_ids=True,
        return_tokens_as_token_ids=True,
    )
    (choice,) = played.whole["choices"]
    text = (PROMPT if echo else "") + "".join("a\ufffd"[: len(before)])
    assert played.streamed == choice["text"] == text
    logprobs = choice["logprobs"]
    assert choice["token_ids"] == ids
    expected = ([1, 2, 3] if echo else []) + ids
    assert logprobs["tokens"] == [f"token_id:{token}" for token in expected]
    assert logprobs["token_logprobs"] == ([None] * 3 if echo else []) + [-0.5] * len(ids)
    assert logprobs["text_offset"][-1] == len(text)
    sent = [part["logprobs"] for chunk in played.chunks for part in chunk["choices"]]
    for column, entries in logprobs.items():
        assert [entry for part in sent if part for entry in part[column]] == entries


@pytest.mark.parametrize("frame", [1, 9])
def test_tokens_of_a_stop_string_and_after_it_have_no_logprobs(
    checkpoint: Checkpoint, frame: int
) -> None:
    rules = StopRules(strings=("STOP",))
    ask = {"stream": True, "logprobs": 0, "stop": rules}
    played = Played(checkpoint, "ab STOP cd", itertools.repeat(frame), **ask)
    logprobs = played.whole["choices"][0]["logprobs"]
    assert "".join(logprobs["tokens"]) == played.streamed == "ab "
    sent = [part["logprobs"] for chunk in played.chunks for part in chunk["choices"]]
    assert [token for part in sent if part for token in part["tokens"]] == logprobs["tokens"]


def test_the_answer_and_every_chunk_are_of_openais_type(checkpoint: Checkpoint) -> None:
    played = Played(checkpoint, "a b", one_each(), stream=True)
    whole = Completion.model_validate(played.whole, strict=True)
    assert (whole.id, whole.model, whole.choices[0].finish_reason) == ("cmpl-1", "tiny", "stop")
    assert whole.usage is not None
    assert whole.usage.total_tokens == 3 + len(played.ids)
    assert {(c["id"], c["object"], c["model"]) for c in played.chunks} == {
        ("cmpl-1", "text_completion", "tiny")
    }


def test_usage_comes_last_and_on_request_with_each_chunk(checkpoint: Checkpoint) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    played = Played(checkpoint, "a b c", one_each(), stream=True, stream_options=options)
    *chunks, last = played.chunks
    assert last["choices"] == []
    assert last["usage"] == played.whole["usage"]
    told = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert told == sorted(told)
    assert told[-1] == len(played.ids)
    assert all(chunk["usage"]["prompt_tokens"] == 3 for chunk in chunks)


def test_timings_so_far_come_with_each_chunk_that_has_usage(checkpoint: Checkpoint) -> None:
    options = {"continuous_usage_stats": True}
    played = Played(
        checkpoint, "a b c", one_each(), stream=True, stream_options=options, timings=True
    )
    assert all(chunk["timings"].keys() == played.whole["timings"].keys() for chunk in played.chunks)
    *early, last = (chunk["timings"]["time_to_first_token_ms"] for chunk in played.chunks)
    assert set(early) == {last}


def test_timings_alone_come_at_the_end(checkpoint: Checkpoint) -> None:
    *chunks, last = Played(checkpoint, "a b c", one_each(), stream=True, timings=True).chunks
    assert "timings" in last
    assert not any("timings" in chunk for chunk in chunks)


def test_a_request_for_no_output_gets_its_prompt_back(checkpoint: Checkpoint) -> None:
    """The engine makes one token even then."""
    played = Played(checkpoint, "x", one_each(), max_tokens=0, echo=True)
    (choice,) = played.whole["choices"]
    assert (choice["text"], choice["finish_reason"]) == (PROMPT, "length")
    assert played.whole["usage"]["completion_tokens"] == 0
    assert played.streamed == PROMPT


def test_a_failure_is_an_error_without_an_end_mark(checkpoint: Checkpoint) -> None:
    failed = Played(checkpoint, "x", one_each()).failed
    assert json.loads(failed.removeprefix(b"data: "))["error"]["message"] == "the engine died"
    assert b"[DONE]" not in failed
