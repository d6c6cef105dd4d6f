"""What the supervisor starts: the workers and the engines, with their arguments and memory."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from engine.beats import Page, Sign, failure_path
from engine.config import EngineConfig, hosts_problem
from engine.device.visible import visible_gpus
from engine.options import OptionError, secret_environment, to_argv
from service.hub.place import ModelPlace
from service.settings import ServiceSettings
from service.supervision.child import Child
from service.supervision.child_process import child_environment
from service.supervision.download import MODULE as DOWNLOAD_MODULE
from service.supervision.download import download_arguments, log_arguments, without_token
from service.supervision.engine_devices import engine_environments
from service.supervision.faults import fault_arguments
from service.supervision.hang_watch import Silence, engine_hangs, worker_hangs
from service.supervision.kept_memory import kept_memory
from service.supervision.model_files import ModelFiles
from service.supervision.page import SupervisorPage
from service.supervision.runtime_directory import (
    engine_sockets,
    files_of_starts,
    lost_file,
    make_signing_key,
)

# Memory that all workers of a server share, besides each one's ledger.
_SHARED = ("history", "limits", "engines", "store")


@dataclass(slots=True)
class Plan:
    """``page``: the supervisor's, read by workers. ``download``: of the weights, without which no
    engine can start; None: they are there. ``files``: without which no process can start again.
    ``model_files``: those of the model, from which all processes must start."""

    workers: list[Child]
    engines: list[Child]
    page: SupervisorPage
    download: Child | None = None
    files: list[Path] = field(default_factory=list)
    model_files: ModelFiles | None = None

    @property
    def children(self) -> list[Child]:
        return [*self.workers, *self._downloads, *self.engines]

    @property
    def _downloads(self) -> list[Child]:
        return [] if self.download is None else [self.download]

    @property
    def first(self) -> list[Child]:
        """The children that are started at once."""
        return self.children if self.download is None else [*self.workers, self.download]

    def end_download(self) -> list[Child]:
        """The weights are there: return the engines, which may start now."""
        self.download = None
        self.page.download = None
        if self.model_files is not None:
            self.model_files.note()
        return self.engines

    def obstacle(self) -> str:
        """Return why no process may start again; empty: they may."""
        if (lost := lost_file(self.files)) is not None:
            return (
                f"{lost}, which every process needs at its start, was removed while the server "
                "ran; restart the server, and exempt quire-* from the cleanup of old files"
            )
        changed = None if self.model_files is None else self.model_files.changed()
        if changed is not None:
            return (
                f"the model's file {changed} was changed, added or removed while the server ran, "
                "so a process started now would not match those that run; restart the server"
            )
        return ""

    def watch_model(self, directory: Path) -> None:
        """Note the model's files, once its weights are there."""
        self.model_files = ModelFiles(directory)
        if self.download is None:
            self.model_files.note()

    def inform_workers(self, now: float) -> None:
        """Write on the page what runs at ``now``, in monotonic seconds."""
        page = self.page
        page.beat(now)
        for worker in self.workers:
            page.set_worker(worker.index, worker.pid)
        for engine in self.engines:
            page.set_engine(
                engine.index,
                runs=engine.pid is not None,
                deaths=engine.policy.fruitless_deaths,
                next_start_at=engine.restart_at or 0.0,
            )
        if self.download is not None:
            progress = self.download.page
            page.download = int(progress[Sign.PROGRESS]), int(progress[Sign.TOTAL])
        page.lead = self._lead()

    def _lead(self) -> int:
        """Return the worker that leads: the same one while it lives, else the first that is ready,
        or runs at least."""
        leading = self.workers[self.page.lead]
        if leading.pid is not None:
            return leading.index
        ready = (worker for worker in self.workers if worker.is_ready)
        running = (worker for worker in self.workers if worker.pid is not None)
        return next(itertools.chain(ready, running), leading).index


def plan(
    config: EngineConfig,
    settings: ServiceSettings,
    *,
    model_dir: Path,
    directory: Path,
    listeners: Sequence[socket.socket],
    grpc_port: int | None,
    tick: float,
    weights: ModelPlace | None = None,
) -> Plan:
    """``directory``: the server's runtime directory. ``listeners``: the public one, and that of the
    admin API if there is one. ``tick``: seconds between two checks of a child. ``weights``: where
    those to be downloaded belong. Raises OSError if the directory cannot be written to, OptionError
    if there are too few GPUs or the settings of several hosts
    do not fit together."""
    if problem := hosts_problem(config):
        raise OptionError(problem)
    # With one host no one joins.
    secret = secret_environment(config) if config.tensor_parallel_hosts > 1 else {}
    environments = [
        pinned | secret for pinned in engine_environments(config, visible_gpus(os.environ))
    ]
    workers, engines = settings.api_workers, config.data_parallel_size
    page_path = directory / "supervisor.page"
    page = SupervisorPage(page_path, workers=workers, engines=engines, create=True)
    first_socket = directory / "engine.sock"
    make_signing_key(directory)
    arguments, inherited, ledgers = _shared_by_workers(directory, model_dir, listeners, settings)
    faults = fault_arguments(directory, settings.faults)
    if grpc_port is not None:
        settings = msgspec.structs.replace(settings, grpc_port=grpc_port)
    common = [
        f"--socket={first_socket}",
        f"--engines={engines}",
        f"--supervisor-page={page_path}",
        *faults,
        *arguments,
        *to_argv(settings),
    ]
    of_engines = [*faults, *to_argv(config)]
    sockets = engine_sockets(first_socket, engines)
    parts = Plan(
        list(_workers(settings, common, inherited, ledgers, directory, tick)),
        list(_engines(settings, of_engines, sockets, environments, tick)),
        page,
        None if weights is None else _download(settings, weights, directory, tick),
    )
    parts.files = files_of_starts(directory)
    parts.watch_model(model_dir)
    return parts


def _download(
    settings: ServiceSettings, weights: ModelPlace, directory: Path, tick: float
) -> Child:
    return _child(
        directory,
        "download",
        0,
        DOWNLOAD_MODULE,
        [*log_arguments(settings), *download_arguments(weights)],
        child_environment(os.environ),
        lambda _beats, _silent, _inactive: False,  # its transfers have time limits
        tick,
    )


def _workers(
    settings: ServiceSettings,
    arguments: list[str],
    inherited: tuple[int, ...],
    ledgers: list[int],
    directory: Path,
    tick: float,
) -> Iterator[Child]:
    # Arguments can be read by every user of the machine; the environment cannot.
    environ = child_environment(without_token(os.environ), secret_environment(settings))
    for index, name in enumerate(_names("worker", settings.api_workers)):
        yield _child(
            directory,
            name,
            index,
            "service.worker",
            [f"--worker-index={index}", f"--ledger-fd={ledgers[index]}", *arguments],
            environ,
            lambda beats, silent, _: worker_hangs(beats, silent, settings.worker_hang_timeout),
            tick,
            inherited,
        )


def _engines(
    settings: ServiceSettings,
    arguments: list[str],
    sockets: list[Path],
    environments: list[dict[str, str]],
    tick: float,
) -> Iterator[Child]:
    for index, name in enumerate(_names("engine", len(sockets))):
        yield _child(
            sockets[index].parent,
            name,
            index,
            "engine",
            [
                f"--socket={sockets[index]}",
                *log_arguments(settings),
                *arguments,
            ],
            child_environment(without_token(os.environ), environments[index]),
            lambda beats, silent, inactive: engine_hangs(
                beats, silent, inactive, settings.engine_hang_timeout
            ),
            tick,
        )


def _names(kind: str, count: int) -> list[str]:
    return [kind] if count == 1 else [f"{kind}-{index}" for index in range(count)]


def _shared_by_workers(
    directory: Path,
    model_dir: Path,
    listeners: Sequence[socket.socket],
    settings: ServiceSettings,
) -> tuple[list[str], tuple[int, ...], list[int]]:
    """Return the arguments that all workers get, the descriptors that they inherit, and those of
    their ledgers."""
    ledgers = [kept_memory(directory, f"ledger-{n}") for n in range(settings.api_workers)]
    shared = {name: kept_memory(directory, name) for name in _SHARED}
    flags = zip(("--listen-fd", "--admin-fd"), listeners, strict=False)
    arguments = [
        f"--model-dir={model_dir}",
        f"--peer-dir={directory}",
        *(f"{flag}={listener.fileno()}" for flag, listener in flags),
        *(f"--{name}-fd={descriptor}" for name, descriptor in shared.items()),
        *(f"--ledger-fds={descriptor}" for descriptor in ledgers),
    ]
    sockets = (listener.fileno() for listener in listeners)
    return arguments, (*sockets, *shared.values(), *ledgers), ledgers


def _child(
    directory: Path,
    name: str,
    index: int,
    module: str,
    arguments: list[str],
    environ: dict[str, str],
    hangs: Callable[[Page, float, float], bool],
    tick: float,
    inherit: tuple[int, ...] = (),
) -> Child:
    beats = directory / f"{name}.page"
    return Child(
        name,
        index,
        module,
        [f"--beats={beats}", f"--parent-pid={os.getpid()}", *arguments],
        environ,
        page=Page(beats, create=True),
        silence=Silence(tick),
        inactivity=Silence(tick),
        hangs=hangs,
        inherit=inherit,
        failure_file=failure_path(beats),
    )
