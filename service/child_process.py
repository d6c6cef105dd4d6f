"""Starting and ending the supervisor's children."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.options import ENVIRONMENT_PREFIX
from engine.python_command import python_command

# Where engine/ and service/ lie: children find them there, whatever the working directory holds.
_PACKAGES = Path(__file__).resolve().parent.parent


def package_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ``, with Quire's packages first on the import path."""
    paths = [str(_PACKAGES), *filter(None, [environ.get("PYTHONPATH")])]
    return {**environ, "PYTHONPATH": os.pathsep.join(paths)}


def child_environment(
    environ: Mapping[str, str], extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of a child. Settings go by arguments: a QUIRE_* variable that a flag
    overrode here must not come back there."""
    kept = {
        name: value for name, value in environ.items() if not name.startswith(ENVIRONMENT_PREFIX)
    }
    return {**package_environment(kept), **(extra or {})}


def spawn(
    module: str,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    *,
    inherit: Sequence[int] = (),
) -> int:
    """Run ``python -m module`` in a process group of its own (the terminal's Ctrl-C is the
    supervisor's alone), with no input and the descriptors in ``inherit``. Returns its id."""
    argv = python_command("-m", module, *arguments)
    for descriptor in inherit:
        os.set_inheritable(descriptor, True)
    try:
        return os.posix_spawn(
            argv[0],
            argv,
            dict(environ),
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
            setpgroup=0,
            setsigmask=[],
            setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD],
        )
    finally:
        for descriptor in inherit:
            os.set_inheritable(descriptor, False)


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal a child and what it started itself. It may be gone already."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def reap() -> list[tuple[int, int]]:
    """Ids and exit codes (negative: the signal) of all children that ended, adopted ones too:
    as process 1 of a container the supervisor inherits every orphan in it."""
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, os.waitstatus_to_exitcode(status)))


def describe_exit(code: int) -> str:
    """``status 1`` or ``SIGKILL``."""
    return signal.Signals(-code).name if code < 0 else f"status {code}"
