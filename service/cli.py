"""The command line: ``quire serve``, ``join``, ``pull``, ``chat``, ``dashboard``, ``bench``,
``keys``, ``doctor``."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import math
import os
import shlex
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec

from client import chat_terminal, replay
from client.chat_client import ServerError
from engine.architecture.errors import ModelError
from engine.config import EngineConfig
from engine.options import (
    OptionError,
    add_arguments,
    environment_defaults,
    from_namespace,
    setting,
)
from engine.python_command import python_command
from engine.simulation.spec import SpecError
from observability import logging
from observability.stacks import write_stacks_on_sigusr1
from observability.terminal import for_terminal
from service import doctor
from service.hub.errors import HubError
from service.hub.place import ModelPlace, is_hub_name
from service.hub_settings import HubSettings
from service.key_commands import add_key_commands, making_keys
from service.printing import with_output
from service.served_model import ServedModel, model_asked_for, served_model
from service.settings import ServiceSettings
from service.start_checks import (
    check_model,
    descriptors_problem,
    refuse_before_download,
    settings_problem,
    settings_warning,
)
from service.supervision.child_process import package_environment
from service.supervision.download import FirstFilesError, fetch_first, log_arguments
from service.supervision.refusal import why_refused
from service.supervision.supervisor import Supervisor
from service.unknown_arguments import CommandParser, unknown_arguments
from service.unknown_variables import unknown_variables
from service.version import VERSION

_log = logging.get_logger()

DEFAULT_BASE_URL = "http://127.0.0.1:8000"


def main(argv: list[str] | None = None) -> int:
    """Run one command. Returns its exit status: 0, 1 for a failure, 2 for a usage error,
    130 if it was interrupted, 141 if what it printed had no reader."""
    return with_output(lambda: _main(argv))


def _main(argv: list[str] | None) -> int:
    parser = _parser()
    try:
        given = sys.argv[1:] if argv is None else argv
        namespace, rest = parser.parse_known_args(given)
        if namespace.command not in (_dashboard, _join):
            used: argparse.ArgumentParser = namespace.own_parser
            if problem := unknown_arguments(used, namespace, rest, given):
                used.error(problem)
        namespace.rest = rest
        command: Callable[[argparse.Namespace], int] = namespace.command
        return command(namespace)
    except (OptionError, SpecError) as error:
        print(f"quire: {for_terminal(str(error))}", file=sys.stderr)
        return 2
    except HubError as error:
        print(f"quire: {for_terminal(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # most commands handle it themselves, once they have begun
        return 128 + signal.SIGINT


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="quire", description="An LLM server you can see through.")
    parser.add_argument("--version", action="version", version=f"quire {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    serve = commands.add_parser(
        "serve",
        # Each flag has exactly one spelling: the chart, for example, refuses some flags by name.
        allow_abbrev=False,
        # The list of all flags would bury the error below it.
        usage="quire serve [MODEL] [--FLAG VALUE ...]  (all flags: quire serve --help)",
        help="serve a model over HTTP",
        description="Serve a model directory in Hugging Face layout, a GGUF file (docs/gguf.md) or "
        "a model by its name on the hub (docs/models-by-name.md); by default pocket, the embedded "
        "demonstration model; or simulated:[PROFILE][,KEY=VALUE...], a timed stand-in "
        "without weights (docs/simulated-models.md). Every flag can also be given by its variable.",
    )
    _add_serve_arguments(serve)
    serve.set_defaults(command=_serve)

    # The rest of the command line, including --help, is that of the room that joins.
    join = commands.add_parser(
        "join",
        help="offer this host's devices to a server on another host",
        add_help=False,
    )
    join.set_defaults(command=_join)

    _add_pull_arguments(
        commands.add_parser(
            "pull", allow_abbrev=False, help="download a model from the hub and verify it"
        )
    )

    _add_chat_arguments(
        commands.add_parser("chat", help="talk to a running server in this terminal")
    )

    # The rest of the command line, including --help, is the dashboard's.
    dashboard = commands.add_parser(
        "dashboard", help="watch a running server in the browser", add_help=False
    )
    dashboard.set_defaults(command=_dashboard)

    _add_bench_arguments(
        commands.add_parser("bench", help="play a recorded load trace against a running server")
    )

    add_key_commands(commands.add_parser("keys", help="make, list and end API keys"))

    _add_doctor_arguments(
        commands.add_parser(
            "doctor", allow_abbrev=False, help="say what this machine can do, and what is missing"
        )
    )
    for one in commands.choices.values():
        one.set_defaults(own_parser=one)
    return parser


def _add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model_directory",
        nargs="?",
        metavar="MODEL",
        help="model directory, GGUF file, name on the hub (OWNER/NAME, or OWNER/NAME:Q4_K_M for a "
        "GGUF file), or simulated:... (same as --model)",
    )
    add_arguments(parser, EngineConfig)
    add_arguments(parser, HubSettings)
    add_arguments(parser, ServiceSettings)


def _add_pull_arguments(pull: argparse.ArgumentParser) -> None:
    pull.description = (
        "Download what 'quire serve NAME' needs of a model, or what is missing of it, and check "
        "every file's checksum (docs/models-by-name.md)."
    )
    pull.add_argument(
        "name",
        metavar="NAME",
        help="the model's name on the hub: OWNER/NAME, or OWNER/NAME:Q4_K_M for a GGUF file",
    )
    pull.add_argument(
        "--if-missing",
        action="store_true",
        help="ask the hub only if the cache has no whole copy of the revision",
    )
    add_arguments(pull, HubSettings)
    pull.set_defaults(command=_pull)


def _add_chat_arguments(chat: argparse.ArgumentParser) -> None:
    chat.description = chat_terminal.__doc__
    _add_server_arguments(chat)
    chat.add_argument("--model", help="model to use; default: the server's first")
    chat.add_argument("--system", help="system message")
    chat.add_argument("--temperature", type=float, help="default: the model's own")
    chat.add_argument("--max-tokens", type=int, help="maximum tokens of an answer")
    chat.set_defaults(command=_chat)


def _add_bench_arguments(bench: argparse.ArgumentParser) -> None:
    bench.description = "Play a load trace (docs/usage-and-records.md) against a running server."
    _add_server_arguments(bench)
    bench.add_argument("--replay", required=True, type=Path, metavar="FILE", help="the trace")
    bench.add_argument(
        "--speed", type=_speed, default=1.0, help="how many times as fast as recorded (1)"
    )
    bench.add_argument("--model", help="model to use; default: the server's first")
    bench.set_defaults(command=_bench)


def _add_server_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--base-url",
        default=os.environ.get("QUIRE_BASE_URL", DEFAULT_BASE_URL),
        help=f"the server (QUIRE_BASE_URL; default: {DEFAULT_BASE_URL})",
    )
    parser.add_argument(
        "--api-key",
        help="its key (QUIRE_API_KEY, or a file: QUIRE_API_KEY_FILE); an argument can be read by "
        "every user of the machine",
    )


def _add_doctor_arguments(check: argparse.ArgumentParser) -> None:
    check.usage = "quire doctor [MODEL] [--FLAG VALUE ...]  (takes all flags of quire serve)"
    check.description = (
        "Say what this machine can do and what is missing, and whether the model and the settings, "
        "given as for 'quire serve', fit together."
    )
    _add_serve_arguments(check)
    check.set_defaults(command=_doctor)


def _speed(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.01 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"must be a number from 0.01 to 1000, not {text!r}")
    return value


def _pull(namespace: argparse.Namespace) -> int:
    hub = _hub_settings(namespace)
    name = namespace.name
    if not is_hub_name(name):
        form = "a name has the form OWNER/NAME, or OWNER/NAME:Q4_K_M for a GGUF file"
        here = f"it is a path here, which 'quire serve {name}' serves as it is"
        reason = here if Path(name).exists() else form
        raise OptionError(f"cannot pull {name}: {reason}")
    place = ModelPlace.of(name, hub.revision, hub.download_dir)
    # Imported late: no other command needs the library.
    from service.hub.pull import end_at_signals, pull

    end_at_signals()
    writer = logging.configure(process="pull")
    try:
        status = pull(
            place, partial(refuse_before_download, place), if_missing=namespace.if_missing
        )
    finally:
        writer.close()
    os._exit(status)  # without waiting for transfers that continue in threads after a failure


def _hub_settings(namespace: argparse.Namespace) -> HubSettings:
    defaults = environment_defaults(HubSettings, os.environ)
    return from_namespace(HubSettings, argparse.Namespace(**{**defaults, **vars(namespace)}))


@dataclasses.dataclass(frozen=True, slots=True)
class _Asked:
    """What the arguments of ``quire serve`` and the environment say."""

    model: ServedModel
    engine: EngineConfig
    service: ServiceSettings


def _asked(namespace: argparse.Namespace) -> _Asked:
    values = {
        **environment_defaults(ServiceSettings, os.environ),
        **environment_defaults(EngineConfig, os.environ),
        **vars(namespace),
    }
    positional = values.pop("model_directory")
    if (named := model_asked_for(positional, vars(namespace).get("model"))) is not None:
        values["model"] = named
    hub = _hub_settings(namespace)
    model = served_model(values.get("model"), hub)
    if model.place is None and hub.revision is not None:
        raise OptionError(
            f"--revision: {model.reference} is not a name on the hub; only those have revisions"
        )
    values["model"] = model.reference
    if model.name is not None:
        values.setdefault("served_model_name", (model.name,))
    merged = argparse.Namespace(**values)
    return _Asked(
        model, from_namespace(EngineConfig, merged), from_namespace(ServiceSettings, merged)
    )


def _serve(namespace: argparse.Namespace) -> int:
    asked = _asked(namespace)
    model, engine, service = asked.model, asked.engine, asked.service
    if problem := settings_problem(engine, service) or descriptors_problem():
        print(f"quire: {for_terminal(problem)}", file=sys.stderr)
        return 1
    _open_standard_streams()
    weights = None
    if model.place is not None:
        needed = engine.load_format != "dummy"
        try:
            directory, weights = fetch_first(
                model.place, log_arguments(service), needs_weights=needed
            )
        except FirstFilesError as error:
            return error.status
        model = dataclasses.replace(model, directory=directory, gguf=model.place.gguf_in(directory))
    write_stacks_on_sigusr1()
    writer = logging.configure(
        log_format=service.log_format, level=service.log_level, process="supervisor"
    )
    try:
        directory, engine, is_native = check_model(model, engine)
        if weights is not None and not is_native and (reason := why_refused(engine)):
            raise ModelError(reason)
    except ModelError as error:
        writer.close()  # what was logged comes first
        print(f"quire: {for_terminal(str(error))}", file=sys.stderr)
        return 1
    if warning := settings_warning(service):
        _log.warning(warning)
    for unknown in unknown_variables(os.environ):
        _log.warning("ignoring an unknown variable", **unknown._asdict())
    try:
        return Supervisor(
            engine,
            service,
            model_dir=directory,
            note=model.note,
            making_keys=making_keys(service.store_url) if service.stored_keys else "",
            weights=weights,
            stderr=writer,
        ).run()
    finally:
        writer.close()


class _ClientOptions(msgspec.Struct, frozen=True):
    """Settings of a client that may be in the environment because a server on this machine uses
    them."""

    api_key: Annotated[tuple[str, ...], setting("Keys", "Key to send.", secret=True)] = ()


def _open_standard_streams() -> None:
    """Open those that the parent process closed. Otherwise the next file to be opened would get
    their number, and with it what libraries print."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _chat(namespace: argparse.Namespace) -> int:
    keys = environment_defaults(_ClientOptions, os.environ).get("api_key", ())
    return chat_terminal.run(
        namespace.base_url,
        api_key=namespace.api_key or next(iter(keys), None),
        model=namespace.model,
        system=namespace.system,
        temperature=namespace.temperature,
        max_tokens=namespace.max_tokens,
    )


def _bench(namespace: argparse.Namespace) -> int:
    keys = environment_defaults(_ClientOptions, os.environ).get("api_key", ())
    key = namespace.api_key or next(iter(keys), None)
    try:
        return replay.run(
            namespace.replay,
            namespace.base_url,
            model=namespace.model,
            key=key,
            speed=namespace.speed,
        )
    except (ValueError, ServerError) as error:
        print(f"quire: {for_terminal(str(error))}", file=sys.stderr)
        return 1


def _dashboard(namespace: argparse.Namespace) -> int:
    if importlib.util.find_spec("streamlit") is None:
        print(
            "quire: the dashboard needs Streamlit, which is not installed here. Run "
            "'make dashboard' in Quire's folder, or\n"
            f"  {shlex.quote(sys.executable)} -m pip install streamlit httpx",
            file=sys.stderr,
        )
        return 1
    _become("dashboard", namespace.rest)


def _join(namespace: argparse.Namespace) -> int:
    _open_standard_streams()
    _become("engine.ranks.join", namespace.rest)


def _become(module: str, arguments: list[str]) -> NoReturn:
    """Replace this process, so that the module gets signals and the terminal directly."""
    command = python_command("-m", module, *arguments)
    os.execve(command[0], command, package_environment(os.environ))  # noqa: S606  no shell: our own interpreter


def _doctor(namespace: argparse.Namespace) -> int:
    asked = _asked(namespace)
    problem = settings_problem(asked.engine, asked.service)
    needs_gpu = asked.engine.device == "cuda" and not asked.model.is_simulated
    return doctor.run(_model_finding(asked), problem, asked.service, needs_gpu=needs_gpu)


def _model_finding(asked: _Asked) -> doctor.Finding:
    model, place = asked.model, asked.model.place
    if place is None or place.whole_snapshot() is not None:
        return _checked_finding(model, asked.engine)
    # Imported late: no other command needs it.
    from service.hub.kept import copy_in_cache

    directory = copy_in_cache(place)
    if directory is None:
        return doctor.absent_finding(place)
    model = dataclasses.replace(model, directory=directory, gguf=place.gguf_in(directory))
    return doctor.unverified_finding(place, _checked_finding(model, asked.engine))


def _checked_finding(model: ServedModel, engine: EngineConfig) -> doctor.Finding:
    try:
        checked = check_model(model, engine)
        if model.is_simulated:
            return doctor.simulated_finding(checked.directory)
        return doctor.model_finding(checked)
    except ModelError as error:
        return doctor.refused_finding(str(error))


if __name__ == "__main__":
    sys.exit(main())
