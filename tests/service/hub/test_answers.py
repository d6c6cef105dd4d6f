"""An untrusted hub cannot reach a file outside the cache."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from service.hub.answers import check_commit, check_digest, check_path
from service.hub.errors import HubError
from service.hub.fetching import Fetching
from tests.service.hub.test_fetching import hub, place
from tests.service.hub_server import ENDLESS_BYTES, Answer, HubServer, Request, _Handler

__all__ = ["hub"]

_PIECE = b" " * (1 << 20)
_ENDLESS = list(itertools.repeat(_PIECE, ENDLESS_BYTES // len(_PIECE)))


@pytest.mark.parametrize(
    "name",
    [
        *("../x", "a/../../x", "/etc/x", "a//b", "a/./b", "", "a\\b", "\0"),
        "\ud800.json",
        *("\x1b]0;title\x07.bin", "a\nb.json", "\x9b2J.json", "\x7f"),
    ],
)
def test_a_file_s_name_leads_below_its_directory(name: str) -> None:
    with pytest.raises(HubError, match="name of a file"):
        check_path(name)
    for sound in ("1_Pooling/config.json", "Grüße \N{WOMAN}\u200d\N{WOMAN}.md"):
        assert check_path(sound) == sound


@pytest.mark.parametrize(
    ("check", "wrong"),
    [(check_commit, None), (check_commit, "main"), (check_commit, "../x")]
    + [(check_digest, wrong) for wrong in ("x", "../x", "A" * 64, "a" * 41)],
)
def test_hashes_are_hashes(check: Callable[[Any], str], wrong: str | None) -> None:
    with pytest.raises(HubError, match="wrong form"):
        check(wrong)
    assert check("a" * 40) == "a" * 40


@pytest.mark.parametrize(
    "facts",
    [
        {"ETag": '"../../../../victim/written"'},
        {"ETag": '"/victim"'},
        {"ETag": '"..."'},
        {"ETag": f'"{"a" * 256}"'},
        {"X-Linked-Etag": '"../../../../victim/written"'},
        {"X-Xet-Hash": "../../victim", "X-Xet-Refresh-Route": "/x"},
        {"X-Repo-Commit": "../../victim"},
    ],
)
def test_nothing_is_written_where_an_answer_points(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, facts: dict[str, str]
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "there").write_text("mine")
    own = _Handler._facts

    def told(*given: Any) -> dict[str, str]:
        return {**own(*given), **facts}

    monkeypatch.setattr(_Handler, "_facts", staticmethod(told))
    with pytest.raises(HubError, match="wrong form"):
        Fetching(place(tmp_path / "cache"), retry_seconds=()).run()
    assert [path.name for path in victim.iterdir()] == ["there"]
    assert (victim / "there").read_text() == "mine"


def test_no_file_outside_the_cache_is_removed(hub: HubServer, tmp_path: Path) -> None:
    files = hub.repositories["tiny/model"].files
    victim = tmp_path / "config.json"
    victim.write_text("mine")
    files["1_Pooling/" + "../" * 6 + "config.json"] = b"{}"
    with pytest.raises(HubError, match="name of a file"):
        Fetching(place(tmp_path / "cache")).run()
    assert victim.read_text() == "mine"


def test_a_damaged_blob_that_models_share_is_downloaded_again(
    hub: HubServer, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    directory = Fetching(place(cache)).run().directory
    path = directory / "tokenizer.json"
    blob = path.resolve()
    shared = cache / "blobs" / "aa" / "shared"
    shared.parent.mkdir(parents=True)
    shared.write_bytes(blob.read_bytes()[:-1] + b"?")
    blob.unlink()
    blob.symlink_to(shared)
    assert Fetching(place(cache)).run().is_whole
    assert path.read_bytes() == hub.repositories["tiny/model"].files["tokenizer.json"]
    assert not shared.exists()


@pytest.mark.parametrize(
    ("end", "status", "encoding", "pieces"),
    [
        ("/revision/main", 200, "", _ENDLESS),
        ("/revision/main", 200, "gzip", [gzip.compress(b"".join(_ENDLESS))]),
        ("/revision/main", 404, "", _ENDLESS),
        ("/config.json", 403, "", _ENDLESS),
        ("/config.json", 403, "gzip", [gzip.compress(_PIECE * 2)]),
    ],
    ids=["information", "packed-information", "error", "file-error", "packed-file-error"],
)
def test_an_answer_that_is_not_a_file_and_too_large_is_not_read(
    hub: HubServer,
    tmp_path: Path,
    end: str,
    status: int,
    encoding: str,
    pieces: Iterable[bytes],
) -> None:
    def instead(request: Request) -> Answer | None:
        if request.method == "HEAD" or not request.path.endswith(end):
            return None
        return status, {"Content-Type": "application/json", "Content-Encoding": encoding}, pieces

    hub.instead = instead
    with pytest.raises(HubError, match=f"HTTP {status}.* is not a file and has more than"):
        Fetching(place(tmp_path), retry_seconds=(0.0,)).run()
    (request,) = hub.downloads(end)
    assert request.sent < ENDLESS_BYTES


@pytest.mark.parametrize(
    "body",
    [
        b"null",
        b"[]",
        b"[" * 100_000,
        b"\xff",
        b'{"id": "tiny/model", "sha": 5, "siblings": []}',
        b'{"id": "tiny/model", "siblings": "abc"}',
        b'{"id": "tiny/model", "siblings": [{"rfilename": 5}]}',
        b'{"id": "tiny/model", "siblings": [{"rfilename": "config.json", "size": "1"}]}',
        b'{"id": "tiny/model", "siblings": '
        b'[{"rfilename": "a.gguf", "lfs": {"sha256": 5, "size": 1, "pointerSize": 1}}]}',
    ],
    ids=["null", "list", "deep", "no-utf-8", "commit", "files", "name", "size", "digest"],
)
def test_information_that_is_not_a_hub_s_is_said(
    hub: HubServer, tmp_path: Path, body: bytes
) -> None:
    hub.instead = lambda _: (200, {"Content-Type": "application/json"}, [body])
    with pytest.raises(HubError, match="does not answer as a hub does; check HF_ENDPOINT"):
        Fetching(place(tmp_path), retry_seconds=()).run()


def test_an_error_that_is_not_a_hub_s_is_said(hub: HubServer, tmp_path: Path) -> None:
    def instead(request: Request) -> Answer | None:
        return (403, {}, [b"[]"]) if hub.downloads("/config.json") else None

    hub.instead = instead
    with pytest.raises(HubError, match="does not answer as a hub does; check HF_ENDPOINT"):
        Fetching(place(tmp_path), retry_seconds=()).run()
