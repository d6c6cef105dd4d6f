"""Where a hub's model lies in the cache that all tools of Hugging Face share, and whether it is
there as a whole. Nothing here uses the network.

The cache's layout is documented by the library huggingface_hub: ``refs/NAME`` has the commit of a
branch or tag, ``snapshots/COMMIT`` the files by name, usually links to ``blobs``. We add
``quire/COMMIT.json``, a record of the files whose checksums were right, so that a later start
neither hashes them again nor asks the hub; and for each GGUF file that is served of a repository,
``quire/COMMIT.VARIANT.json`` and the commit, in ``quire/refs/VARIANT/NAME``.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from service.hub.variables import check_variables
from service.hub.wanted import HubFile, gguf_files

DEFAULT_REVISION = "main"
_PART = r"[A-Za-z0-9_](?:[\w.-]{0,94}[A-Za-z0-9_])?"
_NAME = re.compile(rf"{_PART}/{_PART}", re.ASCII)
_VARIANT = re.compile(r"[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
# What people paste instead: a URL of the hub, or OWNER/NAME/FILE.gguf.
_ADDRESS = re.compile(
    rf"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/(?!datasets/|spaces/|collections/)({_PART}/{_PART})"
    r"(?::([\w.-]+)|/(?:resolve|blob|tree)/([\w.-]+)(?:/(?:.*/)?([^/?#]+\.gguf))?)?(?:[/?#].*)?",
    re.ASCII,
)
_FILE = re.compile(rf"({_PART}/{_PART})/([^/]+\.gguf)", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")


def is_hub_name(text: str) -> bool:
    """True if ``text`` has the form OWNER/NAME or OWNER/NAME:VARIANT and is not a path that
    exists."""
    name, colon, variant = text.partition(":")
    is_name = _NAME.fullmatch(name) is not None and "--" not in name and ".." not in name
    names_variant = not colon or _VARIANT.fullmatch(variant) is not None
    return is_name and names_variant and not Path(text).exists()


def suggested_name(text: str) -> str | None:
    """Return the arguments of ``quire serve`` that ``text`` probably means: a hub name or a GGUF
    file; None if there is no guess. Whether ``text`` is itself a path is not looked at."""
    if match := _ADDRESS.fullmatch(text):
        name, variant, revision, file = match.groups()
        name += f":{variant or file}" if variant or file else ""
        return name if revision in (None, DEFAULT_REVISION) else f"{name} --revision {revision}"
    if match := _FILE.fullmatch(text):
        return ":".join(match.groups())
    path, _, variant = text.rpartition(":")
    return path if variant and path.endswith(".gguf") and Path(path).is_file() else None


def is_commit(revision: str) -> bool:
    return _COMMIT.fullmatch(revision) is not None


class CheckedFile(msgspec.Struct, frozen=True):
    """A file as it was when its checksum was found right."""

    size: int
    mtime_ns: int
    digest: str


class Record(msgspec.Struct, frozen=True):
    """The files of one commit that were right, by name. ``is_whole``: all that a server needs."""

    is_whole: bool = False
    files: dict[str, CheckedFile] = {}


@dataclass(frozen=True, slots=True)
class ModelPlace:
    """A model's place in a cache. ``name``: OWNER/NAME; ``revision``: a branch, tag or commit;
    ``pinned``: the commit that the revision was when this start began; ``variant``: which one of a
    repository's GGUF files, such as Q4_K_M."""

    name: str
    revision: str
    cache: Path
    pinned: str | None = None
    variant: str | None = None

    @classmethod
    def of(cls, asked: str, revision: str | None, directory: str | None) -> Self:
        """``asked``: OWNER/NAME or OWNER/NAME:VARIANT. ``directory``: of the cache; None: the usual
        one. Raises HubError for a variable that the library could not read."""
        check_variables(os.environ)
        name, _, variant = asked.partition(":")
        cache = _usual_cache() if directory is None else _absolute(directory)
        return cls(name, revision or DEFAULT_REVISION, cache, variant=variant or None)

    @property
    def pull_command(self) -> list[str]:
        """The command that fetches it."""
        revision = [] if self.revision == DEFAULT_REVISION else ["--revision", self.revision]
        cache = [] if self.cache == _usual_cache() else ["--download-dir", str(self.cache)]
        return ["quire", "pull", self.asked, *revision, *cache]

    @property
    def asked(self) -> str:
        return self.name if self.variant is None else f"{self.name}:{self.variant}"

    @property
    def folder(self) -> Path:
        return self.cache / f"models--{self.name.replace('/', '--')}"

    @property
    def blobs(self) -> Path:
        return self.folder / "blobs"

    @property
    def locks(self) -> Path:
        return self.cache / ".locks" / self.folder.name

    def snapshot(self, commit: str) -> Path:
        return self.folder / "snapshots" / commit

    def commit(self) -> str | None:
        """Return the commit that the cache has for the revision; None if it has none."""
        if self.pinned is not None or is_commit(self.revision):
            return self.pinned or self.revision
        return next(filter(is_commit, map(_read, self._refs)), None)

    def set_commit(self, commit: str) -> None:
        """Let the revision be this commit. Raises OSError."""
        if is_commit(self.revision):
            return
        own, *others = self._refs
        if _read(own) != commit:
            _write(own, commit.encode())
        for path in others:
            if not is_commit(_read(path)):
                _write(path, commit.encode())

    @property
    def _refs(self) -> list[Path]:
        """The files that have the revision's commit, the first of which counts. A GGUF file has
        its own, so that it stays the same when another one of the repository is downloaded."""
        shared = self.folder / "refs" / self.revision
        if self.variant is None:
            return [shared]
        return [self.folder / "quire" / "refs" / self.variant / self.revision, shared]

    def _record_path(self, commit: str) -> Path:
        variant = "" if self.variant is None else f".{self.variant}"
        return self.folder / "quire" / f"{commit}{variant}.json"

    def record(self, commit: str) -> Record:
        """Return what was found right; nothing if that is not known."""
        try:
            return msgspec.json.decode(self._record_path(commit).read_bytes(), type=Record)
        except (OSError, msgspec.DecodeError):
            return Record()

    def write_record(self, commit: str, record: Record) -> None:
        """Raises OSError."""
        if record != self.record(commit):
            _write(self._record_path(commit), msgspec.json.encode(record))

    def whole_snapshot(self) -> Path | None:
        """Return the directory of the revision's files if all were found right and none has
        changed since; else None."""
        commit = self.commit()
        if commit is None:
            return None
        record, directory = self.record(commit), self.snapshot(commit)
        unchanged = all(is_unchanged(directory / name, file) for name, file in record.files.items())
        return directory if record.is_whole and unchanged else None

    def gguf_in(self, snapshot: Path) -> Path | None:
        """Return the GGUF file that is served, or its first part, in the directory of the
        revision's files; None if those are a model in Hugging Face layout. Raises NotServableError
        if none is there."""
        if self.variant is None:
            return None
        if names := list(self.record(snapshot.name).files):
            return snapshot / names[0]
        # A copy in a cache that cannot be written has no record.
        there = [
            HubFile(path.relative_to(snapshot).as_posix(), 0, "")
            for path in snapshot.rglob("*")
            if path.is_file()
        ]
        return snapshot / gguf_files(self.name, there, self.variant)[0].name


def _absolute(directory: str) -> Path:
    return Path(directory).expanduser().absolute()


def _usual_cache() -> Path:
    # Imported late: it reads variables, which ``of`` checks first, and most commands need none.
    from huggingface_hub import constants

    return _absolute(constants.HF_HUB_CACHE)


def is_unchanged(path: Path, checked: CheckedFile | None) -> bool:
    """True if the file is as it was when it was checked."""
    try:
        found = path.stat()
    except OSError:
        return False
    return checked is not None and (found.st_size, found.st_mtime_ns) == (
        checked.size,
        checked.mtime_ns,
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _write(path: Path, data: bytes) -> None:
    """Write the file whole, or not at all: others may read it at any moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        # Readable by all who can enter the cache, as the library's own files are.
        Path(temporary).chmod(0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
