"""Filling a place in the cache, within this process. Whole starts are in test_pull.py."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from huggingface_hub import constants, get_token

from pocket import MODEL_DIR
from service.hub import fetching
from service.hub.errors import (
    HubError,
    HubUnreachableError,
    NotServableError,
    WrongChecksumError,
)
from service.hub.fetching import Fetching
from service.hub.place import ModelPlace
from service.hub.wanted import WEIGHTS_INDEX
from tests.service.hub_server import ENDLESS_BYTES, HubServer, Repository, Request

NAME = "tiny/model"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with HubServer({NAME: Repository.of(MODEL_DIR)}) as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
        monkeypatch.setattr(fetching, "get_token", lambda: None)
        yield server
        # A failure leaves transfers running. They would close the client that the library shares
        # under the next test.
        for thread in threading.enumerate():
            if thread.name.startswith("download"):
                thread.join(60)
                assert not thread.is_alive()


def place(cache: Path) -> ModelPlace:
    return ModelPlace(NAME, "main", cache)


def test_first_all_but_the_weights_then_those(hub: HubServer, tmp_path: Path) -> None:
    reports: list[tuple[int, int]] = []
    first = Fetching(place(tmp_path), weights=False).run()
    names = {path.name for path in first.directory.iterdir()}
    assert "tokenizer.json" in names
    assert "model.safetensors" not in names
    assert not first.is_whole
    assert place(tmp_path).commit() is None  # until all of it is there
    pinned = ModelPlace(NAME, "main", tmp_path, first.commit)
    rest = Fetching(pinned, reports=[lambda *one: reports.append(one)]).run()
    assert rest.is_whole
    assert place(tmp_path).whole_snapshot() == first.directory == rest.directory
    size = (MODEL_DIR / "model.safetensors").stat().st_size
    assert (reports[0], reports[-1]) == ((0, size), (size, size))
    assert len(hub.downloads("/config.json")) == 1


def test_what_was_whole_and_lost_its_weights_is_not(hub: HubServer, tmp_path: Path) -> None:
    directory = Fetching(place(tmp_path)).run().directory
    (directory / "model.safetensors").unlink()
    assert not Fetching(place(tmp_path), weights=False).run().is_whole


def test_random_weights_need_none_and_leave_the_model_unfinished(
    hub: HubServer, tmp_path: Path
) -> None:
    del hub.repositories[NAME].files["model.safetensors"]
    found = Fetching(place(tmp_path), weights=False, needs_weights=False).run()
    assert (found.directory / "config.json").exists()
    assert place(tmp_path).whole_snapshot() is None
    with pytest.raises(NotServableError):
        Fetching(place(tmp_path)).run()


def test_shards_are_those_of_the_index(hub: HubServer, tmp_path: Path) -> None:
    files = hub.repositories[NAME].files
    files["a.safetensors"] = files.pop("model.safetensors")
    files["consolidated.safetensors"] = b"the same again"
    files[WEIGHTS_INDEX] = b'{"weight_map": {"w": "a.safetensors"}}'
    found = Fetching(place(tmp_path)).run()
    names = {path.name for path in found.directory.iterdir()}
    assert {"a.safetensors", WEIGHTS_INDEX} < names
    assert "consolidated.safetensors" not in names


def test_a_disk_that_cannot_hold_it_is_said_before_the_first_byte_of_weights(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage(NamedTuple):
        free: int

    weights = (MODEL_DIR / "model.safetensors").stat().st_size
    free = [weights - 1000]
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(free[0]))
    size = f"{weights / 1e6:.1f} MB"
    with pytest.raises(HubError, match=f"needs {size} more in .*, where {size} are free"):
        Fetching(place(tmp_path)).run()
    assert hub.downloads("model.safetensors") == []
    free[0] = weights + 100_000
    assert Fetching(place(tmp_path)).run().is_whole


def test_trouble_with_the_network_is_retried(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TransportError(Exception):
        pass

    real, failures = fetching.hf_hub_download, [TransportError("reset"), TransportError("reset")]

    def flaky(name: str, file: str, **more: Any) -> str:
        if file == "model.safetensors" and failures:
            raise failures.pop()
        return str(real(name, file, **more))

    monkeypatch.setattr(fetching, "hf_hub_download", flaky)
    assert Fetching(place(tmp_path), retry_seconds=(0.0, 0.0)).run().is_whole
    shutil.rmtree(tmp_path / "models--tiny--model")
    failures += [TransportError("reset")] * 2
    with pytest.raises(HubUnreachableError, match="reset"):
        Fetching(place(tmp_path), retry_seconds=(0.0,)).run()


def test_a_cache_that_is_a_file_is_said(hub: HubServer, tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    with pytest.raises(HubError, match=r"cannot keep .tiny/model. in .*Not a directory"):
        Fetching(place(tmp_path / "cache")).run()


def test_a_mirror_without_checksums_is_checked_by_size(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = hub.repositories[NAME]
    repository.has_checksums = False
    assert Fetching(place(tmp_path)).run().is_whole
    shutil.rmtree(tmp_path / "models--tiny--model")
    repository.wrong["config.json"] = b"{}"
    with pytest.raises(WrongChecksumError, match=r"config\.json"):
        Fetching(place(tmp_path)).run()


@pytest.mark.parametrize("has_checksums", [True, False])
def test_a_mirror_without_sizes_can_be_used(
    has_checksums: bool, hub: HubServer, tmp_path: Path
) -> None:
    repository = hub.repositories[NAME]
    repository.has_sizes, repository.has_checksums = False, has_checksums
    reports: list[tuple[int, int]] = []
    found = Fetching(place(tmp_path), reports=[lambda *one: reports.append(one)]).run()
    assert found.is_whole
    assert found.size == sum(path.stat().st_size for path in found.directory.iterdir())
    size = (MODEL_DIR / "model.safetensors").stat().st_size
    assert (reports[0], reports[-1]) == ((0, 0), (size, size))


@pytest.mark.parametrize(
    ("name", "has_sizes"),
    [("tokenizer.json", True), ("tokenizer.json", False), ("model.safetensors", True)],
)
@pytest.mark.parametrize("begun", [0, 1000], ids=["new", "resumed"])
def test_a_file_that_has_no_end_is_not_written(
    name: str,
    begun: int,
    has_sizes: bool,
    hub: HubServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repository = hub.repositories[NAME]
    repository.endless, repository.has_sizes = name, has_sizes
    monkeypatch.setattr(fetching, "_MOST_SMALL_BYTES", 1 << 20)
    where = place(tmp_path)
    if begun:
        where.blobs.mkdir(parents=True)
        part = where.blobs / f"{repository.digest(name)}.0badbad0.incomplete"
        part.write_bytes(repository.files[name][:begun])
    with pytest.raises(HubError, match=f"the hub sends more than .* of {name}, the file's limit"):
        Fetching(where, retry_seconds=()).run()
    assert [*where.blobs.glob(f"{repository.digest(name)}*")] == []
    assert max(request.sent for request in hub.downloads(name)) < ENDLESS_BYTES


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read the token file {path}: Is a directory; correct the file or"),
        (b"hf_\xff", "cannot read the token file {path}: it is not text in UTF-8; correct"),
        ("hf_Grüße".encode(), "the token has characters that are not allowed in tokens; correct"),
        (b"hf_a\x1bb", "the token has characters that are not allowed in tokens; correct"),
    ],
    ids=["directory", "not-utf-8", "not-ascii", "control-character"],
)
def test_a_token_that_cannot_be_used_is_said(
    hub: HubServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes | None,
    said: str,
) -> None:
    path = tmp_path / "token"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(path))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_OIDC_RESOURCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(fetching, "get_token", get_token)
    with pytest.raises(HubError, match=re.escape(said.format(path=path))):
        Fetching(place(tmp_path / "cache")).run()
    assert hub.requests == []


def test_a_repository_that_changes_during_a_download_is_said(
    hub: HubServer, tmp_path: Path
) -> None:
    repository = hub.repositories[NAME]
    before = repository.commit

    def instead(request: Request) -> None:
        if request.method == "GET" and request.path.endswith("/tokenizer.json"):
            repository.files["new.md"] = b"x"

    hub.instead = instead
    with pytest.raises(HubError, match=f"no longer has commit {before}.*; start again$"):
        Fetching(place(tmp_path), retry_seconds=()).run()
    hub.instead = lambda _: None
    assert Fetching(place(tmp_path)).run().commit == repository.commit


def test_of_a_repository_of_gguf_files_only_the_one_asked_for(
    hub: HubServer, tmp_path: Path
) -> None:
    content = {f"model-{one}.gguf": one.encode() * 1000 for one in ("Q4_0", "Q8_0")}
    hub.repositories[NAME] = Repository({"README.md": b"x", **content})
    with pytest.raises(NotServableError, match="only in GGUF files: name one, as in"):
        Fetching(place(tmp_path)).run()
    chosen = ModelPlace(NAME, "main", tmp_path, variant="Q8_0")
    found = Fetching(chosen).run()
    assert found.is_whole
    assert [path.name for path in found.directory.iterdir()] == ["model-Q8_0.gguf"]
    file = chosen.gguf_in(found.directory)
    assert file is not None
    assert file.read_bytes() == content["model-Q8_0.gguf"]
    assert chosen.whole_snapshot() == found.directory
    assert ModelPlace(NAME, "main", tmp_path, variant="Q4_0").whole_snapshot() is None


def test_all_parts_of_a_gguf_model_are_fetched_and_counted(hub: HubServer, tmp_path: Path) -> None:
    parts = [f"Q8_0/model-Q8_0-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    content = {name: name.encode() * 1000 for name in parts}
    hub.repositories[NAME] = Repository({"model-Q4_0.gguf": b"GGUF", **content})
    chosen = ModelPlace(NAME, "main", tmp_path, variant="Q8_0")
    reports: list[tuple[int, int]] = []
    found = Fetching(chosen, reports=[lambda *report: reports.append(report)]).run()
    total = sum(map(len, content.values()))
    assert (found.is_whole, found.files, found.size) == (True, 3, total)
    assert reports[-1] == (total, total)
    assert {*(found.directory / "Q8_0").iterdir()} == {found.directory / name for name in parts}
    assert chosen.gguf_in(found.directory) == found.directory / parts[0]
    assert chosen.whole_snapshot() == found.directory
    (found.directory / parts[2]).unlink()
    assert chosen.whole_snapshot() is None
    hub.repositories[NAME].wrong[parts[1]] = b"x" * len(content[parts[1]])
    shutil.rmtree(chosen.folder)
    with pytest.raises(WrongChecksumError, match=r"^Q8_0/model-Q8_0-00002-of-00003\.gguf"):
        Fetching(chosen).run()
