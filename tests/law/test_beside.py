"""What streams notice of costly requests beside them: a table of figures, one row a request.

The gaps are those that a client sees, so they hold what a busy machine adds; that is why this is
no test of the ordinary run. ``pytest -m slow -s tests/law/test_beside.py`` prints the table.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pocket import MODEL_DIR
from tests.law.measuring import Ask, LawServer
from tests.law.test_preparing import CASES, CHAT, COMPLETIONS, RESPONSES, said
from tests.service.running import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STREAMS = 4
LEAST_SECONDS = 4.0
# More than twice the gap without them, where that is short: what a busy machine's scheduling adds.
ALLOWED_SECONDS = 0.03
# A model's own time for prompts is none of the service's: here prompts take none.
SIMULATION = f"simulated:instant,step=5ms,context=131072,output=8,tokenizer={MODEL_DIR}"

REQUESTS: dict[str, list[Ask]] = {
    **CASES,
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


def beside(server: LawServer, work: Callable[[], Any]) -> tuple[float, Any]:
    """The streams' p99 gap, in seconds, while ``work`` goes on (some seconds at least), and what
    it returns."""
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
def test_streams_beside_it_go_on(server: LawServer, name: str) -> None:
    without, _ = beside(server, lambda: None)
    gap, cost = beside(server, lambda: server.cost_of(REQUESTS[name]))
    print(
        f"| {name} | {cost.figures()} | p99 gap {1000 * without:.1f} → {1000 * gap:.1f} ms "
        f"({gap / without:.2f}) |"
    )
    cost.check()
    assert gap <= max(2 * without, without + ALLOWED_SECONDS)
