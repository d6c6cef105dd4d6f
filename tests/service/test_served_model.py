"""How the argument of ``quire serve`` is resolved."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from engine.options import OptionError
from engine.simulation.spec import SpecError, parse_spec
from pocket import MODEL_DIR
from service.hub.place import ModelPlace
from service.hub_settings import HubSettings
from service.served_model import model_asked_for, served_model


def test_without_an_argument_pocket_is_served() -> None:
    model = served_model(None)
    assert model.directory == Path(model.reference) == MODEL_DIR
    assert model.name == "pocket"
    assert not model.is_simulated


def test_a_model_is_named_once() -> None:
    assert model_asked_for(None, None) is None
    assert model_asked_for("a", None) == model_asked_for(None, "a") == model_asked_for("a", "a")
    with pytest.raises(OptionError, match=r"names two models, a and b; give one of them"):
        model_asked_for("a", "b")


def test_a_directory_is_served_as_it_is_and_names_itself(tmp_path: Path) -> None:
    model = served_model(str(tmp_path))
    assert (model.reference, model.directory) == (str(tmp_path), tmp_path)
    assert model.name is None
    assert not model.note
    assert not model.is_simulated


def test_a_simulation_borrows_pockets_tokenizer_and_says_what_it_is() -> None:
    model = served_model("simulated:h100-8b")
    assert model.is_simulated
    assert model.directory == MODEL_DIR
    assert parse_spec(model.reference).tokenizer == str(MODEL_DIR)
    assert model.name == "simulated:h100-8b"
    assert "SIMULATION" in model.note


def test_a_simulation_keeps_the_tokenizer_that_it_names(tmp_path: Path) -> None:
    model = served_model(f"simulated:h100-8b,tokenizer={tmp_path}")
    assert model.directory == tmp_path
    assert model.name == "simulated:h100-8b"


def test_a_simulation_of_an_unknown_profile_is_refused() -> None:
    with pytest.raises(SpecError):
        served_model("simulated:nothing-like-it")


def test_a_name_is_on_the_hub_unless_it_is_a_directory_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = served_model("owner/name", HubSettings(revision="v2", download_dir=str(tmp_path)))
    assert model.name == "owner/name"
    assert model.place == ModelPlace("owner/name", "v2", tmp_path)
    (tmp_path / "owner" / "name").mkdir(parents=True)
    model = served_model("owner/name")
    assert (model.directory, model.name, model.place) == (Path("owner/name"), None, None)


def test_a_gguf_file_is_served_under_its_name() -> None:
    model = served_model("models/Tiny-Q8_0.gguf")
    assert model.gguf == Path("models/Tiny-Q8_0.gguf")
    assert model.name == "Tiny-Q8_0"
    assert served_model("models/Tiny-Q8_0-00001-of-00002.gguf").name == "Tiny-Q8_0"
    assert model.place is None
    assert not model.is_simulated


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("https://huggingface.co/Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"),
        ("https://huggingface.co/Qwen/Qwen3-0.6B/tree/main?x=1", "Qwen/Qwen3-0.6B"),
        ("hf.co/o/n-GGUF/resolve/main/n-Q8_0.gguf?download=true", "o/n-GGUF:n-Q8_0.gguf"),
        ("https://huggingface.co/o/n-GGUF/blob/main/sub/n-Q8_0.gguf", "o/n-GGUF:n-Q8_0.gguf"),
        ("hf.co/o/n-GGUF:Q8_0", "o/n-GGUF:Q8_0"),
        ("o/n-GGUF/n-Q8_0.gguf", "o/n-GGUF:n-Q8_0.gguf"),
    ],
)
def test_what_is_nearly_a_name_is_answered_with_the_name(asked: str, meant: str) -> None:
    with pytest.raises(OptionError, match=f"did you mean 'quire serve {meant}'"):
        served_model(asked)
    assert served_model(meant).place is not None


def test_a_revision_in_an_address_is_kept() -> None:
    with pytest.raises(OptionError, match=r"quire serve o/n:Q\.gguf --revision v1\.0'"):
        served_model("https://huggingface.co/o/n/resolve/v1.0/Q.gguf")


def test_datasets_are_not_models() -> None:
    assert served_model("https://huggingface.co/datasets/owner/name").place is None


def test_a_file_has_no_variants(tmp_path: Path) -> None:
    path = tmp_path / "n-Q8_0.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(OptionError, match=f"did you mean 'quire serve {path}'"):
        served_model(f"{path}:Q8_0")


@pytest.mark.parametrize(
    ("there", "asked"),
    [
        ("Qwen3-0.6B-Instruct/config.json", "QWEN3-0.6B-INSTRUKT"),
        ("my model 1/config.json", "my model 2"),
        ("tiny-Q8_0.gguf", "tiny-Q8-0.gguf"),
    ],
)
def test_a_path_that_resembles_a_models_is_refused_with_that(
    there: str, asked: str, tmp_path: Path
) -> None:
    file = tmp_path / there
    file.parent.mkdir(exist_ok=True)
    file.touch()
    meant = file if file.suffix == ".gguf" else file.parent
    (tmp_path / f"{asked}s").touch()  # no model
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OptionError) as refused:
        served_model(str(tmp_path / asked))
    assert f"did you mean 'quire serve {shlex.quote(str(meant))}'?" in str(refused.value)
    assert served_model(str(tmp_path / "nothing-like-it")).name is None
    assert served_model(str(tmp_path / "no-folder" / asked)).directory.name == asked.split("/")[-1]


def test_no_name_that_a_terminal_would_obey_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "ev\x1b[31mil").mkdir()
    (tmp_path / "ev\x1b[31mil" / "config.json").touch()
    assert served_model(str(tmp_path / "ev[31mil")).name is None


def test_a_name_on_the_hub_is_one_even_if_a_folder_resembles_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme" / "tiny-base").mkdir(parents=True)
    (tmp_path / "acme" / "tiny-base" / "config.json").touch()
    monkeypatch.chdir(tmp_path)
    assert served_model("acme/tiny-bass").place is not None


def test_a_path_that_no_file_system_takes_is_left_to_the_next_check() -> None:
    assert served_model("x" * 5000).directory.name == "x" * 5000
    assert served_model(f"simulated:fast,script={'y' * 300}").is_simulated


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(OptionError, match="is empty"):
        served_model("")
