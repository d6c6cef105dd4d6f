from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from observability.hidden_packages import hidden_packages


@pytest.fixture
def optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a package that can be imported and was not yet."""
    name = "quire_optional_package"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    (tmp_path / name / "part.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for module in (name, f"{name}.part"):
        monkeypatch.setitem(sys.modules, module, None)
        monkeypatch.delitem(sys.modules, module)
    return name


def test_a_hidden_package_cannot_be_imported_until_the_end(optional: str) -> None:
    with hidden_packages(optional):
        for module in (optional, f"{optional}.part"):
            with pytest.raises(ImportError):
                importlib.import_module(module)
    assert importlib.import_module(f"{optional}.part") is sys.modules[f"{optional}.part"]


def test_it_is_to_be_had_again_after_an_error(optional: str) -> None:
    with pytest.raises(KeyError), hidden_packages(optional):
        raise KeyError
    assert importlib.import_module(optional) is sys.modules[optional]


def test_what_is_loaded_already_stays(optional: str) -> None:
    loaded = importlib.import_module(optional)
    with hidden_packages(optional):
        assert importlib.import_module(optional) is loaded
    assert sys.modules[optional] is loaded
