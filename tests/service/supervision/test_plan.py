"""What the supervisor starts, and which worker leads."""

from __future__ import annotations

import argparse
import os
import socket
import time
from pathlib import Path

import pytest

from engine.beats import Sign
from engine.config import EngineConfig
from engine.options import OptionError, add_arguments, from_namespace
from service.hub.place import ModelPlace
from service.settings import ServiceSettings
from service.supervision.plan import Plan, plan
from service.worker import WorkerOptions

SECRET = "a secret of some length"


def planned(
    directory: Path,
    *,
    workers: int = 1,
    engines: int = 1,
    grpc: int | None = None,
    hosts: int = 1,
) -> Plan:
    return plan(
        EngineConfig(
            model="simulated:",
            data_parallel_size=engines,
            tensor_parallel_size=hosts,
            tensor_parallel_hosts=hosts,
            ranks_secret=SECRET,
        ),
        ServiceSettings(api_workers=workers, grpc_port=0 if grpc else None),
        model_dir=Path("/model"),
        directory=directory,
        listeners=[socket.socket(), socket.socket()],
        grpc_port=grpc,
        tick=1.0,
    )


def options_of(arguments: list[str]) -> tuple[WorkerOptions, ServiceSettings]:
    parser = argparse.ArgumentParser()
    add_arguments(parser, WorkerOptions)
    add_arguments(parser, ServiceSettings)
    found = parser.parse_args(arguments)
    return from_namespace(WorkerOptions, found), from_namespace(ServiceSettings, found)


def test_one_worker_and_one_engine_have_no_numbers(tmp_path: Path) -> None:
    parts = planned(tmp_path, workers=1, engines=1)
    assert [child.name for child in parts.children] == ["worker", "engine"]
    options, _ = options_of(parts.workers[0].arguments)
    assert options.engine_sockets == [tmp_path / "engine.sock"]
    assert f"--socket={tmp_path / 'engine.sock'}" in parts.engines[0].arguments


def test_several_have_their_own_memory_and_pages_and_share_the_rest(tmp_path: Path) -> None:
    parts = planned(tmp_path, workers=3, engines=2, grpc=4711)
    names = ["worker-0", "worker-1", "worker-2", "engine-0", "engine-1"]
    assert [child.name for child in parts.children] == names
    assert len({id(child.page) for child in parts.children}) == 5
    found = [options_of(worker.arguments) for worker in parts.workers]
    assert [options.worker_index for options, _ in found] == [0, 1, 2]
    assert {settings.grpc_port for _, settings in found} == {4711}
    ledgers = found[0][0].ledger_fds
    assert [options.ledger_fd for options, _ in found] == list(ledgers)
    shared = {
        (each.history_fd, each.limits_fd, each.engines_fd, each.store_fd) for each, _ in found
    }
    assert len(shared) == 1
    inherited = set(parts.workers[0].inherit)
    assert {*ledgers, *next(iter(shared))} < inherited
    for descriptor in (*ledgers, *next(iter(shared))):
        assert descriptor is not None
        os.fstat(descriptor)  # it is open
    sockets = [tmp_path / "engine-0.sock", tmp_path / "engine-1.sock"]
    assert found[2][0].engine_sockets == sockets
    for engine, path in zip(parts.engines, sockets, strict=True):
        assert f"--socket={path}" in engine.arguments


def test_the_lead_stays_while_it_lives_and_then_goes_to_one_that_is_ready(tmp_path: Path) -> None:
    parts = planned(tmp_path, workers=3, engines=1)
    page, workers = parts.page, parts.workers
    for worker in workers:
        worker.pid = os.getpid()
    workers[2].page[Sign.READY_AT] = time.monotonic()
    parts.inform_workers(1.0)
    assert page.lead == 0  # though another was ready first
    workers[0].pid = None
    parts.inform_workers(2.0)
    assert page.lead == 2
    workers[0].pid = os.getpid()
    workers[0].page[Sign.READY_AT] = time.monotonic()
    parts.inform_workers(3.0)
    assert page.lead == 2
    workers[2].pid = None
    workers[0].page[Sign.READY_AT] = 0.0
    parts.inform_workers(4.0)
    assert page.lead == 0  # none is ready
    assert [page.worker_pid(n) for n in range(3)] == [os.getpid(), os.getpid(), 0]
    for worker in workers:
        worker.pid = None
    parts.inform_workers(5.0)
    assert page.lead == 0


def test_engines_wait_for_a_download_which_is_shown_to_workers(tmp_path: Path) -> None:
    parts = plan(
        EngineConfig(model="/cache/snapshot", data_parallel_size=2),
        ServiceSettings(),
        model_dir=Path("/cache/snapshot"),
        directory=tmp_path,
        listeners=[socket.socket(), socket.socket()],
        grpc_port=None,
        tick=1.0,
        weights=ModelPlace("owner/name", "main", Path("/cache"), "c" * 40),
    )
    assert [child.name for child in parts.first] == ["worker", "download"]
    names = ["worker", "download", "engine-0", "engine-1"]
    assert [child.name for child in parts.children] == names
    download = parts.download
    assert download is not None
    assert "--commit=" + "c" * 40 in download.arguments
    parts.inform_workers(1.0)
    assert parts.page.download == (0, 0)
    download.page[Sign.PROGRESS], download.page[Sign.TOTAL] = 5.0, 10.0
    parts.inform_workers(2.0)
    assert parts.page.download == (5, 10)
    assert parts.end_download() == parts.engines
    parts.inform_workers(3.0)
    assert parts.page.download is None
    assert [child.name for child in parts.children] == ["worker", "engine-0", "engine-1"]
    assert not download.hangs(download.page, 1e9, 1e9)


def test_only_a_download_gets_the_hubs_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    parts = planned(tmp_path, workers=1, engines=1)
    assert all("HF_TOKEN" not in child.environ for child in parts.children)


def test_the_secret_of_the_ranks_is_in_the_engines_environment_only(tmp_path: Path) -> None:
    parts = planned(tmp_path, hosts=2)
    [engine], [worker] = parts.engines, parts.workers
    assert engine.environ["QUIRE_RANKS_SECRET"] == SECRET
    assert SECRET not in " ".join([*engine.arguments, *worker.arguments])
    assert SECRET not in worker.environ.values()


def test_an_engine_that_no_host_joins_does_not_get_the_secret(tmp_path: Path) -> None:
    [engine] = planned(tmp_path).engines
    assert SECRET not in " ".join([*engine.environ.values(), *engine.arguments])


def test_settings_of_several_hosts_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="one engine uses several hosts"):
        planned(tmp_path, engines=2, hosts=2)


def test_the_files_that_starts_need_are_those_that_children_are_given(tmp_path: Path) -> None:
    parts = planned(tmp_path, workers=2, engines=1)
    pages = {child.arguments[0].removeprefix("--beats=") for child in parts.children}
    own = {str(tmp_path / name) for name in ("supervisor.page", "signing.key")}
    assert set(map(str, parts.files)) == pages | own


def test_the_models_files_are_noted_at_the_start_or_after_their_download(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    config = model / "config.json"
    config.write_text("{}")
    parts = planned(tmp_path)
    parts.watch_model(model)
    assert parts.obstacle() == ""
    config.write_text("{ }")
    assert str(config) in parts.obstacle()
    parts.download = parts.engines[0]
    parts.watch_model(model)
    config.write_text("{  }")
    assert parts.obstacle() == ""
    parts.end_download()
    assert parts.obstacle() == ""
    config.write_text("{   }")
    assert str(config) in parts.obstacle()
    parts.files[0].unlink()
    assert str(parts.files[0]) in parts.obstacle()
