"""Log lines: one JSON object per line on stderr (or readable text on a terminal).

structlog's and the standard library's loggers share one processor chain. A thread writes the lines
from a bounded queue: a stalled log reader costs lines (which are counted), but never delays a
request. Content (prompts, outputs, keys) is never passed to a logger; long values are truncated in
any case.
"""

from __future__ import annotations

import atexit
import io
import logging
import os
import queue
import re
import sys
import threading
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, BinaryIO, Literal, Protocol, TextIO

import msgspec

from observability.hidden_packages import hidden_packages
from observability.repeats import OncePerMinute
from observability.schema import REQUEST_LOG_EVENT, REQUEST_LOG_FIELDS
from observability.terminal import for_terminal

with hidden_packages("rich"):  # for coloured tracebacks; Quire's are plain
    import structlog

get_logger = structlog.get_logger
"""Import it from here: importing structlog before this module would load rich."""

LogFormat = Literal["auto", "json", "console"]

MAX_QUEUED_LINES = 10_000
MAX_VALUE_CHARS = 8_192
_CLIENT_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
_FIRST_KEYS = ("ts", "level", "process", "event")
_EMPTY_REQUEST: dict[str, Any] = dict.fromkeys(field.name for field in REQUEST_LOG_FIELDS)
_encode = msgspec.json.Encoder(enc_hook=repr).encode
# Of this process, if its lines are JSON.
_json_lines: LineWriter | None = None

# Libraries that log every connection or request (ours is the request log line), every plug-in that
# they load, or statistics as they end; or every SQL statement with its values, which must not be
# logged.
_QUIET_LOGGERS = (
    *("_granian", "granian.access", "httpx", "httpcore", "urllib3", "asyncio"),
    *("alembic.runtime.plugins", "aiosqlite", "torch._subclasses.fake_tensor"),
)
# Logs exporter headers that it cannot parse, including the credentials in them.
_QUOTING_LOGGER = "opentelemetry.util.re"
# While the endpoint is away, they complain of each attempt: 43 lines a minute.
_REPEATING_LOGGERS = ("opentelemetry.exporter", "opentelemetry.sdk")


class LineStream(Protocol):
    """Where lines are written, unbuffered."""

    def write(self, data: Any, /) -> int | None:
        """Return how many bytes were written."""

    def flush(self) -> object: ...


class LineWriter:
    """Writes lines to a stream from its own thread; drops and counts lines while 10,000 wait."""

    def __init__(self, stream: LineStream) -> None:
        self._stream = stream
        self._queue: queue.Queue[bytes | None] = queue.Queue(MAX_QUEUED_LINES)
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def write(self, line: str | bytes) -> None:
        data = line if isinstance(line, bytes) else line.encode(errors="replace")
        try:
            self._queue.put_nowait(data + b"\n")
        except queue.Full:
            self.dropped += 1

    # structlog calls the method of its wrapped logger that is named after the level.
    debug = info = warning = error = critical = exception = msg = log = write

    def close(self, timeout_seconds: float = 1.0) -> None:
        """Write what is queued, for at most ``timeout_seconds``."""
        try:
            self._queue.put(None, timeout=timeout_seconds)
        except queue.Full:
            return
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while (line := self._queue.get()) is not None:
            try:
                self._write_all(line)
                if self._queue.empty():
                    self._stream.flush()
            except (OSError, ValueError):  # the reader is gone, or the stream was closed
                self.dropped += 1

    def _write_all(self, line: bytes) -> None:
        """An unbuffered stream may write only a part. Raises BlockingIOError if it writes
        nothing."""
        rest = memoryview(line)
        while rest:
            written = self._stream.write(rest)
            if written is None:
                raise BlockingIOError
            rest = rest[written:]


def line_writer(stream: TextIO | None) -> LineWriter:
    """Return a writer for one of this process's standard streams; for None or a closed stream it
    discards the lines.

    It shares no buffer or lock with the stream object: the interpreter flushes that at exit, and
    would wait forever for a thread that a stalled reader blocks.
    """
    return LineWriter(_unbuffered(stream))


def _unbuffered(stream: TextIO | None) -> BinaryIO:
    try:
        descriptor = -1 if stream is None else stream.fileno()
        os.fstat(descriptor)
    except (OSError, ValueError):
        return open(os.devnull, "wb", buffering=0)
    return open(descriptor, "wb", buffering=0, closefd=False)


class _StdlibHandler(logging.Handler):
    def __init__(self, writer: LineWriter) -> None:
        super().__init__()
        self._writer = writer
        self.addFilter(OncePerMinute(*_REPEATING_LOGGERS))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._writer.write(self.format(record))
        except Exception as error:  # a log call must not raise into its caller
            # Not ``handleError``: it prints the arguments, and blocks while stderr is not read.
            self._writer.dropped += 1
            get_logger().error(
                "failed to format a log line",
                of=record.name,
                place=f"{record.filename}:{record.lineno}",
                error=type(error).__name__,
            )


def _cut_long_values(
    logger: Any, name: str, event_dict: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    for key, value in event_dict.items():
        if isinstance(value, str) and len(value) > MAX_VALUE_CHARS:
            # The end of a traceback is more useful than its beginning.
            event_dict[key] = "…" + value[-MAX_VALUE_CHARS:]
    return event_dict


def _without_escapes(
    logger: Any, name: str, event_dict: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """The console renderer writes an event, and a value without spaces, as it is."""
    for key, value in event_dict.items():
        if isinstance(value, str):
            event_dict[key] = for_terminal(value)
    event_dict["event"] = str(event_dict.get("event", "")).replace("\n", "\u240a")
    return event_dict


def _write_traceback(stream: TextIO, exc_info: Any) -> None:
    text = io.StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    stream.write(for_terminal(text.getvalue()))


def _to_json(event_dict: Mapping[str, Any], **_: Any) -> str:
    first = {name: event_dict[name] for name in _FIRST_KEYS if name in event_dict}
    return _encode({**first, **event_dict}).decode()


def _without_the_header(record: logging.LogRecord) -> bool:
    record.msg, record.args = "a header in OTEL_EXPORTER_OTLP_*HEADERS is not NAME=VALUE", ()
    return True


def configure(
    *,
    log_format: LogFormat = "auto",
    level: str = "info",
    process: str = "",
    stream: BinaryIO | None = None,
) -> LineWriter:
    """Route structlog and the standard library's loggers to ``stream`` (default: stderr).

    ``auto`` is console text on a terminal and JSON elsewhere. ``process`` names this process in
    every line except the request's. May be called again to replace the configuration.
    """
    target = stream or _unbuffered(sys.stderr)
    on_terminal = target.isatty() if hasattr(target, "isatty") else False
    console = log_format == "console" or (log_format == "auto" and on_terminal)
    writer = LineWriter(target)
    global _json_lines
    _json_lines = None if console else writer
    atexit.register(writer.close)

    def name_process(
        logger: Any, name: str, event_dict: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        if process and event_dict.get("event") != REQUEST_LOG_EVENT:
            event_dict["process"] = process
        return event_dict

    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=on_terminal, exception_formatter=_write_traceback)
        if console
        else structlog.processors.JSONRenderer(serializer=_to_json)
    )
    chain: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        name_process,
    ]
    if console:  # its renderer formats exceptions itself
        chain.append(_without_escapes)
    else:
        chain += [structlog.processors.format_exc_info, _cut_long_values]
    structlog.configure(
        processors=[*chain, renderer],
        logger_factory=lambda *_: writer,
        cache_logger_on_first_use=False,
    )
    handler = _StdlibHandler(writer)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *chain],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    set_level(level)
    logging.getLogger(_QUOTING_LOGGER).addFilter(_without_the_header)
    return writer


def set_level(level: str) -> None:
    """Change the lowest severity that is logged, at once and for all loggers. Raises KeyError for
    an unknown one."""
    threshold = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(threshold))
    logging.getLogger().setLevel(threshold)
    for name in _QUIET_LOGGERS:
        logging.getLogger(name).setLevel(max(threshold, logging.WARNING))


def sound_client_request_id(value: str | None) -> str | None:
    """Return a caller's request id if it is short and plain enough to be logged, else None."""
    return value if value and _CLIENT_ID.fullmatch(value) else None


def printable(text: str | None, most: int = 128) -> str | None:
    """``text`` cut to ``most`` characters, with a question mark for each that is not printable
    ASCII, so that it can neither forge a line nor fill a log. None for nothing."""
    return re.sub(r"[^ -~]", "?", text[:most]) if text else None


def logs_requests(*, failed: bool = False) -> bool:
    """Return whether ``log_request`` writes anything at the current log level."""
    return logging.getLogger().isEnabledFor(_level_of_request(failed=failed))


def _level_of_request(*, failed: bool) -> int:
    return logging.ERROR if failed else logging.INFO


def log_request(values: Mapping[str, Any], *, failed: bool = False) -> None:
    """Write the log line of one request: exactly the declared fields, None if unknown.

    Raises KeyError if ``values`` has a field that ``REQUEST_LOG_FIELDS`` does not declare.
    """
    line = {**_EMPTY_REQUEST, **values}
    if len(line) != len(_EMPTY_REQUEST):
        raise KeyError(f"not declared: {sorted(line.keys() - _EMPTY_REQUEST.keys())}")
    level = _level_of_request(failed=failed)
    if not logging.getLogger().isEnabledFor(level):
        return
    # structlog's processors would take three times as long for the same text.
    if _json_lines is not None and len(text := _request_text(line, level)) <= MAX_VALUE_CHARS:
        _json_lines.write(text)
    else:
        structlog.get_logger().log(level, REQUEST_LOG_EVENT, **line)


def _request_text(line: dict[str, Any], level: int) -> bytes:
    moment = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    name = "error" if level == logging.ERROR else "info"
    first = {"ts": moment, "level": name, "event": REQUEST_LOG_EVENT}
    return _encode(first | line)
