"""A replay sends what the trace says, when it says, and reports what came back."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from queue import Queue
from time import monotonic
from typing import Any

import pytest

from client.address import ServerAddress
from client.chat_client import ServerError
from client.replay import (
    FIRST_TOKEN_ID,
    TOKEN_IDS,
    Replayed,
    TraceLine,
    prompt_of,
    quantile,
    read_trace,
    replay,
    run,
    summary,
)
from tests.dashboard.foreign_server import Exchange, ForeignServer

COMPLETIONS = "/v1/completions"
ROOT = Path(__file__).resolve().parents[2]


def line(at: float, length: int, ids: tuple[int, ...], output: int = 3) -> TraceLine:
    return TraceLine(at, length, output, ids, 16)


def trace(path: Path, *timestamps: int) -> Path:
    rest = {"input_length": 5, "output_length": 1, "hash_ids": []}
    path.write_text("\n".join(json.dumps({"timestamp": at, **rest}) for at in timestamps))
    return path


async def replayed(
    lines: list[TraceLine], base_url: str, *, key: str | None = None, speed: float = 1.0
) -> list[Replayed]:
    answers: dict[int, Replayed] = {}
    address = ServerAddress.parse(base_url)
    await replay(lines, address, model="m", key=key, speed=speed, answers=answers)
    return [answers[number] for number in range(len(lines))]


def test_prompts_have_their_lengths_and_share_what_the_recorded_ones_did() -> None:
    one = prompt_of(line(0, 70, (0, 1, 2, 3)), 0)
    two = prompt_of(line(0, 50, (0, 1, 9)), 1)
    assert (len(one), len(two)) == (70, 50)
    assert one[:32] == two[:32]
    assert one[32:48] != two[32:48]
    assert one[64:] != prompt_of(line(0, 70, (0, 1, 2, 3)), 5)[64:]
    assert all(FIRST_TOKEN_ID <= token < FIRST_TOKEN_ID + TOKEN_IDS for token in one)


def test_a_prompt_is_as_long_as_recorded_whatever_its_blocks_are() -> None:
    lengths = [len(prompt_of(line(0, length, (0, 1, 2)), 0)) for length in (0, 1, 5, 17)]
    assert lengths == [1, 1, 5, 17]  # no API accepts an empty one


def test_a_file_is_read_in_the_order_of_time(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    lines: list[dict[str, Any]] = [
        {"timestamp": 2000, "input_length": 5, "output_length": 1, "hash_ids": []},
        {"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [4]},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    assert [(one.at, one.block_size) for one in read_trace(path)] == [(0.0, 512), (2.0, 512)]
    path.write_text('{"timestamp": 1}\n')
    with pytest.raises(ValueError, match="line 1 is not"):
        read_trace(path)


def test_empty_lines_of_a_file_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    one = {"timestamp": 5, "input_length": 5, "output_length": 1, "hash_ids": []}
    path.write_text(f"\n{json.dumps(one)}\n  \n{json.dumps(one)}\n\n")
    assert len(read_trace(path)) == 2


@pytest.mark.parametrize(
    ("timestamp", "length", "said"),
    [
        ("Infinity", "5", "line 2 has a timestamp that is not a finite number"),
        ("NaN", "5", "line 2 has a timestamp that is not a finite number"),
        ("5", "Infinity", "line 2 is not a valid line of a load trace"),
    ],
)
def test_a_file_has_finite_numbers(tmp_path: Path, timestamp: str, length: str, said: str) -> None:
    path = tmp_path / "trace.jsonl"
    rest = f'"input_length": {length}, "output_length": 1, "hash_ids": []}}\n'
    path.write_text(f'\n{{"timestamp": {timestamp}, {rest}')
    with pytest.raises(ValueError, match=said):
        read_trace(path)


def test_the_summary_has_throughput_and_quantiles() -> None:
    answers = [
        Replayed(0.0, 0.1, [0.01, 0.02], 100, 60, 3),
        Replayed(error="HTTP 429", reason="Too many wait."),
        Replayed(error="HTTP 429", reason="The key's limit is reached."),
        Replayed(prompt_tokens=50, output_tokens=7, error="cut"),
    ]
    text = "\n".join(summary(answers, 2.0))
    assert "failed: 2 HTTP 429, 1 cut\n  HTTP 429: Too many wait.\ntokens" in text
    assert "60.0% of them cached; 3 out, 2/s" in text
    assert "p50 100.0 ms" in text


def test_a_quantile_is_one_of_the_values_by_nearest_rank() -> None:
    values = [float(value) for value in range(1, 21)]
    assert [quantile(values, percent) for percent in (50, 95, 99, 100)] == [10.0, 19.0, 20.0, 20.0]
    assert quantile([3.0, 1.0, 2.0], 50) == 2.0
    assert quantile([], 50) is None


def test_a_file_that_is_missing_empty_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot read .*none\.jsonl: No such file"):
        read_trace(tmp_path / "none.jsonl")
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"trace\.jsonl has no requests"):
        read_trace(path)
    path.write_bytes(b"\x1f\x8b\xff")
    with pytest.raises(ValueError, match=r"trace\.jsonl is not a load trace: it is not UTF-8 text"):
        read_trace(path)


async def test_requests_are_sent_and_streams_are_read() -> None:
    bodies = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        body = json.loads(await reader.readexactly(size))
        bodies.append(body)
        if len(bodies) == 3:
            error = b'{"error": {"message": "Wait."}}'
            length = b"Content-Length: %d" % len(error)
            writer.write(b"HTTP/1.1 429 Too Many Requests\r\n" + length + b"\r\n\r\n" + error)
            writer.close()
            return
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": 2}
        events = [{"choices": [{"text": "a"}]}, {"choices": [{"text": "b"}]}]
        text = "".join(f"data: {json.dumps(one)}\n\n" for one in [*events, {"usage": usage}])
        data = (text + "data: [DONE]\n\n").encode()
        for piece in (data[:30], data[30:]):  # cut anywhere
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        writer.write(b"0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    lines = [line(0.0, 20, (1,)), line(0.01, 40, (1, 2)), line(0.02, 5, ())]
    found = await replayed(lines, f"127.0.0.1:{port}/v1", key="k", speed=2.0)
    server.close()
    assert [len(body["prompt"]) for body in bodies] == [20, 40, 5]
    assert {body["max_tokens"] for body in bodies} == {3}
    assert [one.error for one in found] == [None, None, "HTTP 429"]
    assert [one.reason for one in found] == ["", "", "Wait."]
    assert [(one.prompt_tokens, one.output_tokens) for one in found[:2]] == [(20, 2), (40, 2)]
    assert all(one.ttft is not None and len(one.gaps) == 1 for one in found[:2])


async def test_a_faster_replay_ends_sooner_and_an_answer_with_its_last_byte() -> None:
    event = b'data: {"choices": [{"text": "a"}]}\n\n'
    body = 3 * event + b"data: [DONE]\n\n"
    open_until_the_end = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_until_the_end.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    begun = monotonic()
    async with asyncio.timeout(30):
        found = await replayed(
            [line(0.0, 5, ()), line(60.0, 5, ())], f"127.0.0.1:{port}", speed=600.0
        )
    seconds = monotonic() - begun
    for writer in open_until_the_end:
        writer.close()
    server.close()
    for one in found:
        assert one.error is None
        assert one.ttft is not None
        assert len(one.gaps) == 2
        assert one.ttft + sum(one.gaps) <= seconds


@pytest.mark.parametrize(
    ("sent", "error", "reason"),
    [
        (b'100\r\ndata: {"choices"', "cut", "closed before the end"),
        (b"5\r\ndata:\r\n", "cut", "closed before the end"),
        (b'19\r\ndata: {"usage": {"x":1}}\n\r\n', "not understood", "KeyError: 'prompt_tokens'"),
        (
            b'25\r\ndata: {"error": {"message": "No."}}\n\n\r\n',
            "ended with an error",
            "No.",
        ),
    ],
)
async def test_a_stream_that_is_cut_or_wrong_leaves_the_others_in_the_report(
    sent: bytes, error: str, reason: str
) -> None:
    requests = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        requests.append(await reader.readexactly(size))
        data = sent if len(requests) == 1 else b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + data)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    lines = [line(0.0, 20, (1,)), line(0.05, 5, ())]
    found = await replayed(lines, f"http://127.0.0.1:{port}")
    server.close()
    assert [one.error for one in found] == [error, None]
    assert reason in found[0].reason


def test_a_server_that_cannot_be_reached_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ForeignServer() as server:
        url = server.url
    path = trace(tmp_path / "trace.jsonl", 0, 0)
    assert run(path, url, model="m", key=None, speed=1.0) == 1
    shown = capsys.readouterr().out
    assert f"failed: 2 not connected\n  not connected: no connection to {url}: " in shown


def test_one_failed_request_is_a_failure_of_the_replay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    statuses = [200, 500]
    with ForeignServer() as server:
        server.replies[COMPLETIONS] = lambda exchange: exchange.answer(
            statuses.pop(), "data: [DONE]\n\n"
        )
        path = trace(tmp_path / "trace.jsonl", 0, 0)
        assert run(path, server.url, model="m", key=None, speed=1.0) == 1
    assert "failed: 1 HTTP 500\n" in capsys.readouterr().out


def test_a_server_without_models_is_reported(tmp_path: Path) -> None:
    with ForeignServer() as server:
        server.replies["/v1/models"] = lambda exchange: exchange.answer(200, '{"data": []}')
        with pytest.raises(ServerError, match=r"lists no models"):
            run(trace(tmp_path / "trace.jsonl", 0), server.url, model=None, key=None, speed=1.0)


def test_ctrl_c_prints_what_has_ended(tmp_path: Path) -> None:
    ended: Queue[bytes] = Queue()

    def answer(exchange: Exchange) -> None:
        exchange.start(200, "text/event-stream")
        exchange.send('data: {"choices": [{"text": "a"}]}\n\ndata: [DONE]\n\n')
        exchange.connection.shutdown(socket.SHUT_WR)
        ended.put(exchange.connection.recv(1))  # waits until the client has closed its side

    with ForeignServer() as server:
        server.replies[COMPLETIONS] = answer
        path = trace(tmp_path / "trace.jsonl", 0, 3_600_000)
        command = ["bench", "--replay", str(path), "--base-url", server.url, "--model", "m"]
        bench = subprocess.Popen(
            [sys.executable, "-m", "service.cli", *command],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell's background job ignores SIGINT, and so would what these tests start.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            ended.get(timeout=60)
            bench.send_signal(signal.SIGINT)
            shown, errors = bench.communicate(timeout=60)
        finally:
            bench.kill()
    assert bench.returncode == 130, errors
    assert "interrupted when 1 of 2 requests had ended\nrequests   1 in" in shown
    assert "failed: none" in shown
    assert errors == ""
