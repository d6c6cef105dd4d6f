"""All boards: their queries are valid, and name only variables that the board has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from observability import catalogue
from observability.boards.model import Board
from observability.boards.table import BOARDS, FOLDER, board_files
from observability.metric_kinds import MetricKind

QUERIES = [
    (board, panel, query) for board in BOARDS for panel in board.panels for query in panel.queries
]
BUILT_IN = {"__rate_interval", "__range", "datasource"}


def test_there_are_eight_with_a_file_each() -> None:
    assert [board.name for board in BOARDS] == [
        *("overview", "phases", "kv", "engine", "api", "keys", "slo", "gpu"),
    ]
    assert {path.name for path in FOLDER.glob("*")} == {path.name for path in board_files()}


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_queries_use_the_boards_variables_and_all_of_them(board: Board) -> None:
    has = {each.name for each in (*board.choices, *board.pickers)}
    used = {
        name
        for panel in board.panels
        for query in panel.queries
        for name in re.findall(r"\$(\w+)", query.expr)
    }
    assert used - BUILT_IN == has


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_panels_say_what_they_show(board: Board) -> None:
    titles = [panel.title for panel in board.panels]
    assert len(set(titles)) == len(titles)
    for panel in board.panels:
        assert panel.help
        legends = [query.legend for query in panel.queries]
        assert len(set(legends)) == len(legends), panel.title
        assert (
            panel.title[0].isupper()
            or panel.title in ("receive", "render")
            or board.name
            in (
                "phases",
                "slo",
            )
        )


def test_exemplars_are_shown_where_there_are_some_and_nowhere_else() -> None:
    with_exemplars = {
        metric.name
        for metric in catalogue.METRICS
        if metric.kind is MetricKind.HISTOGRAM and not metric.bulk
    }
    latencies = {
        "quire_time_to_first_token_seconds",
        "quire_phase_seconds",
        "quire_request_seconds",
    }
    for _, panel, query in QUERIES:
        names = set(re.findall(r"(quire_\w+?)_(?:bucket|sum|count)\b", query.expr))
        if panel.exemplars and names:
            assert names <= with_exemplars, panel.title
        if "histogram_quantile" in query.expr and names & latencies:
            assert panel.exemplars, panel.title


def test_every_metric_is_on_a_board() -> None:
    shown = " ".join(query.expr for _, _, query in QUERIES)
    unseen = {metric.name for metric in catalogue.METRICS if metric.name not in shown}
    assert unseen == {
        "quire_build_info",  # the variables come from it
        "quire_engine_last_message_timestamp_seconds",  # silence is the same, at scrape time
        "quire_engine_ready",  # quire_engines{state="ok"} says how many
    }


@pytest.mark.debian
@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Debian's package prometheus")
def test_promtool_reads_every_query(tmp_path: Path) -> None:
    rules = [
        {"record": f"q{number}", "expr": filled(query.expr)}
        for number, (_, _, query) in enumerate(QUERIES)
    ]
    path = tmp_path / "queries.json"
    path.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", "--lint=none", path], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(QUERIES)} rules found" in done.stdout


def filled(expr: str) -> str:
    """Return a query as Grafana would send it."""
    for variable, value in (("$__rate_interval", "1m"), ("$__range", "1h"), ("$slo_ttft", "2.0")):
        expr = expr.replace(variable, value)
    expr = expr.replace("$slo_itl", "0.1").replace("$budget_up", "0.001").replace("$budget", "0.01")
    return re.sub(r"\$\w+", ".*", expr)


def test_a_query_that_may_be_silent_has_its_reason_and_its_proof() -> None:
    for _, panel, query in QUERIES:
        assert bool(query.silent) == bool(query.proof), panel.title
