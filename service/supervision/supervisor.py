"""``quire serve``: keeps an engine and an API worker alive, and stops them in order.

It can be process 1 of a container: it reaps orphans and imports neither torch nor the web
framework. It opens the listening socket before anything else, so that a port in use is reported at
once and connections are not refused while a worker restarts. Children watch the supervisor and end
when it does, for whatever reason.

A child that dies is always restarted; if restarts do not help, liveness fails, so that an
orchestrator restarts the whole container. A child that hangs is killed. Children report progress in
pages of shared memory, see ``engine.beats``.

SIGTERM, SIGINT or SIGHUP (unless it was ignored from the start, as by nohup): the worker drains and
stops, then the engine stops, then exit 0. After a second signal, everything is killed at once.

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from engine.beats import Page, Sign
from engine.config import EngineConfig
from engine.options import secret_environment, to_argv
from observability.logging import get_logger, line_writer
from service.settings import ServiceSettings
from service.supervision.banner import banner, ready_line
from service.supervision.child_process import (
    await_end,
    child_environment,
    describe_exit,
    ignores_hangup,
    main_thread_ticks,
    reap,
    signal_group,
    spawn,
)
from service.supervision.faults import fault_arguments
from service.supervision.hang_watch import Silence, engine_hangs, worker_hangs
from service.supervision.kept_memory import kept_memory
from service.supervision.listener import (
    ServerAddress,
    open_admin_socket,
    open_listening_socket,
)
from service.supervision.restarts import FAILING_DEATHS, HEALTHY_SECONDS, RestartPolicy
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
        where = host if port is None else f"{host}:{port}"
        raise _CannotListenError(f"cannot listen on {where}: {error.strerror or error}") from error


class _StopNowError(Exception):
    """A second stop signal arrived while stopping."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(slots=True, eq=False)
class _Child:
    """A process to keep alive: how to start it, and the state of the running process."""

    name: str
    module: str
    arguments: list[str]
    environ: dict[str, str]
    page: Page
    silence: Silence  # without beats
    inactivity: Silence  # of its main thread
    hangs: Callable[[Page, float, float], bool]  # called with the seconds of both
    inherit: tuple[int, ...] = ()
    policy: RestartPolicy = field(default_factory=RestartPolicy)
    pid: int | None = None
    started: float = 0.0
    restart_at: float | None = None
    is_condemned: bool = False  # killed because it hung

    def start(self) -> None:
        self.restart_at = None
        self.is_condemned = False
        self.page.clear()
        self.silence.forget()
        self.inactivity.forget()
        self.started = time.monotonic()
        self.pid = spawn(self.module, self.arguments, self.environ, inherit=self.inherit)
        _log.info("started", child=self.name, pid=self.pid)

    def signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            signal_group(self.pid, number)

    def kill_if_it_hangs(self, now: float) -> None:
        if self.pid is None or self.is_condemned:
            return
        beats = self.page[Sign.BEATS]
        silent = self.silence.observe(beats, now)
        ticks = main_thread_ticks(self.pid)
        inactive = self.inactivity.observe((beats, ticks), now)
        if not self.hangs(self.page, silent, 0.0 if ticks is None else inactive):
            return
        self.is_condemned = True
        _log.error(
            "is unresponsive, killing it",
            child=self.name,
            pid=self.pid,
            silent_seconds=round(silent, 1),
            is_starting=not self.page[Sign.READY_AT],
        )
        self.signal(signal.SIGKILL)

    @property
    def made_progress(self) -> bool:
        """True if it made progress since it started, or has been ready for a while and may be
        idle."""
        ready_at = self.page[Sign.READY_AT]
        is_healthy = ready_at > 0 and time.monotonic() - ready_at >= HEALTHY_SECONDS
        return self.page[Sign.PROGRESS] > 0 or is_healthy


class Supervisor:
    """Call ``run`` once, on the main thread. ``model_dir`` holds the tokenizer; ``note`` is shown
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
        self._was_ready = False  # at least once
        self._loading_since: float | None = None  # None: ready, and reported as such
        self._stdout = line_writer(sys.stdout)
        self._stderr = line_writer(sys.stderr)
        self._page = Page()  # read by workers
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
            self._stderr.close()

    def _run(self) -> int:
        with contextlib.ExitStack() as stack:
            try:
                listeners = [stack.enter_context(one) for one in self._listeners()]
            except _CannotListenError as error:
                self._stderr.write(f"quire: {error}")
                return 1
            directory = stack.enter_context(runtime_directory())
            return self._serve(listeners, directory, stack.enter_context(self._signal_pipe()))

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

    def _serve(self, listeners: list[socket.socket], directory: Path, wakeups: int) -> int:
        address = ServerAddress.of(listeners[0])
        admin = ServerAddress.of(listeners[1]) if self._settings.admin else None
        try:
            worker, engine = self._plan(directory, listeners)
        except OSError as error:
            self._stderr.write(f"quire: cannot write to {directory}: {error.strerror or error}")
            return 1
        self._children = [worker, engine]
        self._print_banner(address, admin)
        self._loading_since = time.monotonic()
        try:
            for child in self._children:
                child.start()
            self._keep_alive(address, wakeups)
            # The worker accepts connections while it drains; after that none may wait in the
            # backlog.
            for listener in listeners:
                listener.close()
            self._stop(worker, self._settings.drain_timeout + WORKER_STOP_SECONDS, wakeups)
            self._stop(engine, ENGINE_STOP_SECONDS, wakeups)
        except _StopNowError as second:
            _log.warning("killing everything", signal=signal.Signals(second.number).name)
            return 128 + second.number
        finally:
            self._kill_all()
        if self._failure:
            self._stderr.write(f"quire: {self._failure}")
            return 1
        _log.info("stopped")
        return 0

    # --- the children ---------------------------------------------------------------------------

    def _plan(self, directory: Path, listeners: list[socket.socket]) -> tuple[_Child, _Child]:
        settings = self._settings
        flags = ("--listen-fd", "--admin-fd")
        kept = {name: kept_memory(directory, name) for name in ("ledger", "history", "limits")}
        pages = {name: directory / f"{name}.page" for name in ("supervisor", "worker", "engine")}
        self._page = Page(pages["supervisor"], create=True)
        self._page[Sign.BEATS] = time.monotonic()
        common = [
            *(f"--socket={directory / 'engine.sock'}", f"--parent-pid={os.getpid()}"),
            *fault_arguments(directory, settings.faults),
        ]
        worker = _Child(
            "worker",
            "service.worker",
            [
                *common,
                f"--beats={pages['worker']}",
                f"--supervisor-page={pages['supervisor']}",
                f"--model-dir={self._model_dir}",
                *(
                    f"{flag}={listener.fileno()}"
                    for flag, listener in zip(flags, listeners, strict=False)
                ),
                *(f"--{name}-fd={descriptor}" for name, descriptor in kept.items()),
                *to_argv(settings),
            ],
            # Arguments can be read by every user of the machine; the environment cannot.
            child_environment(os.environ, secret_environment(settings)),
            page=Page(pages["worker"], create=True),
            silence=Silence(self._tick),
            inactivity=Silence(self._tick),
            hangs=lambda page, silent, _: worker_hangs(page, silent, settings.worker_hang_timeout),
            inherit=(*(listener.fileno() for listener in listeners), *kept.values()),
        )
        engine = _Child(
            "engine",
            "engine",
            [
                *common,
                f"--beats={pages['engine']}",
                f"--log-format={settings.log_format}",
                f"--log-level={settings.log_level}",
                *to_argv(self._engine_config),
            ],
            child_environment(os.environ),
            page=Page(pages["engine"], create=True),
            silence=Silence(self._tick),
            inactivity=Silence(self._tick),
            hangs=lambda page, silent, inactive: engine_hangs(
                page, silent, inactive, settings.engine_hang_timeout
            ),
        )
        return worker, engine

    def _keep_alive(self, address: ServerAddress, wakeups: int) -> None:
        """Run until a stop signal arrives or a child fails at its first start."""
        while not (self._stopping or self._failure):
            pending = self._loading_since is not None or any(
                child.restart_at is not None for child in self._children
            )
            self._wait(wakeups, min(_TICK_SECONDS, self._tick) if pending else self._tick)
            now = time.monotonic()
            for child in self._children:
                if child.restart_at is not None and child.restart_at <= now:
                    child.start()
                child.kill_if_it_hangs(now)
            self._inform_workers()
            all_run = all(child.pid is not None for child in self._children)
            if self._loading_since is not None and all_run and _is_ready(address):
                self._stdout.write(ready_line(self._model, now - self._loading_since))
                self._loading_since = None
                self._was_ready = True

    def _inform_workers(self) -> None:
        engine = self._children[-1]
        self._page[Sign.FRUITLESS_DEATHS] = engine.policy.fruitless_deaths
        self._page[Sign.NEXT_START_AT] = engine.restart_at or 0.0

    def _wait(self, wakeups: int, timeout: float) -> None:
        """Sleep until a signal or ``timeout``, then handle signals and deaths."""
        if select.select([wakeups], [], [], timeout)[0]:
            os.read(wakeups, 4096)
        self._page[Sign.BEATS] = time.monotonic()
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
            # It rejected its settings or its model, and would do so again.
            self._failure = f"the {child.name} could not start ({describe_exit(code)}); see the log"
            return
        delay = child.policy.delay_after(progress=child.made_progress)
        _log.info("restarting", child=child.name, delay_seconds=delay)
        if child.policy.fruitless_deaths >= FAILING_DEATHS:
            _log.error(
                "keeps dying without progress",
                child=child.name,
                deaths=child.policy.fruitless_deaths,
                exit=describe_exit(code),
            )
        child.restart_at = time.monotonic() + delay
        self._loading_since = self._loading_since or time.monotonic()

    def _stop(self, child: _Child, timeout: float, wakeups: int) -> None:
        """Send SIGTERM, and SIGKILL if the child still runs after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        child.restart_at = None
        child.signal(signal.SIGTERM)
        while child.pid is not None and (left := deadline - time.monotonic()) > 0:
            self._wait(wakeups, min(left, self._tick))
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
            path=self._engine_config.model,
            needs_key=self._settings.needs_key,
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
