"""Fills a place in the cache: asks the hub what there is, downloads what is missing, checks it all.

The transfer is the library's (huggingface_hub). What is added: only the files that a server needs,
free space before the first byte, the continuation of interrupted files, checksums of everything,
one process at a time for each model, and a record of what was right.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

from huggingface_hub import HfApi, constants, get_token, hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from huggingface_hub.utils import WeakFileLock

from observability.logging import get_logger
from service.hub.answers import check_commit, check_digest, check_path, watch_answers
from service.hub.bounded import bounded_transfer
from service.hub.checksums import has_digest
from service.hub.errors import HubError, WrongChecksumError
from service.hub.partial import continue_partial
from service.hub.place import CheckedFile, ModelPlace, Record, is_unchanged
from service.hub.problems import explained, is_transient, no_room, reading_answers
from service.hub.progress import Progress, Report, bytes_there
from service.hub.units import in_units
from service.hub.wanted import (
    WEIGHTS_INDEX,
    HubFile,
    check_servable,
    gguf_files,
    small_files,
    weight_files,
)

ASK_SECONDS = 10.0
# The library has retried five times by then.
_RETRY_SECONDS = (1.0, 5.0, 15.0, 30.0)
_FILES_AT_ONCE = 4
_LOCK_SECONDS = 1.0
# Of one file besides the weights; the largest tokenizers have 40 MB.
_MOST_SMALL_BYTES = 256 << 20

_log = get_logger()


@dataclass(frozen=True, slots=True)
class Fetched:
    """``directory``: of the files. ``is_whole``: with the weights, all found right. ``size``: bytes
    of all that the server needs."""

    commit: str
    directory: Path
    is_whole: bool
    files: int
    size: int


def _size(file: HubFile, checked: Mapping[str, CheckedFile]) -> int:
    return checked[file.name].size if file.name in checked else file.size or 0


def _token() -> str | None:
    """Raises HubError if there is one that cannot be read or sent, and what the library raises."""
    try:
        token = get_token()
    except HfHubHTTPError:  # an OSError, too: in CI, a token may come from the hub
        raise
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise HubError(
            f"cannot read the token file {constants.HF_TOKEN_PATH}: {reason}; correct the file "
            "or HF_TOKEN_PATH, or set HF_TOKEN"
        ) from error
    if token is not None and not (token.isascii() and token.isprintable()):
        raise HubError(
            "the token has characters that are not allowed in tokens; correct HF_TOKEN or, if that "
            f"is not set, the token file ({constants.HF_TOKEN_PATH})"
        )
    return token


class Fetching:
    """Of one place. ``weights``: download those too. ``check``: called with the directory once all
    but the weights are there; what it raises ends the download. ``retry_seconds``: waits after
    trouble with the network."""

    def __init__(
        self,
        place: ModelPlace,
        *,
        weights: bool = True,
        needs_weights: bool = True,
        check: Callable[[Path], None] = lambda _: None,
        reports: Sequence[Report] = (),
        retry_seconds: Sequence[float] = _RETRY_SECONDS,
    ) -> None:
        self._place = place
        self._weights = weights
        self._needs_weights = needs_weights
        self._check = check
        self._reports = reports
        self._retry_seconds = retry_seconds
        self._token: str | None = None

    def run(self) -> Fetched:
        """Return what is there now. Raises HubError."""
        place = self._place
        try:
            if (
                constants.is_offline_mode()
            ):  # before anything is written: the cache may be read-only
                raise OfflineModeIsEnabled
            watch_answers()
            self._token = _token()
            with self._alone():
                commit, files = self._listing()
                place = replace(place, pinned=commit)
                return self._fill(commit, files)
        except Exception as error:
            raise explained(error, place, has_token=bool(self._token)) from error

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock of this model in this cache: a second process waits, and then finds the
        files. The kernel releases the lock of a process that dies."""
        place = self._place
        place.locks.mkdir(parents=True, exist_ok=True)
        waiting = False
        while True:
            with contextlib.ExitStack() as stack:
                try:
                    stack.enter_context(
                        WeakFileLock(place.locks / "quire.lock", timeout=_LOCK_SECONDS)
                    )
                except TimeoutError:
                    if not waiting:
                        _log.info("waiting for another process that downloads", model=place.name)
                    waiting = True
                    continue
                yield
                return

    def _listing(self) -> tuple[str, list[HubFile]]:
        """Return the commit that the revision is now, and its files."""
        place = self._place
        with reading_answers():
            info = HfApi(token=self._token or False).model_info(
                place.name,
                revision=place.pinned or place.revision,
                files_metadata=True,
                timeout=ASK_SECONDS,
            )
            files = [
                HubFile(
                    check_path(one.rfilename),
                    None if one.size is None else max(0, one.size),
                    check_digest(one.lfs.sha256 if one.lfs is not None else one.blob_id or ""),
                )
                for one in info.siblings or ()
            ]
            commit = check_commit(info.sha)
        if place.variant is None:
            check_servable(place.name, files, weights=self._needs_weights)
        return commit, files

    def _fill(self, commit: str, files: Sequence[HubFile]) -> Fetched:
        place = self._place
        # A GGUF file has all of it.
        small = small_files(files) if place.variant is None else []
        for file in small:
            if file.size is not None and file.size > _MOST_SMALL_BYTES:
                raise HubError(
                    f"{file.name} of '{place.name}' has {in_units(file.size)}, and at most "
                    f"{in_units(_MOST_SMALL_BYTES)} are read; choose another repository"
                )
        self._check_room(commit, small)
        directory = place.snapshot(commit)
        known = place.record(commit).files.items()
        checked = {name: file for name, file in known if is_unchanged(directory / name, file)}
        checked |= self._fetch(commit, small, checked, ())
        if place.variant is None:
            self._check(directory)
        weights = []
        if place.variant is not None:
            weights = gguf_files(place.name, files, place.variant)
        elif self._needs_weights:
            has_index = any(file.name == WEIGHTS_INDEX for file in small)
            index = (directory / WEIGHTS_INDEX).read_bytes() if has_index else None
            weights = weight_files(place.name, files, index)
        self._check_room(commit, weights)
        if self._weights:
            checked |= self._fetch(commit, weights, checked, self._reports)
        wanted = [*small, *weights]
        record = Record(
            self._needs_weights and all(file.name in checked for file in wanted),
            {file.name: checked[file.name] for file in wanted if file.name in checked},
        )
        if record.is_whole or not self._needs_weights:
            # Not before: an offline start takes what the revision names for whole.
            place.set_commit(commit)
        place.write_record(commit, record)
        return Fetched(
            commit,
            directory,
            record.is_whole,
            len(wanted),
            sum(_size(file, checked) for file in wanted),
        )

    def _check_room(self, commit: str, files: Sequence[HubFile]) -> None:
        """Raise HubError if the disk cannot hold what is missing, as far as sizes are known."""
        known = [file for file in files if file.size is not None]
        needed = sum(file.size or 0 for file in known) - bytes_there(self._place, commit, known)
        self._place.folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self._place.folder).free
        if needed > free:
            raise no_room(self._place, needed, free)

    def _fetch(
        self,
        commit: str,
        files: Sequence[HubFile],
        checked: dict[str, CheckedFile],
        reports: Sequence[Report],
    ) -> dict[str, CheckedFile]:
        """Have all the files, and return them as they were found right."""
        pool = ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="download")
        with Progress(self._place, commit, files, reports):
            try:
                pending = {
                    pool.submit(self._fetch_one, commit, file, checked.get(file.name)): file.name
                    for file in files
                }
                return {pending[one]: one.result() for one in as_completed(pending)}
            finally:
                # After a failure the others are not waited for: each may take an hour.
                pool.shutdown(wait=False, cancel_futures=True)

    def _fetch_one(self, commit: str, file: HubFile, checked: CheckedFile | None) -> CheckedFile:
        path = self._place.snapshot(commit) / file.name
        if checked is not None and checked.digest == file.digest:
            return checked
        if path.exists() and not self._is_right(path, file):
            _log.warning("a file in the cache is damaged, and is downloaded again", file=file.name)
            self._remove(path)
        for delay in (*self._retry_seconds, None):
            try:
                with reading_answers():
                    self._download(commit, file)
                break
            except Exception as error:
                if delay is None or not is_transient(error):
                    raise
                _log.warning("trouble with the network", file=file.name, retry_seconds=delay)
                time.sleep(delay)
        if not self._is_right(path, file):
            self._remove(path)
            raise WrongChecksumError(
                f"{file.name} of '{self._place.name}' has another checksum than the hub announced; "
                "it was deleted: start again, and if it happens again, look for a faulty proxy or "
                "mirror (HF_ENDPOINT), or a faulty disk"
            )
        found = path.stat()
        return CheckedFile(found.st_size, found.st_mtime_ns, file.digest)

    def _download(self, commit: str, file: HubFile) -> None:
        most = file.size
        if most is None and small_files([file]):
            most = _MOST_SMALL_BYTES
        transfer = bounded_transfer(file.name, most)
        continue_partial(self._place, commit, file, self._token, transfer)
        hf_hub_download(
            self._place.name,
            file.name,
            revision=commit,
            cache_dir=self._place.cache,
            token=self._token or False,
            tqdm_class=transfer,
        )

    @staticmethod
    def _is_right(path: Path, file: HubFile) -> bool:
        has_size = file.size is None or path.stat().st_size == file.size
        if not file.digest:  # a mirror that has no checksums
            _log.warning("the hub states no checksum", file=file.name)
            return has_size
        return has_size and has_digest(path, file.digest)

    def _remove(self, path: Path) -> None:
        """Remove a file of a snapshot with its blob, so that neither is found again. The blob may
        be a link to one that several models of the cache share."""
        cache = self._place.cache.resolve()
        while path.parent.resolve().is_relative_to(cache):
            target = path.parent / os.readlink(path) if path.is_symlink() else None
            path.unlink(missing_ok=True)
            if target is None:
                return
            path = target
