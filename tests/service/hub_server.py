"""A hub on loopback, as the library huggingface_hub needs it: information about a repository, and
its files with ranges, checksums and redirects to a storage. Use it through ``HF_ENDPOINT``."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_WRITE_BYTES = 1 << 14
ENDLESS_BYTES = 1 << 28


def commit_of(files: Mapping[str, bytes]) -> str:
    """Return a commit's hash as a function of its content."""
    found = hashlib.sha1(usedforsecurity=False)
    for name in sorted(files):
        found.update(name.encode() + files[name])
    return found.hexdigest()


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


@dataclass
class Repository:
    """``files``: of its only commit. ``wrong``: bytes that are sent instead of a file's own.
    ``token``: that reads it; None: it is public. ``gated``: even with the token.
    ``has_checksums``, ``has_sizes``: as every hub has, and not every mirror. ``endless``: a file
    whose body begins right and has no end before ``ENDLESS_BYTES``."""

    files: dict[str, bytes]
    wrong: dict[str, bytes] = field(default_factory=dict)
    revisions: tuple[str, ...] = ("main",)
    token: str | None = None
    gated: bool = False
    has_checksums: bool = True
    has_sizes: bool = True
    endless: str = ""

    @classmethod
    def of(cls, directory: Path, **more: Any) -> Self:
        paths = (path for path in directory.rglob("*") if path.is_file())
        return cls({str(path.relative_to(directory)): path.read_bytes() for path in paths}, **more)

    @property
    def commit(self) -> str:
        return commit_of(self.files)

    def is_large(self, name: str) -> bool:
        return name.endswith((".safetensors", ".bin", ".gguf"))

    def digest(self, name: str) -> str:
        data = self.files[name]
        return hashlib.sha256(data).hexdigest() if self.is_large(name) else git_sha1(data)


@dataclass
class Request:
    method: str
    path: str
    range: str | None
    authorization: str | None
    sent: int = 0


Answer = tuple[int, dict[str, str], Iterable[bytes]]


class HubServer:
    """``with HubServer({"tiny/model": Repository(...)}) as hub``. ``pause_at``: stop sending a
    large file at this many bytes of a response until ``go_on`` is set. ``instead``: returns the
    status, the headers and the pieces of another answer to a request, or None."""

    def __init__(self, repositories: dict[str, Repository], *, storage: bool = False) -> None:
        self.repositories = repositories
        self.requests: list[Request] = []
        self.pause_at: int | None = None
        self.instead: Callable[[Request], Answer | None] = lambda _: None
        self.go_on = threading.Event()
        self.paused = threading.Event()
        self.uses_storage = storage
        hub = self

        class Handler(_Handler):
            server_of = hub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        # Another host name, to which no token may be sent.
        self.storage_url = f"http://localhost:{self.port}/storage"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()

    def downloads(self, name: str) -> list[Request]:
        """The requests that got a part of this file."""
        return [one for one in self.requests if one.method == "GET" and one.path.endswith(name)]

    def environment(self, cache: Path, **more: str) -> dict[str, str]:
        """Variables for a process that uses this hub and this cache, and no token of the user."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(cache),
            "HF_HUB_CACHE": str(cache / "hub"),
            "HF_TOKEN_PATH": str(cache / "token"),
            "HF_TOKEN": "",
            "HF_HUB_OFFLINE": "0",
            **more,
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of: HubServer

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        parts = [urllib.parse.unquote(part) for part in url.path.strip("/").split("/")]
        self.request_seen = Request(
            self.command, url.path, self.headers.get("Range"), self.headers.get("Authorization")
        )
        self.server_of.requests.append(self.request_seen)
        if (other := self.server_of.instead(self.request_seen)) is not None:
            self._send_other(*other)
        elif parts[:2] == ["api", "models"]:
            self._information(parts[2:])
        elif parts[0] == "storage":
            repository = self.server_of.repositories["/".join(parts[1:3])]
            self._file(repository, "/".join(parts[3:]))
        elif len(parts) >= 5 and parts[2] == "resolve":
            self._resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        else:
            self._refuse(404, "", "no such route")

    def _known(self, name: str, revision: str, *, is_file: bool) -> Repository | None:
        """Return the repository, or answer why not."""
        repository = self.server_of.repositories.get(name)
        given = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        tokens = {one.token for one in self.server_of.repositories.values() if one.token}
        if given and given not in tokens:
            return self._refuse(401, "", "Invalid credentials in Authorization header")
        if repository is None or (repository.token and not repository.gated and not given):
            return self._refuse(404 if given else 401, "RepoNotFound", "Repository not found")
        if is_file and repository.gated:
            return self._refuse(403 if given else 401, "GatedRepo", "Access is restricted")
        if revision not in (*repository.revisions, repository.commit):
            return self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return repository

    def _information(self, parts: list[str]) -> None:
        revision = "/".join(parts[3:]) if parts[2:3] == ["revision"] else "main"
        name = "/".join(parts[:2])
        repository = self._known(name, revision, is_file=False)
        if repository is None:
            return
        siblings = [
            {
                "rfilename": file,
                **({"size": len(data)} if repository.has_sizes else {}),
                **({"blobId": git_sha1(data)} if repository.has_checksums else {}),
                **(
                    {
                        "lfs": {
                            "sha256": repository.digest(file),
                            "size": len(data),
                            "pointerSize": 1,
                        }
                    }
                    if repository.is_large(file) and repository.has_checksums
                    else {}
                ),
            }
            for file, data in repository.files.items()
        ]
        body = {"_id": "1", "id": name, "sha": repository.commit, "siblings": siblings}
        data = json.dumps({**body, "private": False, "tags": [], "downloads": 0}).encode()
        self._head(200, {"Content-Type": "application/json", "Content-Length": str(len(data))})
        self.wfile.write(data)

    def _resolve(self, name: str, revision: str, file: str) -> None:
        repository = self._known(name, revision, is_file=True)
        if repository is None:
            return
        if file not in repository.files:
            self._refuse(404, "EntryNotFound", "Entry not found")
            return
        if not (self.server_of.uses_storage and repository.is_large(file)):
            self._file(repository, file)
            return
        location = f"{self.server_of.storage_url}/{name}/{file}"
        self._head(302, {**self._facts(repository, file), "Location": location})

    @staticmethod
    def _facts(repository: Repository, file: str) -> dict[str, str]:
        digest = repository.digest(file)
        facts = {"X-Repo-Commit": repository.commit, "ETag": f'"{digest}"', "Content-Length": "0"}
        if repository.is_large(file):
            size = str(len(repository.files[file]))
            facts |= {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": size}
        return facts

    def _file(self, repository: Repository, file: str) -> None:
        data = repository.wrong.get(file, repository.files[file])
        asked = self.headers.get("Range")
        begin = 0 if asked is None else int(asked.removeprefix("bytes=").split("-")[0])
        part = data[begin:]
        headers = {**self._facts(repository, file), "Content-Length": str(len(part))}
        if asked is not None:
            headers["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        if file == repository.endless and self.command == "GET":
            headers |= {"Content-Length": "", "Transfer-Encoding": "chunked"}
        self._head(200 if asked is None else 206, {**headers, "Accept-Ranges": "bytes"})
        if file == repository.endless and self.command == "GET":
            self._send_without_end(part)
        elif self.command == "GET":
            self._send(part, pauses=repository.is_large(file))

    def _send(self, part: bytes, *, pauses: bool) -> None:
        hub = self.server_of
        for first in range(0, len(part), _WRITE_BYTES):
            if pauses and hub.pause_at is not None and first >= hub.pause_at:
                hub.paused.set()
                hub.go_on.wait()
            try:
                self.wfile.write(part[first : first + _WRITE_BYTES])
            except OSError:  # the client was killed
                self.close_connection = True
                return
            self.request_seen.sent += len(part[first : first + _WRITE_BYTES])

    def _send_other(self, status: int, headers: dict[str, str], pieces: Iterable[bytes]) -> None:
        self._head(status, {**headers, "Transfer-Encoding": "chunked"})
        self.close_connection = True
        with contextlib.suppress(OSError):  # the client may leave
            for piece in pieces:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.request_seen.sent += len(piece)
            self.wfile.write(b"0\r\n\r\n")

    def _send_without_end(self, part: bytes) -> None:
        self.close_connection = True
        piece = part or b"x"
        with contextlib.suppress(OSError):  # the client leaves, as it should
            while self.request_seen.sent < ENDLESS_BYTES:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.request_seen.sent += len(piece)
                piece = b"x" * (1 << 20)
            self.wfile.write(b"0\r\n\r\n")

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._head(
            status, {"X-Error-Code": code, "X-Error-Message": message, "Content-Length": "0"}
        )

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
