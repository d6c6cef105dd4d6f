"""Files of a download that was interrupted, and how it is continued.

The library writes each file as ``DIGEST.XXXXXXXX.incomplete``, under another name in each process
(older releases: ``DIGEST.incomplete``), and begins anew after a crash. Here the longest of them is
continued by the library's own range request, and the others, which would never be read again,
are deleted.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from pathlib import Path

from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import WeakFileLock, build_hf_headers, tqdm

from observability.logging import get_logger
from service.hub.checksums import has_digest
from service.hub.errors import HubError
from service.hub.place import ModelPlace
from service.hub.wanted import HubFile

_SUFFIX = ".incomplete"

_log = get_logger()


def partial_files(blobs: Path) -> dict[str, list[Path]]:
    """Return unfinished files by what their blob's name will be."""
    found: dict[str, list[Path]] = defaultdict(list)
    with contextlib.suppress(OSError):
        for path in blobs.iterdir():
            if path.name.endswith(_SUFFIX):
                found[path.name.partition(".")[0]].append(path)
    return found


def continue_partial(
    place: ModelPlace, commit: str, file: HubFile, token: str | None, transfer: type[tqdm]
) -> None:
    """Finish the file's blob if a part of it is there. Without one, or if the whole turns out to be
    wrong, nothing is left of it, and the file is to be downloaded. Raises what the library and
    ``transfer`` raise."""
    if file.digest not in partial_files(place.blobs):
        return
    url = hf_hub_url(place.name, file.name, revision=commit, endpoint=constants.ENDPOINT)
    metadata = get_hf_file_metadata(url, token=token)
    # The library's lock: another program may be writing one of them.
    place.locks.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(place.locks / f"{file.digest}.lock"):
        parts = sorted(
            partial_files(place.blobs)[file.digest], key=lambda path: path.stat().st_size
        )
        # A file that comes as chunks (xet) is not written from its begin to its end.
        longest = parts.pop() if parts and metadata.xet_file_data is None else None
        for path in parts:
            path.unlink(missing_ok=True)
        if longest is None or metadata.etag != file.digest:
            return
        # A token is for the hub, and not for the storage that it may redirect to.
        own = metadata.location.startswith(constants.ENDPOINT + "/") or metadata.location == url
        headers = build_hf_headers(token=token if own and token else False)
        blob = place.blobs / file.digest
        _finish(longest, blob, file, metadata.location, headers, transfer)


def _finish(
    part: Path,
    blob: Path,
    file: HubFile,
    location: str,
    headers: dict[str, str],
    transfer: type[tqdm],
) -> None:
    begin = part.stat().st_size
    if file.size is not None and begin > file.size:
        part.unlink()
        return
    _log.info("continuing a download", file=file.name, at_bytes=begin, total_bytes=file.size)
    try:
        with part.open("r+b") as stream:
            stream.seek(begin)
            http_get(
                location,
                stream,
                resume_size=begin,
                headers=headers,
                expected_size=file.size,
                tqdm_class=transfer,
            )
    except HubError:
        part.unlink()
        raise
    if not has_digest(part, file.digest):
        _log.warning("a continued download is wrong, and begins anew", file=file.name)
        part.unlink()
        return
    part.rename(blob)
