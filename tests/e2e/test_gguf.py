"""``quire serve FILE.gguf`` serves what the original checkpoint serves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from pocket import MODEL_DIR
from tests.e2e.quire_server import ROOT, QuireServer
from tests.engine.gguf.making import write_gguf
from tests.service.hub_server import HubServer, Repository

QUESTION = "What is 17 + 4?"


@pytest.fixture(scope="module")
def gguf_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuireServer]:
    path = write_gguf(MODEL_DIR, tmp_path_factory.mktemp("models") / "pocket-F32.gguf")
    with QuireServer(str(path)) as running:
        yield running


def answer_of(server: QuireServer) -> tuple[str, str | None]:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0)
    name = next(iter(client.models.list())).id
    answer = client.chat.completions.create(
        model=name,
        messages=[{"role": "user", "content": QUESTION}],
        temperature=0,
        max_tokens=40,
    )
    return name, answer.choices[0].message.content


def test_the_answer_is_that_of_the_original(server: QuireServer, gguf_server: QuireServer) -> None:
    name, found = answer_of(gguf_server)
    assert name == "pocket-F32"
    assert found
    assert found == answer_of(server)[1]


def test_a_file_of_a_repository_is_served_by_name_and_later_without_the_hub(
    server: QuireServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_gguf(MODEL_DIR, tmp_path / "pocket-F32.gguf")
    with HubServer({"quire/pocket-GGUF": Repository({path.name: path.read_bytes()})}) as hub:
        for name, value in hub.environment(tmp_path).items():
            monkeypatch.setenv(name, value)
        asked = "quire/pocket-GGUF:F32"
        with QuireServer(asked) as first:
            assert answer_of(first) == (asked, answer_of(server)[1])
        hub.requests.clear()
        with QuireServer(asked) as again:
            assert answer_of(again)[0] == asked
        assert hub.requests == []


def test_a_model_in_several_files_is_served_by_its_first_and_by_name(
    server: QuireServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "models" / "F32"
    folder.mkdir(parents=True)
    first = write_gguf(MODEL_DIR, folder / "pocket-F32.gguf", most_tensors=30)
    expected = answer_of(server)[1]
    with QuireServer(str(first)) as running:
        assert answer_of(running) == ("pocket-F32", expected)
    with HubServer({"quire/pocket-GGUF": Repository.of(folder.parent)}) as hub:
        for name, value in hub.environment(tmp_path).items():
            monkeypatch.setenv(name, value)
        with QuireServer("quire/pocket-GGUF:F32") as running:
            assert answer_of(running) == ("quire/pocket-GGUF:F32", expected)


def test_a_file_that_cannot_be_served_ends_the_start_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "wrong.gguf"
    path.write_bytes(b"GGUF" + bytes(4))
    ended = subprocess.run(
        [sys.executable, "-m", "service.cli", "serve", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.strip() == (
        f"quire: cannot read {path}: version is 0: not supported; supported: 2 and 3, little-endian"
    )
