"""Makes do with what the cache has, when the hub cannot be asked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from observability.logging import get_logger
from service.hub.checksums import has_digest
from service.hub.errors import NotServableError, WrongChecksumError
from service.hub.place import CheckedFile, ModelPlace, Record, is_unchanged
from service.hub.wanted import (
    WEIGHTS_INDEX,
    HubFile,
    absent_files,
    check_servable,
    gguf_files,
    small_files,
    weight_files,
)

_DIGESTS = (40, 64)

_log = get_logger()


def adopt(place: ModelPlace) -> Path | None:
    """Return the directory of the revision's files if all that a server needs are there and right,
    also if another program downloaded them: the cache names each by its checksum. Else None. Only
    the hub knows which of the other files the repository has, so without its word the record does
    not call the copy whole, and a start asks again once it can. Raises OSError, and
    WrongChecksumError."""
    if (whole := place.whole_snapshot()) is not None:
        return whole
    if (copy := _copy(place)) is None:
        return None
    directory, files, wanted = copy
    commit, before = directory.name, place.record(directory.name)
    record = Record(
        before.is_whole or place.variant is not None,  # a GGUF file has all of it
        {
            file.name: _checked(place, directory / file.name, file, before.files.get(file.name))
            for file in wanted
        },
    )
    try:
        place.write_record(commit, record)
    except OSError as error:  # such as a cache that is mounted read-only
        _log.info("cannot record the checksums of a model", reason=error.strerror)
    if not record.is_whole and (absent := absent_files(files)):
        _log.warning(
            "the cache lacks files that the repository may have, and the model is served without "
            "them; run 'quire pull' where there is a network",
            model=place.name,
            files=", ".join(absent),
        )
    return directory


def copy_in_cache(place: ModelPlace) -> Path | None:
    """Return the directory that ``adopt`` would, if the files are right. They are not read."""
    copy = _copy(place)
    return None if copy is None else copy[0]


def _copy(place: ModelPlace) -> tuple[Path, list[HubFile], list[HubFile]] | None:
    """Return the directory of the revision's files, all of them, and those that a server needs;
    None if one of these is missing."""
    commit = place.commit()
    if commit is None:
        return None
    directory, before = place.snapshot(commit), place.record(commit)
    files = list(_files(directory))
    if not before.files.keys() <= {file.name for file in files}:
        return None
    try:
        if place.variant is not None:
            return directory, files, gguf_files(place.name, files, place.variant)
        check_servable(place.name, files, weights=True)
        index = directory / WEIGHTS_INDEX
        data = index.read_bytes() if index.exists() else None
        wanted = [*small_files(files), *weight_files(place.name, files, data)]
    except NotServableError:
        return None
    return directory, files, wanted


def _files(directory: Path) -> Iterator[HubFile]:
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            name = path.relative_to(directory).as_posix()
            target = os.path.basename(os.readlink(path)) if path.is_symlink() else ""
            digest = target if len(target) in _DIGESTS else ""
            yield HubFile(name, path.stat().st_size, digest)


def _checked(
    place: ModelPlace, path: Path, file: HubFile, before: CheckedFile | None
) -> CheckedFile:
    """``before``: as it was when it was last found right."""
    if before is not None and before.digest == file.digest and is_unchanged(path, before):
        return before
    if not file.digest:
        _log.warning("a file's checksum is not known while the hub is unavailable", file=file.name)
    elif not has_digest(path, file.digest):
        raise WrongChecksumError(
            f"{file.name} of '{place.name}' in {place.cache} is damaged, and the hub cannot be "
            "asked; run 'quire pull' where there is a network"
        )
    found = path.stat()
    return CheckedFile(found.st_size, found.st_mtime_ns, file.digest)
