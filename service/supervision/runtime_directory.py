"""The directory for one server's sockets, and the removal of directories left by killed servers."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from observability.logging import get_logger

_PREFIX = "quire-"
# Held while its owner lives: the kernel releases it when that process ends, for any reason.
_LOCK = "supervisor.lock"
_SIGNING_FILE = "signing.key"
FAULTS_FILE = "faults"
_SUFFIXES_OF_STARTS = (".page", ".key")
# A unix socket's path is limited to 107 bytes.
_LONGEST = 80

_log = get_logger()


class RuntimeDirectoryError(RuntimeError):
    """The directory cannot be created; the message says what to do."""


@contextlib.contextmanager
def runtime_directory() -> Iterator[Path]:
    """Yield a directory that only this user can enter, removed at the end. Directories of killed
    servers are removed first. Raises RuntimeDirectoryError."""
    directory, lock = _create()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def engine_sockets(first: Path, engines: int) -> list[Path]:
    """Return the sockets of a server's engines. ``first``: that of its only one; several have their
    number in the name, before the suffix."""
    if engines == 1:
        return [first]
    return [first.with_stem(f"{first.stem}-{index}") for index in range(engines)]


def make_signing_key(directory: Path) -> None:
    """Write the key that the server's workers sign with; only they can read it. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(directory / _SIGNING_FILE, flags, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(32))


def read_signing_key(directory: Path) -> str:
    """Raises OSError."""
    return (directory / _SIGNING_FILE).read_text()


def files_of_starts(directory: Path) -> list[Path]:
    """Return the files that are there now and that each process opens when it starts. Raises
    OSError."""
    return sorted(
        path
        for path in directory.iterdir()
        if path.suffix in _SUFFIXES_OF_STARTS or path.name == FAULTS_FILE
    )


def lost_file(files: Iterable[Path]) -> Path | None:
    """Return the first of the files that was removed, or its directory if that was; None if all
    are there."""
    for path in files:
        for place in (path.parent, path):
            try:
                place.stat()
            except FileNotFoundError:
                return place
            except OSError:  # its state is not known
                continue
    return None


def _create() -> tuple[Path, int]:
    """Return the directory and the descriptor that holds its lock. Raises RuntimeDirectoryError."""
    try:
        base = _base()
        _sweep(base)
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    except OSError as error:
        raise RuntimeDirectoryError(
            f"cannot create a directory for the server's sockets: {error}; set XDG_RUNTIME_DIR or "
            f"TMPDIR to a writable directory whose path has at most {_LONGEST} characters"
        ) from error
    try:
        return directory, _locked(directory)
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        raise RuntimeDirectoryError(
            f"cannot lock the directory of the server's sockets: {error}; set XDG_RUNTIME_DIR or "
            "TMPDIR to a directory on another file system"
        ) from error


def _base() -> Path:
    preferred = os.environ.get("XDG_RUNTIME_DIR", "")
    usable = bool(preferred) and len(preferred) <= _LONGEST and os.access(preferred, os.W_OK)
    base = preferred if usable else tempfile.gettempdir()
    if len(base) > _LONGEST:
        base = "/tmp"  # noqa: S108 - mkdtemp makes a private directory in it, mode 0700
    return Path(base)


def _locked(directory: Path) -> int:
    """Return the descriptor that holds the lock. Children do not inherit it."""
    unfinished = directory / f"{_LOCK}.new"
    lock = os.open(unfinished, os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    unfinished.rename(directory / _LOCK)  # so that the final name is always locked
    return lock


def _sweep(base: Path) -> None:
    with contextlib.suppress(OSError):
        for directory in sorted(base.glob(f"{_PREFIX}*")):
            if _is_dead(directory):
                shutil.rmtree(directory, ignore_errors=True)
                _log.info("removed the directory of a killed server", directory=str(directory))


def _is_dead(directory: Path) -> bool:
    """True if it is certainly a directory of ours, of this user, whose owner has died."""
    try:
        found = directory.lstat()
        private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700
        if not private or found.st_uid != os.geteuid():
            return False
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:  # removed meanwhile, or not ours
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True
