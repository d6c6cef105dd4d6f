"""What ``quire serve`` checks before it starts anything; ``quire doctor`` reports the same."""

from __future__ import annotations

import itertools
import os
import resource
from pathlib import Path
from typing import NamedTuple

import msgspec

from engine.architecture.errors import ModelError
from engine.config import EngineConfig, hosts_problem
from engine.servable import check_settings
from engine.simulation.spec import parse_spec
from service.admin.gate import is_this_machine
from service.checkpoint.files import files_problem
from service.grpc.available import problem as grpc_problem
from service.hub.errors import NotServableError
from service.hub.place import ModelPlace
from service.served_model import ServedModel
from service.serving.connection_limits import FEWEST_DESCRIPTORS, RESERVED_DESCRIPTORS
from service.settings import ServiceSettings
from service.store.place import store_place
from service.supervision.refusal import why_refused
from service.tenants.key_file import read_key_file

_EVERY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not listened on
_FORMS = (
    "give a directory in Hugging Face layout, a file that ends in .gguf, or a name on the hub "
    "(OWNER/NAME)"
)


class CheckedModel(NamedTuple):
    """``directory``: the model's, made for a GGUF file; ``engine``: the settings with the path from
    which the engine loads it; ``native``: our own code computes it."""

    directory: Path
    engine: EngineConfig
    native: bool


def check_model(model: ServedModel, engine: EngineConfig) -> CheckedModel:
    """Raises ModelError for a model that cannot be served with these settings. Its weights are not
    looked at."""
    try:
        directory = model.directory
        if model.gguf is not None:
            directory = _directory_of(model.gguf, engine.tensor_parallel_hosts)
        if problem := directory_problem(directory, simulated=model.is_simulated):
            raise ModelError(problem)
        if model.is_simulated:
            parse_spec(model.reference).longest_sequence(engine.max_model_len)
            return CheckedModel(directory, engine, native=True)
        engine = msgspec.structs.replace(engine, model=_path_for(model, directory, engine))
        return CheckedModel(directory, engine, native=check_settings(engine))
    except OSError as error:
        raise ModelError(
            f"cannot read {error.filename or model.reference}: {error.strerror}"
        ) from error


def refuse_before_download(place: ModelPlace, directory: Path) -> None:
    """Raise NotServableError, in the words of ``quire serve``, if no settings could serve the
    model in the directory, as far as the files there show."""
    model = ServedModel(place.asked, directory, place=place)
    default = EngineConfig(model=place.asked)
    # Those that replace what a checkpoint says, or our own code.
    pooled = msgspec.structs.replace(default, pooling="last")
    others = msgspec.structs.replace(pooled, model_impl="transformers")
    problem = ""
    for engine in (default, pooled, others):
        try:
            checked = check_model(model, engine)
        except ModelError as error:
            problem = problem or str(error)
            continue
        if not checked.native and (reason := why_refused(checked.engine)):
            raise NotServableError(problem or reason)
        return
    raise NotServableError(problem)


def settings_problem(engine: EngineConfig, service: ServiceSettings) -> str | None:
    """Say what is wrong with settings that have nothing to do with the model."""
    if service.keys_file is not None and (wrong := _keys_file_problem(Path(service.keys_file))):
        return f"--keys-file: {wrong}"
    audit_log = service.audit_log if service.admin else None
    if audit_log is not None and (wrong := _audit_log_problem(Path(audit_log))):
        return f"--audit-log: cannot write {audit_log}: {wrong}"
    if service.store_url != "none":
        try:
            store_place(service.store_url)
        except ValueError as error:
            return f"--store-url: {error}"
    if wrong := _tracing_problem() or _ports_problem(service):
        return wrong
    if service.grpc_port is not None and (missing := grpc_problem()):
        return missing
    return hosts_problem(engine)


def settings_warning(service: ServiceSettings) -> str | None:
    """Return a warning about a setting that has no effect as it is; None if there is none."""
    if not service.admin or service.admin_keys or is_this_machine(service.admin_host):
        return None
    return (
        f"--admin-host {service.admin_host} needs an admin key: without one, clients on other "
        "machines get 403, and those on this one may only read; set --admin-key (QUIRE_ADMIN_KEY)"
    )


def descriptors_problem() -> str | None:
    """Say that a worker could not open what it needs. It raises its own limit to the hard one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= FEWEST_DESCRIPTORS:
        return None
    return (
        f"the open-file limit is {hard}; a server needs at least {FEWEST_DESCRIPTORS}, preferably "
        f"{RESERVED_DESCRIPTORS} plus one for each connection; raise it (ulimit -n)"
    )


def _ports_problem(service: ServiceSettings) -> str | None:
    """Say which two servers would have the same port; on different addresses they may."""
    places = [("--port", service.host, service.port)]
    if service.admin and service.admin_port is not None:
        places.append(("--admin-port", service.admin_host, service.admin_port))
    if service.grpc_port is not None:
        places.append(("--grpc-port", service.host, service.grpc_port))
    for (flag, host, port), (other, other_host, other_port) in itertools.combinations(places, 2):
        hosts = {host, other_host}
        if port == other_port != 0 and (len(hosts) == 1 or hosts & _EVERY_ADDRESS):
            return f"{flag} and {other} are both {port}; give one of them another port"
    return None


def directory_problem(model: Path, *, simulated: bool = False) -> str:
    """Return why the directory ``model`` cannot be served, as far as the files that it has show,
    and what to do; empty if it can. ``simulated``: only its tokenizer is used. Raises OSError."""
    if not model.is_dir():
        found = f"{model} is a file" if model.is_file() else f"no such model directory: {model}"
        return f"{found}; {_FORMS}"
    config = model / "config.json"
    if not simulated and not config.is_file():
        files = sorted(file for file in model.glob("*.gguf") if "mmproj" not in file.name.lower())
        if files:
            return f"{model} is a folder of GGUF files; name one of them, such as {files[0]}"
        return f"{model} is not a model directory: it has no config.json; {_FORMS}"
    if not (model / "tokenizer.json").is_file():
        return f"{model} has no tokenizer.json"
    wrong = files_problem(model)
    return f"the model in {model} cannot be served: {wrong}" if wrong else ""


def _path_for(model: ServedModel, directory: Path, engine: EngineConfig) -> str:
    """Return where the engine finds the model. Other hosts have another working directory."""
    if engine.tensor_parallel_hosts > 1:
        return str(directory.absolute())
    return engine.model if model.place is None and model.gguf is None else str(directory)


def _directory_of(gguf: Path, hosts: int) -> Path:
    """Raises ModelError."""
    if hosts > 1:
        raise ModelError(
            "--tensor-parallel-hosts does not support GGUF files; serve the original checkpoint"
        )
    # Imported late: no other command needs numpy.
    from service.gguf.directory import gguf_directory

    return gguf_directory(gguf)


def _tracing_problem() -> str | None:
    # Imported late: other commands need no OpenTelemetry.
    from observability.tracing import tracing_problem

    return tracing_problem(os.environ)


def _audit_log_problem(path: Path) -> str | None:
    """Say why the file cannot be appended to or, if there is none yet, made. It is not made here:
    it would belong to the user who looks, who need not be the one who serves."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC))
    except FileNotFoundError as error:
        if not path.parent.is_dir():
            return error.strerror
        is_writable = os.access(path.parent, os.W_OK | os.X_OK)
        return None if is_writable else f"{path.parent} is not writable"
    except OSError as error:
        return error.strerror
    return None


def _keys_file_problem(path: Path) -> str | None:
    try:
        read_key_file(path)
    except OSError as error:
        return f"cannot read {path}: {error.strerror}"
    except ValueError as error:
        return f"{path}: {error}"
    return None
