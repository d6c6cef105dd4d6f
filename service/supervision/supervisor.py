"""``quire serve``: keeps engines and API workers alive, and stops them in order.

It can be process 1 of a container: it reaps orphans and imports neither torch nor the web
framework. It opens the listening socket before anything else, so that a port in use is reported at
once and connections are not refused while a worker restarts. Children watch the supervisor and end
when it does, for whatever reason.

A child that dies is always restarted; if restarts do not help, liveness fails, so that an
orchestrator restarts the whole container. A child that hangs is killed. Children report progress in
pages of shared memory, see ``engine.beats``.

SIGTERM, SIGINT or SIGHUP (unless it was ignored from the start, as by nohup): all workers drain and
stop, then the engines stop, then exit 0. After a second signal, everything is killed at once.

Printing and logging cannot end or block the supervisor, because threads do the writing.
"""

from __future__ import annotations

import contextlib
import http.client
import math
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from engine.addresses import address_text
from engine.config import EngineConfig
from engine.gguf.names import gguf_of
from engine.options import OptionError
from observability.logging import LineWriter, get_logger, line_writer
from observability.terminal import for_terminal
from service.hub.place import ModelPlace
from service.settings import ServiceSettings
from service.supervision.banner import banner, ready_line
from service.supervision.child import Child
from service.supervision.child_process import (
    await_end,
    describe_exit,
    ignores_hangup,
    reap,
)
from service.supervision.download import FAILED as DOWNLOAD_FAILED
from service.supervision.listener import (
    ServerAddress,
    hold_port,
    open_admin_socket,
    open_listening_socket,
)
from service.supervision.page import SupervisorPage
from service.supervision.plan import Plan, plan
from service.supervision.runtime_directory import RuntimeDirectoryError, runtime_directory

_TICK_SECONDS = 0.2
_LONGEST_TICK_SECONDS = 1.0
KILLED_WAIT_SECONDS = 5.0
ENGINE_STOP_SECONDS = 5.0
# Beyond the drain: closing connections, sending the last spans and log lines.
WORKER_STOP_SECONDS = 10.0
_PROBE_TIMEOUT_SECONDS = 0.5

_log = get_logger()


class _CannotListenError(OSError):
    """A port is taken, or an address is not this machine's."""


@contextlib.contextmanager
def _listening_on(host: str, port: int | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = host if port is None else address_text(host, port)
        raise _CannotListenError(f"cannot listen on {where}: {error.strerror or error}") from error


class _StopNowError(Exception):
    """A second stop signal arrived while stopping."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Supervisor:
    """Call ``run`` once, on the main thread. ``model_dir`` holds the tokenizer; ``note`` is shown
    below the banner's first line, ``making_keys`` before its requests; ``weights``: where those
    belong that are downloaded before the engines start; ``stderr``: the writer of the log, so that
    a failure comes after its lines."""

    def __init__(
        self,
        engine: EngineConfig,
        service: ServiceSettings,
        *,
        model_dir: Path,
        note: str = "",
        making_keys: str = "",
        weights: ModelPlace | None = None,
        stderr: LineWriter,
    ) -> None:
        self._engine_config = engine
        self._settings = service
        self._model_dir = model_dir
        self._note = note
        self._making_keys = making_keys
        self._weights = weights
        self._model = service.names(model_dir)[0]
        self._signals: list[int] = []
        self._children: list[Child] = []
        self._page = SupervisorPage()  # read by workers
        self._parts = Plan([], [], self._page)
        self._stopping = False
        self._failure = ""
        self._was_ready = False  # at least once
        self._loading_since: float | None = None  # None: ready, and reported as such
        self._stdout = line_writer(sys.stdout)
        self._stderr = stderr
        limits = filter(None, (service.worker_hang_timeout, service.engine_hang_timeout))
        self._tick = min(_LONGEST_TICK_SECONDS, *(limit / 8 for limit in limits), math.inf)

    def run(self) -> int:
        """Serve until a stop signal (exit status 0), or until a child fails at its first start
        (1)."""
        try:
            return self._run()
        except RuntimeDirectoryError as error:
            self._stderr.write(f"quire: {error}")
            return 1
        finally:
            self._stdout.close()

    def _run(self) -> int:
        with contextlib.ExitStack() as stack:
            try:
                listeners = [stack.enter_context(one) for one in self._listeners()]
                grpc = self._grpc_port(stack)
            except _CannotListenError as error:
                self._stderr.write(f"quire: {error}")
                return 1
            directory = stack.enter_context(runtime_directory())
            try:
                parts = self._plan(directory, listeners, grpc)
            except OptionError as error:
                self._stderr.write(f"quire: {error}")
                return 1
            except OSError as error:
                self._stderr.write(
                    f"quire: cannot write to {directory}: {error.strerror or error}; free some "
                    "space, or set XDG_RUNTIME_DIR or TMPDIR to another directory"
                )
                return 1
            wakeups = stack.enter_context(self._signal_pipe())
            return self._serve(parts, listeners, wakeups)

    def _listeners(self) -> Iterator[socket.socket]:
        """Yield the public socket, then the admin API's, if there is one. Raises
        _CannotListenError."""
        settings = self._settings
        with _listening_on(settings.host, settings.port):
            listener = open_listening_socket(settings.host, settings.port)
        yield listener
        if settings.admin:
            public_port = ServerAddress.of(listener).port
            with _listening_on(settings.admin_host, settings.admin_port):
                admin = open_admin_socket(
                    settings.admin_host, settings.admin_port, public_port=public_port
                )
            yield admin

    def _grpc_port(self, stack: contextlib.ExitStack) -> int | None:
        """Return the port of gRPC, which workers open; None for no gRPC. Raises
        _CannotListenError."""
        settings = self._settings
        if settings.grpc_port is None:
            return None
        with _listening_on(settings.host, settings.grpc_port):
            if settings.grpc_port:
                open_listening_socket(settings.host, settings.grpc_port).close()
            if settings.api_workers == 1:
                return settings.grpc_port
            held = stack.enter_context(hold_port(settings.host, settings.grpc_port))
            return ServerAddress.of(held).port

    def _serve(self, parts: Plan, listeners: list[socket.socket], wakeups: int) -> int:
        address = ServerAddress.of(listeners[0])
        admin = ServerAddress.of(listeners[1]) if self._settings.admin else None
        self._children, self._page, self._parts = parts.children, parts.page, parts
        self._print_banner(address, admin)
        self._loading_since = time.monotonic()
        try:
            self._start_first(parts.first)
            self._keep_alive(parts, address, wakeups)
            # Workers accept connections while they drain; after that none may wait in the
            # backlog.
            for listener in listeners:
                listener.close()
            draining = self._settings.drain_delay + self._settings.drain_timeout
            self._stop(parts.workers, draining + WORKER_STOP_SECONDS, wakeups)
            others = [child for child in self._children if child not in parts.workers]
            self._stop(others, ENGINE_STOP_SECONDS, wakeups)
        except _StopNowError as second:
            _log.warning("killing everything", signal=signal.Signals(second.number).name)
            return 128 + second.number
        finally:
            self._kill_all()
        if self._failure:
            self._stderr.write(f"quire: {for_terminal(self._failure)}")
            return 1
        _log.info("stopped")
        return 0

    # --- the children ---------------------------------------------------------------------------

    def _plan(
        self, directory: Path, listeners: Sequence[socket.socket], grpc_port: int | None
    ) -> Plan:
        return plan(
            self._engine_config,
            self._settings,
            model_dir=self._model_dir,
            directory=directory,
            listeners=listeners,
            grpc_port=grpc_port,
            tick=self._tick,
            weights=self._weights,
        )

    def _start_first(self, children: Sequence[Child]) -> None:
        for child in children:
            try:
                child.start()
            except OSError as error:
                self._failure = f"the {child.name} could not start: {error.strerror or error}"
                return

    def _restart(self, child: Child) -> None:
        """Start a child while the server runs; end the server if none may start any more."""
        if obstacle := self._parts.obstacle():
            self._failure = obstacle
            _log.error(
                "the server ends: no process may start again", child=child.name, reason=obstacle
            )
        else:
            child.restart()

    def _keep_alive(self, parts: Plan, address: ServerAddress, wakeups: int) -> None:
        """Run until a stop signal arrives or a child fails at its first start."""
        while not (self._stopping or self._failure):
            pending = self._loading_since is not None or any(
                child.restart_at is not None for child in self._children
            )
            self._wait(wakeups, min(_TICK_SECONDS, self._tick) if pending else self._tick)
            now = time.monotonic()
            for child in self._children:
                if child.restart_at is not None and child.restart_at <= now:
                    self._restart(child)
                child.kill_if_it_hangs(now)
            parts.inform_workers(now)
            all_run = all(child.is_ready for child in self._children)
            if self._loading_since is not None and all_run and _is_ready(address):
                self._stdout.write(ready_line(self._model, now - self._loading_since))
                self._loading_since = None
                self._was_ready = True

    def _wait(self, wakeups: int, timeout: float) -> None:
        """Sleep until a signal or ``timeout``, then handle signals and deaths."""
        if select.select([wakeups], [], [], timeout)[0]:
            os.read(wakeups, 4096)
        self._page.beat(time.monotonic())
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

    def _on_death(self, child: Child, code: int) -> None:
        child.pid = None
        lived = time.monotonic() - child.started
        if self._stopping or self._failure:
            _log.info("ended", child=child.name, exit=describe_exit(code))
            return
        if child is self._parts.download and code >= 0:
            self._end_download(code)
            return
        _log.error(
            "died", child=child.name, exit=describe_exit(code), lived_seconds=round(lived, 1)
        )
        if not self._was_ready and code > 0:
            # It rejected its settings or its model, and would do so again.
            why = child.failure()
            why = f": {why}" if why else f" ({describe_exit(code)}); see the log"
            self._failure = f"the {child.name} could not start{why}"
            return
        child.restart_later(progress=child.made_progress)
        self._loading_since = self._loading_since or time.monotonic()

    def _end_download(self, code: int) -> None:
        if code > 0:
            self._failure = DOWNLOAD_FAILED
            return
        _log.info("downloaded", model=self._model)
        for engine in self._parts.end_download():
            self._restart(engine)
        self._children = self._parts.children

    def _stop(self, children: Sequence[Child], timeout: float, wakeups: int) -> None:
        """Send SIGTERM to all, and SIGKILL to those that still run after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        for child in children:
            child.restart_at = None
            child.signal(signal.SIGTERM)
        while any(child.pid is not None for child in children):
            if (left := deadline - time.monotonic()) <= 0:
                break
            self._wait(wakeups, min(left, self._tick))
        for child in children:
            if child.pid is not None:
                _log.warning("did not stop in time", child=child.name, timeout_seconds=timeout)
                child.signal(signal.SIGKILL)

    def _kill_all(self) -> None:
        for child in self._children:
            child.signal(signal.SIGKILL)
        pids = [child.pid for child in self._children if child.pid is not None]
        for pid in await_end(pids, KILLED_WAIT_SECONDS):
            _log.error("does not end after SIGKILL, leaving it behind", pid=pid)
        for child in self._children:
            child.pid = None

    # --- terminal, signals ----------------------------------------------------------------------

    def _print_banner(self, address: ServerAddress, admin: ServerAddress | None) -> None:
        text = banner(
            address,
            model=self._model,
            path=str(gguf_of(Path(self._engine_config.model)) or self._engine_config.model),
            needs_key=self._settings.needs_key,
            making_keys=self._making_keys,
            note=self._note,
            grpc_port=self._settings.grpc_port,
            admin=admin,
        )
        self._stdout.write(text)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._signals.append(number)

    @contextlib.contextmanager
    def _signal_pipe(self) -> Iterator[int]:
        """Yield a descriptor that becomes readable with each signal; restore the handlers at the
        end."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        stop_signals = [signal.SIGTERM, signal.SIGINT]
        if not ignores_hangup():
            stop_signals.append(signal.SIGHUP)
        numbers = (*stop_signals, signal.SIGCHLD)
        handlers = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            yield reader
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before)
            os.close(reader)
            os.close(writer)


def _is_ready(address: ServerAddress) -> bool:
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
