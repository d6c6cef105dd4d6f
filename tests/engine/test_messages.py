"""What crosses the engine's socket."""

from __future__ import annotations

import math
import struct
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.frames import FrameReader
from engine.messages import (
    MAX_FRAME_BYTES,
    Abort,
    Copy,
    Embed,
    EngineStats,
    Fatal,
    Finished,
    FinishReason,
    FromEngine,
    Generate,
    Heartbeat,
    Loading,
    SamplingParams,
    StepOutputs,
    StepPhase,
    Submit,
    TokenLogprobs,
    decode_from_engine,
    decode_to_engine,
    encode_frame,
    packed_top,
    token_mask,
)

STATS = EngineStats(
    time=1.5,
    running=1,
    waiting=0,
    waiting_reason=None,
    kv_blocks_free=1,
    kv_blocks_cached=2,
    kv_blocks_active=3,
    prompt_tokens_computed=4,
    prompt_tokens_cached=5,
    tokens_recomputed=6,
    tokens_generated=7,
    preemptions=8,
    steps=9,
)
FINISHED = Finished(
    handle=7,
    reason=FinishReason.STOP,
    stop_token_id=2,
    prompt_tokens=3,
    cached_tokens=0,
    output_tokens=4,
    preemptions=0,
    arrival_time=1.0,
    first_scheduled_time=1.25,
    first_token_time=None,
    last_token_time=None,
    finished_time=2.0,
)

PARAMS = st.builds(
    SamplingParams,
    max_tokens=st.integers(1, 2**31),
    seed=st.integers(0, 2**63 - 1),
    temperature=st.floats(0, 100),
    top_p=st.floats(0, 1, exclude_min=True),
    logit_bias=st.dictionaries(st.integers(0, 2**31 - 1), st.floats(-100, 100), max_size=5),
    stop_token_ids=st.frozensets(st.integers(0, 2**31 - 1), max_size=5),
    allowed_tokens=st.none() | st.lists(st.integers(0, 9), max_size=5).map(token_mask),
    logprobs=st.none() | st.integers(0, 20),
)
SUBMITS = st.builds(
    Submit,
    handle=st.integers(0, 2**63 - 1),
    request_id=st.text(),
    prompt_token_ids=st.lists(st.integers(0, 2**31 - 1), max_size=20),
    task=st.builds(Generate, PARAMS, st.lists(st.integers(0, 2**31 - 1), max_size=5))
    | st.builds(
        Embed,
        second_text=st.none() | st.integers(0, 9),
        dimensions=st.none() | st.integers(1, 9),
        activate=st.none() | st.booleans(),
    ),
    priority=st.integers(-(2**31), 2**31),
    arrival_time=st.floats(allow_nan=False),
    cache_salt=st.text(),
    copies=st.lists(
        st.builds(Copy, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)), max_size=3
    ),
)


@given(SUBMITS | st.builds(Abort, st.lists(st.integers(0, 2**63 - 1))))
def test_messages_to_the_engine_arrive_equal(message: Submit | Abort) -> None:
    (body,) = FrameReader().feed(encode_frame(message))
    assert decode_to_engine(body) == message


@pytest.mark.parametrize(
    "message",
    [
        Loading("weights", 1, 2),
        Fatal("no weights"),
        Heartbeat(STATS),
        StepOutputs(
            time=2.0,
            handles=struct.pack("<2q", 7, 2**62),
            token_ids=struct.pack("<2i", 1, 2**31 - 1),
            logprobs={0: TokenLogprobs(-0.5, 1, packed_top([(1, -0.5)]))},
            finished=[FINISHED],
            phase=StepPhase.MIXED,
            stats=STATS,
        ),
    ],
)
def test_messages_from_the_engine_arrive_equal(message: FromEngine) -> None:
    (body,) = FrameReader().feed(encode_frame(message))
    assert decode_from_engine(body) == message


def test_a_frame_is_a_little_endian_length_and_a_tagged_map() -> None:
    frame = encode_frame(Abort([1]))
    assert struct.unpack("<I", frame[:4]) == (len(frame) - 4,)
    assert msgspec.msgpack.decode(frame[4:]) == {"type": "abort", "handles": [1]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": 0},
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"temperature": "1"},
        {"top_p": 0},
        {"top_p": 1.1},
        {"min_p": math.nan},
        {"presence_penalty": 2.1},
        {"repetition_penalty": 0},
        {"seed": -1},
        {"stop_token_ids": [-1]},
        {"stop_token_ids": [2**31]},
        {"logit_bias": {-1: 1.0}},
        {"logprobs": 21},
        {"ignore_eos": "yes"},
    ],
)
def test_sampling_parameters_out_of_bounds_are_refused_on_arrival(wrong: dict[str, object]) -> None:
    submit = {
        "type": "submit",
        "handle": 1,
        "request_id": "r",
        "prompt_token_ids": [1],
        "arrival_time": 0.0,
        "task": {"type": "generate", "params": {"max_tokens": 1} | wrong},
    }
    with pytest.raises(msgspec.ValidationError, match=next(iter(wrong))):
        decode_to_engine(msgspec.msgpack.encode(submit))


def test_a_message_too_large_for_a_frame_is_refused_by_its_sender() -> None:
    with pytest.raises(ValueError, match="exceeds"):
        encode_frame(Fatal("x" * MAX_FRAME_BYTES))


def test_the_service_reads_messages_and_settings_without_torch() -> None:
    code = (
        "import sys, engine.messages, engine.config, engine.options, engine.frames\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_scheduler_and_the_process_need_no_torch_either() -> None:
    code = "import sys, engine.loop.core, engine.loop.process\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
