"""The effect of costly requests on other streams: a table of figures, one row per request.

The gaps are those that a client sees, so they include what a busy machine adds; therefore this is
not part of the ordinary run. ``pytest -m slow -s tests/law/test_beside.py`` prints the table.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pocket import MODEL_DIR
from tests.law.measuring import Ask, Cost, LawServer
from tests.law.test_preparing import CASES, CHAT, COMPLETIONS, RESPONSES, said
from tests.service.running import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STREAMS = 4
LEAST_SECONDS = 4.0
# More than twice the gap without them, where that is short: what a busy machine's scheduling adds.
ALLOWED_SECONDS = 0.03
# A model's own time for prompts does not count as the service's: here prompts take no time.
SIMULATION = f"simulated:instant,step=5ms,context=131072,output=8,tokenizer={MODEL_DIR}"


def after_a_long_history(server: LawServer) -> list[Ask]:
    stored = _stored(server)
    again = {"input": "more", "previous_response_id": stored, "max_output_tokens": 1}
    return [Ask(RESPONSES, again)] * 4


def references_to_a_long_item(server: LawServer) -> list[Ask]:
    item = f"msg_{_stored(server).removeprefix('resp_')}_i0"
    return [Ask(RESPONSES, {"input": [{"type": "item_reference", "id": item}] * 16_000})]


def _stored(server: LawServer) -> str:
    first = {"input": "word " * 60_000, "max_output_tokens": 1, "store": True}
    status, stored = server.post(RESPONSES, first)
    assert status == 200, stored
    return str(stored["id"])


REQUESTS: dict[str, list[Ask] | Callable[[LawServer], list[Ask]]] = {
    **CASES,
    "a long stored history": after_a_long_history,
    "thousands of references to a long item": references_to_a_long_item,
    "hundreds of scrapes": [Ask("/metrics", method="GET")] * 400,
    "n × max_tokens × logprobs": [
        Ask(
            CHAT,
            {"messages": said("a"), "n": 16, "max_tokens": 300, "ignore_eos": True}
            | {"logprobs": True, "top_logprobs": 20},
        )
    ],
    "prompt_logprobs of 20,000 ids": [
        Ask(COMPLETIONS, {"prompt": [5] * 20_000, "max_tokens": 1, "prompt_logprobs": 5})
    ],
    "a prompt of 100,000 ids, n 16": [
        Ask(COMPLETIONS, {"prompt": [5] * 100_000, "max_tokens": 2, "n": 16})
    ],
    "echo of a long prompt": [
        Ask(COMPLETIONS, {"prompt": "word " * 20_000, "max_tokens": 2, "echo": True})
    ],
    "ten beams": [
        Ask(
            COMPLETIONS,
            {"prompt": "a", "n": 10, "max_tokens": 200, "use_beam_search": True}
            | {"stop_token_ids": list(range(5, 261)), "temperature": 0},
        )
    ],
    "a million allowed tokens, n 16": [
        Ask(
            CHAT,
            {"messages": said("a"), "n": 16, "max_tokens": 64, "ignore_eos": True}
            | {"allowed_token_ids": [*range(100, 300)] * 5000},
        )
    ],
    "long bad words, n 16": [
        Ask(
            COMPLETIONS,
            {"prompt": "a", "n": 16, "max_tokens": 64, "ignore_eos": True}
            | {"bad_words": [f"w{number} a b" for number in range(128)]},
        )
    ],
    "a whole Responses answer with logprobs": [
        Ask(
            RESPONSES,
            {"input": "a", "max_output_tokens": 1500, "ignore_eos": True, "top_logprobs": 20}
            | {"include": ["message.output_text.logprobs"], "store": True},
        )
    ],
    "a Responses answer with logprobs": [
        Ask(
            RESPONSES,
            {"input": "a", "max_output_tokens": 800, "ignore_eos": True, "top_logprobs": 20}
            | {"include": ["message.output_text.logprobs"], "stream": True},
        )
    ],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LawServer]:
    with LawServer(tmp_path_factory.mktemp("law"), simulation=SIMULATION) as running:
        running.cost_of([Ask("/tokenize", {"prompt": "word " * 2000})] * 8)
        yield running


# As many rounds as ten minutes hold.
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
MOST_AT_ONCE = 32


def beside(server: LawServer, work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the streams' p99 gap, in seconds, while ``work`` runs (some seconds at least), and
    its result."""
    command = [sys.executable, "-m", "tests.law.companion", str(server.port), str(STREAMS)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        ends = time.monotonic() + LEAST_SECONDS
        result = work()
        while time.monotonic() < ends:
            time.sleep(0.05)  # enough gaps for a percentile
        gaps = json.loads(process.communicate("\n", timeout=60)[0])
    return statistics.quantiles(gaps, n=100)[98], result


@pytest.mark.parametrize("name", REQUESTS)
def test_other_streams_continue(server: LawServer, name: str) -> None:
    asked = REQUESTS[name]
    asks = asked(server) if callable(asked) else asked
    check(server, name, lambda: server.cost_of(asks, at_once=MOST_AT_ONCE))


def test_other_streams_continue_while_a_template_does_not_end(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    model = tmp_path_factory.mktemp("models") / "endless"
    shutil.copytree(MODEL_DIR, model)
    (model / "chat_template.jinja").write_text(ENDLESS)
    folder = tmp_path_factory.mktemp("law")
    with LawServer(folder, simulation=SIMULATION, model=model) as server:
        asks = [Ask(CHAT, {"messages": said("a")})]
        check(server, "a template that does not end", lambda: server.cost_of(asks))


def test_other_streams_continue_while_headers_grow_as_they_are_read(server: LawServer) -> None:
    """Thirty requests, each naming one entry of HTTP/2's table four thousand times: 16 MB a request
    out of a few kB."""
    check(server, "headers that grow", lambda: server.cost_while(lambda: swell(server.port)))


def check(server: LawServer, name: str, work: Callable[[], Cost]) -> None:
    without, _ = beside(server, lambda: None)
    gap, cost = beside(server, work)
    print(
        f"| {name} | {cost.figures()} | p99 gap {1000 * without:.1f} → {1000 * gap:.1f} ms "
        f"({gap / without:.2f}) |"
    )
    cost.check()
    assert gap <= max(2 * without, without + ALLOWED_SECONDS)


def swell(port: int) -> list[str]:
    """How many bytes came back before the server closed the connection or had nothing to say."""
    value = b"a" * 3900
    entry = b"\x40\x01x\x7f" + _hpack_rest(len(value) - 127) + value  # kept in the table, as 62
    # :method POST, :scheme http and :path / of the static table, and :authority.
    pseudo = b"\x83\x86\x84\x01\x01a"
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b""))
        with contextlib.suppress(ConnectionError):  # closed for what was sent
            for number in range(30):
                block = pseudo + (entry if number == 0 else b"") + b"\xbe" * 4000
                connection.sendall(_frame(1, 4, 2 * number + 1, block))
        with contextlib.suppress(ConnectionError, TimeoutError):
            while connection.recv(1 << 16):
                pass
    return ["200"]


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _hpack_rest(value: int) -> bytes:
    """Behind a prefix that is full (RFC 7541, 5.1)."""
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])
