"""``quire serve``: keeps an engine and an API worker alive, and ends them in order.

Made to be process 1 of a container: it reaps orphans and imports neither torch nor the web
framework. It opens the listening socket before anything else, so that a port in use is told at
once and a worker's death refuses no connection. Children watch the supervisor and end when it
does, however it ended.

SIGTERM, SIGINT or SIGHUP: the worker drains and stops, then the engine stops, then exit 0. The
same again: everything is killed at once.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from engine.config import EngineConfig
from engine.options import secret_environment, to_argv
from observability.logging import get_logger
from service.banner import banner, ready_line
from service.child_process import child_environment, describe_exit, reap, signal_group, spawn
from service.listener import Address, open_listening_socket
from service.restarts import RestartPolicy
from service.runtime_directory import runtime_directory
from service.settings import ServiceSettings

TICK_SECONDS = 0.2
ENGINE_STOP_SECONDS = 5.0
# Beyond the drain: closing connections, sending the last spans and log lines.
WORKER_STOP_SECONDS = 10.0
_PROBE_TIMEOUT_SECONDS = 0.5
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_log = get_logger()


class _StopNowError(Exception):
    """Whoever stops us has lost patience."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(slots=True, eq=False)
class _Child:
    """A process to keep alive: how it is started, and its latest incarnation."""

    name: str
    module: str
    arguments: list[str]
    environ: dict[str, str]
    inherit: tuple[int, ...] = ()
    policy: RestartPolicy = field(default_factory=RestartPolicy)
    pid: int | None = None
    started: float = 0.0
    restart_at: float | None = None

    def start(self) -> None:
        self.restart_at = None
        self.started = time.monotonic()
        self.pid = spawn(self.module, self.arguments, self.environ, inherit=self.inherit)
        _log.info("started", child=self.name, pid=self.pid)

    def signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            signal_group(self.pid, number)


class Supervisor:
    """``run`` it once, on the main thread. ``model_dir`` holds the tokenizer; ``note`` is shown
    below the banner's first line."""

    def __init__(
        self, engine: EngineConfig, service: ServiceSettings, *, model_dir: Path, note: str = ""
    ) -> None:
        self._engine_config = engine
        self._settings = service
        self._model_dir = model_dir
        self._note = note
        self._model = service.names(model_dir)[0]
        self._signals: list[int] = []
        self._children: list[_Child] = []
        self._stopping = False
        self._failure = ""
        self._was_ready = False  # once in the supervisor's life
        self._loading_since: float | None = None  # None: ready, and said so

    def run(self) -> int:
        """Serve until told to stop (exit status 0), or until a child cannot be kept alive (1)."""
        try:
            listener = open_listening_socket(self._settings.host, self._settings.port)
        except OSError as error:
            where = f"{self._settings.host}:{self._settings.port}"
            print(f"quire: cannot listen on {where}: {error.strerror or error}", file=sys.stderr)
            return 1
        with listener, runtime_directory() as directory, self._signal_pipe() as wakeups:
            address = Address.of(listener)
            worker, engine = self._plan(directory, listener)
            self._children = [worker, engine]
            self._print_banner(address)
            self._loading_since = time.monotonic()
            try:
                for child in self._children:
                    child.start()
                self._keep_alive(address, wakeups)
                # The worker accepts while it drains; after it nobody shall wait in the backlog.
                listener.close()
                self._stop(worker, self._settings.drain_timeout + WORKER_STOP_SECONDS, wakeups)
                self._stop(engine, ENGINE_STOP_SECONDS, wakeups)
            except _StopNowError as second:
                _log.warning("killing everything", signal=signal.Signals(second.number).name)
                return 128 + second.number
            finally:
                self._kill_all()
        if self._failure:
            print(f"quire: {self._failure}", file=sys.stderr, flush=True)
            return 1
        _log.info("stopped")
        return 0

    # --- the children ---------------------------------------------------------------------------

    def _plan(self, directory: Path, listener: socket.socket) -> tuple[_Child, _Child]:
        settings = self._settings
        common = [f"--socket={directory / 'engine.sock'}", f"--parent-pid={os.getpid()}"]
        worker = _Child(
            "worker",
            "service.worker",
            [
                *common,
                f"--model-dir={self._model_dir}",
                f"--listen-fd={listener.fileno()}",
                *to_argv(settings),
            ],
            # Arguments can be read by every user of the machine; the environment cannot.
            child_environment(os.environ, secret_environment(settings)),
            inherit=(listener.fileno(),),
        )
        engine = _Child(
            "engine",
            "engine",
            [
                *common,
                f"--log-format={settings.log_format}",
                f"--log-level={settings.log_level}",
                *to_argv(self._engine_config),
            ],
            child_environment(os.environ),
        )
        return worker, engine

    def _keep_alive(self, address: Address, wakeups: int) -> None:
        """Until a stop signal comes or a child cannot be kept alive."""
        while not (self._stopping or self._failure):
            pending = self._loading_since is not None or any(
                child.restart_at is not None for child in self._children
            )
            self._wait(wakeups, TICK_SECONDS if pending else None)
            now = time.monotonic()
            for child in self._children:
                if child.restart_at is not None and child.restart_at <= now:
                    child.start()
            all_run = all(child.pid is not None for child in self._children)
            if self._loading_since is not None and all_run and _is_ready(address):
                print(ready_line(self._model, now - self._loading_since), flush=True)
                self._loading_since = None
                self._was_ready = True

    def _wait(self, wakeups: int, timeout: float | None) -> None:
        """Sleep until a signal or ``timeout``, then take in signals and deaths."""
        if select.select([wakeups], [], [], timeout)[0]:
            os.read(wakeups, 4096)
        while self._signals:
            number = self._signals.pop(0)
            if number == signal.SIGCHLD:
                continue
            if self._stopping:
                raise _StopNowError(number)
            _log.info("stopping", signal=signal.Signals(number).name)
            self._stopping = True
        for pid, code in reap():
            for child in self._children:
                if child.pid == pid:
                    self._on_death(child, code)

    def _on_death(self, child: _Child, code: int) -> None:
        child.pid = None
        lived = time.monotonic() - child.started
        if self._stopping or self._failure:
            _log.info("ended", child=child.name, exit=describe_exit(code))
            return
        _log.error(
            "died", child=child.name, exit=describe_exit(code), lived_seconds=round(lived, 1)
        )
        if not self._was_ready and code > 0:
            # It looked at what it was given and gave up: it would do so again.
            self._failure = (
                f"the {child.name} could not start ({describe_exit(code)}); the log says why"
            )
            return
        delay = child.policy.delay_after(lived)
        if delay is None:
            self._failure = (
                f"the {child.name} died {child.policy.quick_deaths} times in quick succession, "
                f"last with {describe_exit(code)}; the log says why"
            )
            return
        _log.info("restarting", child=child.name, delay_seconds=delay)
        child.restart_at = time.monotonic() + delay
        self._loading_since = self._loading_since or time.monotonic()

    def _stop(self, child: _Child, timeout: float, wakeups: int) -> None:
        """SIGTERM, and SIGKILL for what still runs ``timeout`` seconds later."""
        deadline = time.monotonic() + timeout
        child.restart_at = None
        child.signal(signal.SIGTERM)
        while child.pid is not None and (left := deadline - time.monotonic()) > 0:
            self._wait(wakeups, left)
        if child.pid is not None:
            _log.warning("did not stop in time", child=child.name, timeout_seconds=timeout)
            child.signal(signal.SIGKILL)

    def _kill_all(self) -> None:
        for child in self._children:
            child.signal(signal.SIGKILL)
            if child.pid is not None:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child.pid, 0)
                child.pid = None

    # --- rim ------------------------------------------------------------------------------------

    def _print_banner(self, address: Address) -> None:
        text = banner(
            address,
            model=self._model,
            path=self._engine_config.model,
            needs_key=bool(self._settings.keys),
            note=self._note,
            grpc_port=self._settings.grpc_port,
        )
        print(text, flush=True)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._signals.append(number)

    @contextlib.contextmanager
    def _signal_pipe(self) -> Iterator[int]:
        """A descriptor that becomes readable with each signal; handlers are put back at the end."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        numbers = (*_STOP_SIGNALS, signal.SIGCHLD)
        handlers = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            yield reader
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before)
            os.close(reader)
            os.close(writer)


def _is_ready(address: Address) -> bool:
    connection = http.client.HTTPConnection(
        address.local_host, address.port, timeout=_PROBE_TIMEOUT_SECONDS
    )
    try:
        connection.request("GET", "/health/ready")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
