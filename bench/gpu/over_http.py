"""The whole server over HTTP with many streams, next to what its engine does without it. The
server runs as a user runs it, in separate processes, after the other models have left the GPU."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.gpu.model import MAX_SEQS, shape_of
from bench.gpu.report import Report, Row
from bench.gpu.timing import Machine

MODEL: Final = "llama-8b"
ROW: Final = f"http {MODEL} 256 1k/1k"
# The same requests, through the engine core alone.
ENGINE_ROW: Final = f"burst {MODEL} 256 1k/1k"
_STREAMS: Final = 256
_TOKENS: Final = 1024  # of each prompt, and of each answer
# What the server imports and the other rows do not need.
_PACKAGES: Final = ("litestar", "granian", "tokenizers", "structlog", "jinja2", "sqlalchemy")
_START_SECONDS: Final = 180.0
_BYTES: Final = 256
# To load, and to run.
_NEEDS: Final = 110


@dataclass(frozen=True)
class Load:
    """``streams`` requests that come together, each of so many tokens in and out."""

    streams: int
    asked: int
    answered: int
    vocab_size: int

    def body(self, number: int) -> bytes:
        chance = random.Random(number)
        request = {
            "model": "bench",
            "prompt": chance.choices(range(_BYTES, self.vocab_size), k=self.asked),
            "max_tokens": self.answered,
            "ignore_eos": True,
            "temperature": 0.6,
            "seed": number,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return json.dumps(request).encode()


def missing_packages() -> list[str]:
    return [name for name in _PACKAGES if importlib.util.find_spec(name) is None]


def write_model(directory: Path, shape: dict[str, Any]) -> None:
    """Describe the model, with a tokenizer that has a text for each of its tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    (directory / "config.json").write_text(json.dumps(shape))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[: shape["vocab_size"] - 1]
    words = [*alphabet, *(f"w{i}" for i in range(shape["vocab_size"] - len(alphabet)))]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(directory / "tokenizer.json"))


@contextmanager
def server(directory: Path, options: list[str]) -> Iterator[int]:
    """Run a server of the model in ``directory``. Yields its port once the model is ready. Raises
    RuntimeError with the end of its log if it does not start."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "service.cli", "serve", str(directory), "--port", str(port)]
    with (directory / "server.log").open("w+") as log:
        process = subprocess.Popen([*command, *options], stdout=log, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not _is_ready(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise RuntimeError(f"the server did not start: {log.read()[-300:]}")
                time.sleep(0.1)
            yield port
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _is_ready(port: int) -> bool:
    url = f"http://127.0.0.1:{port}/health/ready"
    # HTTP errors are OSErrors, too.
    with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
        return bool(answer.status == 200)
    return False


async def run(port: int, load: Load) -> float:
    """Send all requests at once. Return the seconds until the last has its last token. Raises
    RuntimeError if one fails or has another number of tokens."""
    bodies = [load.body(number) for number in range(load.streams)]
    begin = time.perf_counter()
    await asyncio.gather(*(_stream(port, body, load.answered) for body in bodies))
    return time.perf_counter() - begin


async def _stream(port: int, body: bytes, answered: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    last = b""
    async for line in reader:
        if line.startswith(b"data: {"):
            last = line
        elif line.startswith(b"data: [DONE]"):
            break
    else:
        raise RuntimeError(f"a stream broke off; its last event: {last[-200:]!r}")
    writer.close()
    usage = json.loads(last[len(b"data: ") :])["usage"]
    if usage["completion_tokens"] != answered:
        raise RuntimeError(f"{usage['completion_tokens']} tokens came, not {answered}")


def measure(report: Report, machine: Machine) -> None:
    missing = missing_packages()
    why_not = f"the server needs {', '.join(missing)}, not installed here" if missing else ""
    report.add(ROW, partial(_row, report, machine), needs=_NEEDS, why_not=why_not)


def _row(report: Report, machine: Machine) -> Row:
    """``of_engine``: tokens a second over those of the engine's own row, if it was measured."""
    size, shape = machine.size, shape_of(MODEL, machine)
    shape |= {"vocab_size": 512} if machine.dry else {}
    load = Load(size(_STREAMS, 4), size(_TOKENS, 20), size(_TOKENS, 5), shape["vocab_size"])
    options = [
        *("--load-format", "dummy", "--device", machine.device.type, "--no-enable-prefix-caching"),
        *("--max-model-len", str(size(4096, 256)), "--max-num-seqs", str(size(MAX_SEQS, 8))),
        *("--max-num-batched-tokens", str(size(8192, 64)), "--block-size", "16"),
        *("--served-model-name", "bench", "--log-level", "warning"),
        *(("--dtype", "float32", "--gpu-path", "torch") if machine.dry else ()),
    ]
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder), shape)
        with server(Path(folder), options) as port:
            asyncio.run(run(port, Load(2, load.asked, 2, load.vocab_size)))  # the first of all
            seconds = asyncio.run(run(port, load))
    rate = load.streams * load.answered / seconds
    row = {"tokens_s": rate, "s": seconds, "streams": load.streams}
    alone = [each["tokens_s"] for each in report.rows if each["row"] == ENGINE_ROW and "s" in each]
    return {**row, "of_engine": rate / alone[0]} if alone and not machine.dry else row
