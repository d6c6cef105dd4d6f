"""The process that downloads before the engines start. Its work is tested in tests/service/hub, and
the whole in tests/e2e/test_model_by_name.py."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from engine.options import add_arguments, from_namespace
from pocket import MODEL_DIR
from service.hub.__main__ import DownloadOptions
from service.hub.place import ModelPlace
from service.settings import ServiceSettings
from service.supervision.download import (
    FirstFilesError,
    download_arguments,
    fetch_first,
    log_arguments,
    without_token,
)
from tests.service.hub_server import HubServer, Repository

NAME = "tiny/model"
LOG = log_arguments(ServiceSettings(log_level="warning", log_format="json"))


def test_the_process_understands_its_arguments() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, DownloadOptions)
    place = ModelPlace(NAME, "refs/pr/1", Path("/a cache"), "c" * 40)
    arguments = [*download_arguments(place), *LOG, "--parent-pid=7", "--beats=/page"]
    options = from_namespace(DownloadOptions, parser.parse_args(arguments))
    assert (options.name, options.revision, options.commit) == (NAME, "refs/pr/1", "c" * 40)
    assert (options.cache, options.beats, options.first) == ("/a cache", "/page", False)
    assert (options.log_level, options.log_format) == ("warning", "json")


def test_only_the_download_gets_the_token() -> None:
    environ = {"HF_TOKEN": "x", "HUGGING_FACE_HUB_TOKEN": "y", "HF_HOME": "/home"}
    assert without_token(environ) == {"HF_HOME": "/home"}


def test_first_files_then_the_commit_that_is_still_to_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HubServer({NAME: Repository.of(MODEL_DIR)}) as hub:
        for name, value in hub.environment(tmp_path).items():
            monkeypatch.setenv(name, value)
        place = ModelPlace(NAME, "main", tmp_path / "hub")
        directory, missing = fetch_first(place, LOG, needs_weights=True)
        commit = hub.repositories[NAME].commit
        assert directory == place.snapshot(commit)
        assert (directory / "tokenizer.json").exists()
        assert missing == ModelPlace(NAME, "main", tmp_path / "hub", commit)
        assert fetch_first(place, LOG, needs_weights=False) == (directory, None)


def test_a_failure_has_been_said_by_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with HubServer({}) as hub:
        for name, value in hub.environment(tmp_path).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(FirstFilesError) as caught:
            fetch_first(ModelPlace(NAME, "main", tmp_path / "hub"), LOG, needs_weights=True)
    assert caught.value.status == 1
    assert capfd.readouterr().err.startswith("quire: there is no model 'tiny/model' on ")
