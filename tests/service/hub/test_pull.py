"""``quire pull`` against a hub on loopback: the whole way, in separate processes."""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pocket import MODEL_DIR
from service.hub.place import ModelPlace
from tests.service.hub_server import Answer, HubServer, Repository, Request
from tests.service.running import ROOT, until

NAME = "tiny/model"
# More than two of the pieces of 10 MB in which the library writes.
SIZE = 24_000_000
PIECE = 10 * 1024 * 1024


def repository(**more: Any) -> Repository:
    """Weights that take a while, and what no server needs."""
    found = Repository.of(MODEL_DIR, **more)
    found.files["model.safetensors"] = random.Random(7).randbytes(SIZE)
    found.files["pytorch_model.bin"] = found.files["modeling_tiny.py"] = b"never"
    return found


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer({NAME: repository()}) as server:
        yield server


def start(
    hub: HubServer,
    cache: Path,
    *arguments: str,
    command: str = "pull",
    prepare: Callable[[], None] | None = None,
    **environment: str,
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "service.cli", command, *(arguments or (NAME,))],
        cwd=ROOT,
        env={**os.environ, **hub.environment(cache, **environment)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=prepare,
    )


def pull(hub: HubServer, cache: Path, *arguments: str, **more: Any) -> tuple[int, str, str]:
    """Return the exit status, what it printed, and the lines on stderr that are not log lines."""
    process = start(hub, cache, *arguments, **more)
    output, errors = process.communicate(timeout=120)
    said = [line for line in errors.splitlines() if not line.startswith("{")]
    return process.returncode, output, "\n".join(said)


def place(cache: Path, revision: str = "main") -> ModelPlace:
    return ModelPlace(NAME, revision, cache / "hub")


def files_of(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


def is_whole(hub: HubServer, cache: Path) -> bool:
    """True if the cache has exactly what a server needs, each file to the byte."""
    directory = place(cache).whole_snapshot()
    known = hub.repositories[NAME].files
    needed = {name: data for name, data in known.items() if name not in UNNEEDED}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in needed.items()}
    return directory is not None and files_of(directory) == digests


UNNEEDED = ("pytorch_model.bin", "modeling_tiny.py", "MANIFEST.json")


def leftovers(cache: Path) -> list[Path]:
    return list((cache / "hub").rglob("*.incomplete"))


def test_what_a_server_needs_is_fetched_once_and_nothing_else(
    hub: HubServer, tmp_path: Path
) -> None:
    status, output, said = pull(hub, tmp_path)
    assert (status, said) == (0, "")
    assert "6 files, 24.0 MB, all checksums right" in output
    assert is_whole(hub, tmp_path)
    asked = {request.path.rpartition("/")[2] for request in hub.requests}
    assert not asked & set(UNNEEDED)
    hub.requests.clear()
    assert pull(hub, tmp_path)[0] == 0
    assert [request.path for request in hub.requests] == [f"/api/models/{NAME}/revision/main"]
    hub.requests.clear()
    assert pull(hub, tmp_path, NAME, "--if-missing")[0] == 0
    assert pull(hub, tmp_path, NAME, "--revision", hub.repositories[NAME].commit)[0] == 0
    assert hub.requests == []


def test_a_download_goes_on_after_it_was_killed(hub: HubServer, tmp_path: Path) -> None:
    hub.pause_at = 2 * PIECE + 100_000
    process = start(hub, tmp_path)
    assert hub.paused.wait(30)
    until(lambda: [p for p in leftovers(tmp_path) if p.stat().st_size == 2 * PIECE], 20, "pieces")
    process.kill()
    process.communicate()
    hub.pause_at = None
    hub.go_on.set()
    assert place(tmp_path).commit() is None  # an offline start must not take it for whole
    assert pull(hub, tmp_path)[0] == 0
    assert is_whole(hub, tmp_path)
    _, second = hub.downloads("model.safetensors")
    assert second.range == f"bytes={2 * PIECE}-"
    assert second.sent == SIZE - 2 * PIECE
    assert leftovers(tmp_path) == []


def test_a_part_that_was_damaged_is_not_continued_twice(hub: HubServer, tmp_path: Path) -> None:
    digest = hub.repositories[NAME].digest("model.safetensors")
    blobs = place(tmp_path).blobs
    blobs.mkdir(parents=True)
    (blobs / f"{digest}.0badbad0.incomplete").write_bytes(b"x" * 1000)
    (blobs / f"{digest}.00000000.incomplete").write_bytes(b"x")
    assert pull(hub, tmp_path)[0] == 0
    assert is_whole(hub, tmp_path)
    ranges = [request.range for request in hub.downloads("model.safetensors")]
    assert ranges == ["bytes=1000-", None]
    assert leftovers(tmp_path) == []


def test_three_at_once_fetch_once(hub: HubServer, tmp_path: Path) -> None:
    processes = [start(hub, tmp_path) for _ in range(3)]
    for process in processes:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "all checksums right" in output
    assert is_whole(hub, tmp_path)
    assert len(hub.downloads("model.safetensors")) == 1


def test_a_wrong_file_is_deleted_and_said(hub: HubServer, tmp_path: Path) -> None:
    repository = hub.repositories[NAME]
    wrong = bytearray(repository.files["model.safetensors"])
    wrong[12_345_678] ^= 1
    repository.wrong["model.safetensors"] = bytes(wrong)
    status, _, said = pull(hub, tmp_path)
    assert status == 1
    assert said.startswith("quire: model.safetensors of 'tiny/model' has another checksum")
    assert said.count("\n") == 0
    assert place(tmp_path).whole_snapshot() is None
    digest = repository.digest("model.safetensors")
    assert not (place(tmp_path).blobs / digest).exists()
    repository.wrong.clear()
    assert pull(hub, tmp_path)[0] == 0
    assert is_whole(hub, tmp_path)


def test_a_file_that_was_damaged_in_the_cache_is_fetched_again(
    hub: HubServer, tmp_path: Path
) -> None:
    assert pull(hub, tmp_path)[0] == 0
    directory = place(tmp_path).whole_snapshot()
    assert directory is not None
    with (directory / "model.safetensors").resolve().open("r+b") as file:
        file.write(b"damage")
    assert place(tmp_path).whole_snapshot() is None
    assert pull(hub, tmp_path, NAME, "--if-missing")[0] == 0
    assert is_whole(hub, tmp_path)


def test_a_disk_that_becomes_full_is_said(hub: HubServer, tmp_path: Path) -> None:
    limit = 15_000_000
    status, _, said = pull(
        hub,
        tmp_path,
        prepare=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert status == 1
    assert said.startswith(f"quire: no space is left for 'tiny/model' in {tmp_path / 'hub'}")
    assert said.count("\n") == 0
    assert place(tmp_path).whole_snapshot() is None


def test_without_a_network_a_whole_copy_does_and_a_part_does_not(
    hub: HubServer, tmp_path: Path
) -> None:
    assert pull(hub, tmp_path)[0] == 0
    away = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    status, output, _ = pull(hub, tmp_path, **away)
    assert (status, "all checksums right" in output) == (0, True)
    status, _, said = pull(hub, tmp_path / "empty", **away)
    assert status == 1
    assert said.startswith("quire: cannot reach http://127.0.0.1:9 for 'tiny/model' (")
    status, _, said = pull(hub, tmp_path / "empty", HF_HUB_OFFLINE="1")
    assert status == 1
    assert "HF_HUB_OFFLINE forbids asking the hub" in said
    # As another program leaves it: no record of ours.
    record = next((place(tmp_path).folder / "quire").iterdir())
    record.unlink()
    pooling = place(tmp_path).snapshot(record.stem) / "generation_config.json"
    pooling.unlink()
    status, output, _ = pull(hub, tmp_path, HF_HUB_OFFLINE="1")
    assert (status, "the hub was not asked whether this is complete" in output) == (0, True)
    assert not json.loads(record.read_bytes())["is_whole"]
    assert pull(hub, tmp_path, NAME, "--if-missing")[0] == 0
    assert is_whole(hub, tmp_path)
    record.unlink()
    (place(tmp_path).snapshot(record.stem) / "tokenizer.json").resolve().write_text("{}")
    status, _, said = pull(hub, tmp_path, HF_HUB_OFFLINE="1")
    assert status == 1
    assert "tokenizer.json of 'tiny/model'" in said
    assert "is damaged" in said


@pytest.mark.parametrize(
    ("more", "arguments", "token", "said"),
    [
        ({}, ("tiny/modle",), "", "there is no model 'tiny/modle'"),
        ({}, (NAME, "--revision", "v9"), "", "'tiny/model' has no revision 'v9'"),
        ({"token": "right"}, (NAME,), "", "it needs a token (HF_TOKEN)"),
        ({"token": "right"}, (NAME,), "wrong", "does not accept the token"),
        ({"token": "right", "gated": True}, (NAME,), "", "is gated"),
        ({"token": "right", "gated": True}, (NAME,), "right", "has no access to it yet"),
    ],
)
def test_each_refusal_is_one_sentence(
    tmp_path: Path, more: dict[str, Any], arguments: tuple[str, ...], token: str, said: str
) -> None:
    with HubServer({NAME: repository(**more)}) as hub:
        status, output, errors = pull(hub, tmp_path, *arguments, HF_TOKEN=token)
    assert (status, output) == (1, "")
    assert errors.startswith("quire: ")
    assert said in errors
    assert errors.count("\n") == 0


@pytest.mark.parametrize(
    ("kind", "name"), [("t5", "T5EncoderModel"), ("bloom", "BloomForCausalLM")]
)
def test_a_model_that_cannot_be_served_is_refused_before_its_weights(
    tmp_path: Path, kind: str, name: str
) -> None:
    refused = repository()
    refused.files["config.json"] = json.dumps(
        {"model_type": kind, "architectures": [name]}
    ).encode()
    with HubServer({NAME: refused}) as hub:
        status, output, said = pull(hub, tmp_path)
        served = start(hub, tmp_path, NAME, command="serve")
        _, errors = served.communicate(timeout=120)
        assert hub.downloads("model.safetensors") == []
    assert (status, output, served.returncode) == (1, "", 1)
    assert f"{name} is not supported" in said
    assert said in errors.splitlines()


@pytest.mark.parametrize("command", ["pull", "serve"])
def test_a_repository_s_words_do_not_reach_the_terminal_as_commands(
    command: str, tmp_path: Path
) -> None:
    files = (refused := repository()).files
    del files["model.safetensors"]
    files["model.safetensors.index.json"] = json.dumps(
        {"weight_map": {"a": "\x1b]0;title\x07"}}
    ).encode()
    with HubServer({NAME: refused}) as hub:
        process = start(hub, tmp_path, NAME, command=command)
        output, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "names \u241b]0;title\u2407, which is not a safetensors file" in errors
    assert "\x1b" not in output + errors


def test_a_model_that_only_other_settings_serve_is_fetched(tmp_path: Path) -> None:
    pooled = repository()
    pooled.files["modules.json"] = b'[{"type": "Pooling", "path": "1_Pooling"}]'
    pooled.files["1_Pooling/config.json"] = b'{"pooling_mode_max_tokens": true}'
    with HubServer({NAME: pooled}) as hub:
        assert pull(hub, tmp_path)[0] == 0


def test_a_token_comes_from_a_mounted_file_and_stays_with_the_hub(tmp_path: Path) -> None:
    token = tmp_path / "token-file"
    token.write_text("secret-token\n")
    with HubServer({NAME: repository(token="secret-token")}, storage=True) as hub:
        assert pull(hub, tmp_path, HF_TOKEN_PATH=str(token))[0] == 0
        sent = {request.authorization for request in hub.requests if "storage" in request.path}
        others = {request.authorization for request in hub.requests if "api" in request.path}
    assert sent == {None}
    assert others == {"Bearer secret-token"}


def test_a_part_is_continued_from_a_storage_that_gets_no_token(tmp_path: Path) -> None:
    with HubServer({NAME: repository(token="secret-token")}, storage=True) as hub:
        weights = hub.repositories[NAME].files["model.safetensors"]
        blobs = place(tmp_path).blobs
        blobs.mkdir(parents=True)
        digest = hub.repositories[NAME].digest("model.safetensors")
        (blobs / f"{digest}.incomplete").write_bytes(weights[:5_000_000])
        assert pull(hub, tmp_path, HF_TOKEN="secret-token")[0] == 0
        assert is_whole(hub, tmp_path)
        (request,) = hub.downloads("model.safetensors")
    assert (request.range, request.authorization) == ("bytes=5000000-", None)


def test_a_path_and_a_single_word_are_not_pulled(hub: HubServer, tmp_path: Path) -> None:
    assert "it is a path here" in pull(hub, tmp_path, "tests/service")[2]
    status, _, said = pull(hub, tmp_path, "gpt2")
    assert status == 2
    assert "OWNER/NAME" in said
    assert hub.requests == []


def test_a_stop_signal_ends_it_at_once(hub: HubServer, tmp_path: Path) -> None:
    hub.pause_at = 0
    process = start(hub, tmp_path)
    assert hub.paused.wait(30)
    process.terminate()
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in errors


def test_the_library_warns_of_nothing_itself(hub: HubServer, tmp_path: Path) -> None:
    repository = hub.repositories[NAME]
    repository.has_sizes = False
    digest = repository.digest("model.safetensors")
    facts = {"X-Repo-Commit": repository.commit, "ETag": f'"{digest}"', "X-Linked-Size": "1" * 18}

    def instead(request: Request) -> Answer | None:
        is_weights = request.path.endswith("/model.safetensors")
        return (200, facts, []) if request.method == "HEAD" and is_weights else None

    hub.instead = instead
    status, _, said = pull(hub, tmp_path)
    assert status == 1
    assert said.startswith("quire: cannot ")
    assert said.count("\n") == 0
