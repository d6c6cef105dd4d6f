"""Logprobs as JSON: the shapes of the APIs, in pieces of bounded work."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from engine.messages import TokenLogprobs, packed_top
from service.checkpoint.vocabulary import Vocabulary
from service.wire.logprobs import (
    MIN_LOGPROB,
    ChatLogprobs,
    LogprobWriter,
    PromptLogprobs,
    TextLogprobs,
    TextPart,
    logprob_writer,
)

BYTES = (b"a", b"b", b"\xf0\x9f", b"\x98", b"a", b'"\n', "é".encode())
VOCABULARY = Vocabulary(
    BYTES, tuple(piece.decode(errors="replace") for piece in BYTES), None, frozenset(), str
)
WRITER = logprob_writer(VOCABULARY)


class Counted:
    """Counts up from ``start``."""

    def __init__(self, start: int = 0) -> None:
        self._next = start

    def take(self, token_id: int) -> int:
        self._next += 1
        return self._next - 1


def entry(token: int, rank: int, *top: tuple[int, float]) -> TokenLogprobs:
    logprob = dict(top).get(token, -9.5)
    return TokenLogprobs(logprob, rank, packed_top(top))


def read(pieces: Iterable[bytes], shape: Any) -> Any:
    text = b"".join(pieces)
    msgspec.json.decode(text, type=shape, strict=True)
    return json.loads(text)


def test_the_chat_format_has_each_token_with_its_bytes() -> None:
    entries = [entry(0, 1, (0, -0.5), (2, -1.5), (5, float("-inf"))), entry(6, 3, (1, -0.25))]
    told = read(WRITER.chat([0, 6], entries, 2), ChatLogprobs)
    assert told == {
        "content": [
            {
                "token": "a",
                "logprob": -0.5,
                "bytes": [97],
                "top_logprobs": [
                    {"token": "a", "logprob": -0.5, "bytes": [97]},
                    {"token": "\ufffd", "logprob": -1.5, "bytes": [0xF0, 0x9F]},
                ],
            },
            {
                "token": "é",
                "logprob": -9.5,
                "bytes": [0xC3, 0xA9],
                "top_logprobs": [{"token": "b", "logprob": -0.25, "bytes": [98]}],
            },
        ],
        "refusal": None,
    }
    [whole] = read(WRITER.chat([0], entries[:1], 3), ChatLogprobs)["content"]
    assert whole["top_logprobs"][2] == {"token": '"\n', "logprob": MIN_LOGPROB, "bytes": [34, 10]}
    [bare] = read(WRITER.chat([0], entries[:1], 0), ChatLogprobs)["content"]
    assert bare["top_logprobs"] == []
    assert read(WRITER.chat([], [], 5), ChatLogprobs) == {"content": [], "refusal": None}


def test_alternatives_with_the_same_text_are_all_reported() -> None:
    likely = [(2, -0.5), (3, -1.0), (0, -1.5), (4, -2.0), (1, -2.5)]
    told = read(WRITER.text([TextPart([3], [entry(3, 2, *likely)], Counted())], 5), TextLogprobs)
    assert told["top_logprobs"] == [
        {"bytes:\\xf0\\x9f": -0.5, "bytes:\\x98": -1.0, "a": -1.5, "token_id:4": -2.0, "b": -2.5}
    ]
    assert told["tokens"] == ["bytes:\\x98"]  # which is how to find it among them


def test_the_completions_format_continues_from_prompt_to_output() -> None:
    prompt = TextPart([0, 6], [None, entry(6, 3, (1, -0.25))], Counted())
    output = TextPart([1], [entry(1, 1, (1, -0.125))], Counted(2))
    told = read(WRITER.text([prompt, output], 1), TextLogprobs)
    assert told == {
        "tokens": ["a", "é", "b"],
        "token_logprobs": [None, -9.5, -0.125],
        "top_logprobs": [None, {"b": -0.25, "é": -9.5}, {"b": -0.125}],
        "text_offset": [0, 1, 2],
    }


def test_prompt_logprobs_are_by_id_with_the_prompts_own_token() -> None:
    entries = [entry(1, 1, (1, -0.5), (0, -1.0)), entry(2, 7, (1, -0.5), (0, -1.0))]
    told = read(WRITER.prompt([0, 1, 2], entries, 2), PromptLogprobs)
    assert told == [
        None,
        {
            "1": {"logprob": -0.5, "rank": 1, "decoded_token": "b"},
            "0": {"logprob": -1.0, "rank": 2, "decoded_token": "a"},
        },
        {
            "1": {"logprob": -0.5, "rank": 1, "decoded_token": "b"},
            "0": {"logprob": -1.0, "rank": 2, "decoded_token": "a"},
            "2": {"logprob": -9.5, "rank": 7, "decoded_token": "\ufffd"},
        },
    ]


def test_a_prompt_that_was_not_computed_has_no_logprobs() -> None:
    assert read(WRITER.prompt([0, 1, 2], [], 2), PromptLogprobs) == [None, None, None]


def test_however_long_an_answer_is_each_piece_takes_bounded_work() -> None:
    top = packed_top([(token % 7, -0.1 * token) for token in range(20)])
    entries = [TokenLogprobs(-0.1, 1, top)] * 5_000
    tokens = [0] * 5_000
    writer = LogprobWriter(VOCABULARY)
    for pieces in (
        writer.chat(tokens, entries, 20),
        writer.text([TextPart(tokens, entries, Counted())], 20),
        writer.prompt([0, *tokens], entries, 20),
    ):
        held = 0.0
        begin = time.thread_time()
        for piece in pieces:
            held = max(held, time.thread_time() - begin)
            assert len(piece) < 128 * 1024
            begin = time.thread_time()
        assert held < 0.05


def test_kept_logprobs_take_eight_bytes_an_alternative() -> None:
    kept = entry(0, 1, *((token, -1.0) for token in range(20)))
    assert len(kept.packed) == 20 * 8
    assert [(one.token_id, one.logprob) for one in kept.top[:2]] == [(0, -1.0), (1, -1.0)]
