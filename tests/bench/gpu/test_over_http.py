"""The row of the whole server: it runs, and counts what it was given."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from bench.gpu import over_http
from bench.gpu.over_http import ENGINE_ROW, ROW, Load, run
from bench.gpu.report import Report
from bench.gpu.timing import Ceilings, Machine

pytestmark = pytest.mark.integration
DRY = Machine(torch.device("cpu"), Ceilings(1e12, 1e15), True)


def test_a_server_of_a_small_model_serves_all_streams(tmp_path: Path) -> None:
    report = Report(tmp_path / "gpu.json", "dry", [])
    over_http.measure(report, DRY)
    assert not report.failed, report.rows
    [row] = report.rows
    assert (row["row"], row["streams"]) == (ROW, 4)
    assert row["tokens_s"] > 0
    assert "of_engine" not in row


def test_where_packages_are_missing_they_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(over_http, "_PACKAGES", ("json", "no_such_package"))
    report = Report(tmp_path / "gpu.json", "bare", [])
    over_http.measure(report, DRY)
    assert report.rows[0]["left_out"] == "the server needs no_such_package, not installed here"


def test_the_engine_s_own_row_has_the_same_requests() -> None:
    from bench.gpu.engine import LARGE

    [burst] = [row for name, row, _ in LARGE if name == ENGINE_ROW]
    assert burst.keywords == {  # type: ignore[attr-defined]
        "streams": over_http._STREAMS,
        "asked": over_http._TOKENS,
        "answered": over_http._TOKENS,
    }


@pytest.mark.parametrize(
    ("events", "error"),
    [
        (["[DONE]"], None),
        ([], "a stream broke off"),
        (['{"usage": {"completion_tokens": 6}}', "[DONE]"], "6 tokens came, not 7"),
    ],
)
def test_a_stream_that_breaks_off_or_lacks_tokens_is_an_error(
    events: list[str], error: str | None
) -> None:
    good = json.dumps({"usage": {"completion_tokens": 7}})

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        text = "".join(f"data: {event}\n\n" for event in [good, *events])
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + text.encode())
        await writer.drain()
        writer.close()

    async def measured() -> float:
        served = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with served:
            port = served.sockets[0].getsockname()[1]
            return await run(port, Load(2, 3, 7, 400))

    if error is None:
        assert asyncio.run(measured()) > 0
    else:
        with pytest.raises(RuntimeError, match=error):
            asyncio.run(measured())
