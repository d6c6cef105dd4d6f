"""Log lines: one JSON object each, no content, and never a reason to wait."""

from __future__ import annotations

import io
import json
import logging as stdlib_logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import structlog
from opentelemetry.util.re import parse_env_headers

from observability import logging, schema
from observability.logging import (
    LineWriter,
    configure,
    log_request,
    set_level,
    sound_client_request_id,
)


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = stdlib_logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


class Lines(io.BytesIO):
    def read_all(self, writer: LineWriter) -> list[dict[str, Any]]:
        writer.close()
        return [json.loads(line) for line in self.getvalue().splitlines()]


def test_the_request_line_holds_exactly_the_catalogues_fields() -> None:
    stream = Lines()
    writer = configure(log_format="json", process="api", stream=stream)
    log_request({"request_id": "req_1", "status": 200})
    (line,) = stream.read_all(writer)
    declared = {field.name for field in schema.REQUEST_LOG_FIELDS}
    assert set(line) == declared | {"ts", "level", "event"}
    assert line["event"] == schema.REQUEST_LOG_EVENT
    assert (line["request_id"], line["status"], line["model"]) == ("req_1", 200, None)


def test_a_field_that_the_catalogue_does_not_declare_is_refused() -> None:
    with pytest.raises(KeyError, match="prompt_text"):
        log_request({"prompt_text": "secret"})


def test_standard_loggers_and_structlog_write_the_same_shape() -> None:
    stream = Lines()
    writer = configure(log_format="json", process="api", stream=stream)
    structlog.get_logger().warning("from structlog", answer=42)
    stdlib_logging.getLogger("some.library").warning("from %s", "the library")
    ours, theirs = stream.read_all(writer)
    assert (ours["event"], ours["answer"], ours["process"]) == ("from structlog", 42, "api")
    assert (theirs["event"], theirs["process"]) == ("from the library", "api")
    assert theirs["logger"] == "some.library"
    assert ours["level"] == theirs["level"] == "warning"
    assert ours["ts"] <= theirs["ts"]


def test_a_line_that_cannot_be_formatted_is_counted_and_says_where_it_comes_from(
    capfd: pytest.CaptureFixture[str],
) -> None:
    stream = Lines()
    writer = configure(log_format="json", stream=stream)
    stdlib_logging.getLogger("some.library").warning("%d tokens", "canary")
    stdlib_logging.getLogger("some.library").warning("the next one")
    bad, following = stream.read_all(writer)
    assert bad["event"] == "failed to format a log line"
    assert (bad["level"], bad["of"], bad["error"]) == ("error", "some.library", "TypeError")
    assert bad["place"].startswith("test_logging.py:")
    assert following["event"] == "the next one"
    assert writer.dropped == 1
    # The standard library would write to stderr itself, where a stalled reader blocks it.
    assert capfd.readouterr() == ("", "")
    assert b"canary" not in stream.getvalue()


def test_lines_below_the_level_and_chatty_libraries_are_silent() -> None:
    stream = Lines()
    writer = configure(log_format="json", level="info", stream=stream)
    structlog.get_logger().debug("too detailed")
    stdlib_logging.getLogger("_granian.asgi.io").info("a line per connection")
    assert stream.read_all(writer) == []


def test_an_exporters_header_that_cannot_be_read_is_not_quoted() -> None:
    stream = Lines()
    writer = configure(log_format="json", stream=stream)
    parse_env_headers("authorization Bearer canary", liberal=True)
    parse_env_headers("authorization: Bearer canary")
    lines = stream.read_all(writer)
    assert [line["level"] for line in lines] == ["warning", "warning"]
    assert b"OTEL_EXPORTER_OTLP_" in stream.getvalue()
    assert b"canary" not in stream.getvalue()


def test_exceptions_are_logged_without_the_values_of_local_variables() -> None:
    stream = Lines()
    writer = configure(log_format="json", stream=stream)
    canary = "zanzibar" + "canary"
    try:
        int("x" if canary else "")
    except ValueError:
        structlog.get_logger().exception("it failed")
    (line,) = stream.read_all(writer)
    assert "ValueError" in line["exception"]
    assert canary not in json.dumps(line)


def test_a_terminal_gets_no_escapes_from_values_events_or_exceptions() -> None:
    stream = Lines()
    writer = configure(log_format="console", stream=stream)
    said = "\x1b]0;title\x07\x9b2J"
    structlog.get_logger().warning(f"of {said}", name=said)
    stdlib_logging.getLogger("some.library").warning("of %s", said)
    try:
        raise ValueError(said)
    except ValueError:
        structlog.get_logger().exception("it failed")
    writer.close()
    text = stream.getvalue().decode()
    assert text.count("\u241b]0;title\u2407<009B>2J") == 4
    assert not {"\x1b", "\x07", "\x9b"} & set(text)


def test_long_values_are_cut() -> None:
    stream = Lines()
    writer = configure(log_format="json", stream=stream)
    structlog.get_logger().info("long", value="a" * 100_000 + "end")
    (line,) = stream.read_all(writer)
    assert len(line["value"]) == logging.MAX_VALUE_CHARS + 1
    assert line["value"].endswith("end")


def test_a_reader_that_stalls_costs_lines_and_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "MAX_QUEUED_LINES", 50)
    reader, descriptor = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        writer = LineWriter(os.fdopen(descriptor, "wb", buffering=0))
        begin = time.monotonic()
        for _ in range(500):
            writer.write("x" * 4096)  # 2 MB: a pipe holds 64 KiB
        assert time.monotonic() - begin < 20
        assert 500 - 50 - 17 <= writer.dropped < 500
        with suppress(BlockingIOError):
            os.set_blocking(pipe.fileno(), False)
            while pipe.read(1 << 20):
                pass


def test_a_reader_that_is_gone_raises_nothing() -> None:
    reader, descriptor = os.pipe()
    os.close(reader)
    writer = LineWriter(os.fdopen(descriptor, "wb", buffering=0))
    writer.write("nobody reads this")
    writer.close()
    assert writer.dropped == 1


def test_a_terminal_gets_text_and_a_file_gets_json() -> None:
    controller, terminal = os.openpty()
    writer = configure(log_format="auto", stream=os.fdopen(terminal, "wb", buffering=0))
    structlog.get_logger().info("hello", answer=42)
    writer.close()
    shown = os.read(controller, 4096).decode()
    os.close(controller)
    assert "hello" in shown
    with pytest.raises(json.JSONDecodeError):
        json.loads(shown)


@pytest.mark.parametrize("value", ["a", "req-1_2.3:4/5+6=7@8", "f" * 128])
def test_plain_client_ids_are_kept(value: str) -> None:
    assert sound_client_request_id(value) == value


@pytest.mark.parametrize(
    "value", [None, "", "a" * 129, "with space", "new\nline", "nul\0", "ünïcode", '{"json":1}']
)
def test_other_client_ids_are_dropped(value: str | None) -> None:
    assert sound_client_request_id(value) is None


def test_the_level_changes_for_all_loggers_at_once() -> None:
    stream = Lines()
    writer = configure(log_format="json", level="warning", stream=stream)
    ours, theirs = structlog.get_logger(), stdlib_logging.getLogger("somebody")
    for level in ("warning", "debug", "error"):
        set_level(level)
        for name in ("debug", "info", "warning", "error"):
            getattr(ours, name)(f"{level} {name}")
            getattr(theirs, name)(f"{level} {name} theirs")
        stdlib_logging.getLogger("httpx").info("quiet")
    said = [line["event"] for line in stream.read_all(writer)]
    expected = {"warning": 2, "debug": 4, "error": 1}
    names = ("debug", "info", "warning", "error")
    assert said == [
        text
        for level, count in expected.items()
        for name in names[-count:]
        for text in (f"{level} {name}", f"{level} {name} theirs")
    ]


STOPPED_WHILE_IMPORTING_TORCH = """
import sys
from observability.logging import configure

class Stop:
    def find_spec(self, name, *_):
        if name == "torch._subclasses.fake_utils":
            print("stopped")
            sys.exit(0)

configure(log_format="json")
sys.meta_path.insert(0, Stop())
import torch
"""


def test_torch_s_statistics_at_its_end_are_not_logged() -> None:
    """Once it is imported as a whole, it sets its loggers' level itself."""
    command = [sys.executable, "-c", STOPPED_WHILE_IMPORTING_TORCH]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("stopped\n", "")


def test_an_unknown_level_is_an_error() -> None:
    with pytest.raises(KeyError):
        set_level("loud")
