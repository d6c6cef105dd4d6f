"""Two ranks started with the chart's own arguments answer as one process does, and come back as a
group when one of them is killed."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.chart.conftest import component, server_container
from tests.chart.helms import Helm4, Values, objects
from tests.e2e.quire_server import QuireServer, until
from tests.e2e.test_tensor_parallel import answers, rank_pids

pytestmark = [pytest.mark.chart, pytest.mark.integration]

ONE: Values = {"engine": {"cpuPath": "torch", "threads": 1}}
TWO: Values = {**ONE, "extraArgs": ["--tensor-parallel-size", "2"]}


def arguments(helm: Helm4, values: Values) -> list[str]:
    """Those of the server's pod, but for its address and ports."""
    deployment = component(objects(helm.render(values)), "Deployment", "server")
    words = list(server_container(deployment)["args"][1:])
    for flag in ("--host", "--port", "--admin-port"):
        at = words.index(flag)
        del words[at : at + 2]
    return words


@pytest.mark.proves("ranks", "chart")
def test_two_ranks_answer_as_one_and_restart_as_a_group(helm4: Helm4) -> None:
    with QuireServer(*arguments(helm4, ONE)) as server:
        expected = answers(server)
    with QuireServer(*arguments(helm4, TWO)) as server:
        assert json.loads(server.get("/health")[1])["engine"]["tensor_parallel_size"] == 2
        assert answers(server) == expected
        before = rank_pids(server)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        until(lambda: rank_pids(server) - before, 120, "the next group of ranks")
        server.wait_ready()
        assert not rank_pids(server) & before
        assert answers(server) == expected
        assert server.get("/health/live")[0] == 200
