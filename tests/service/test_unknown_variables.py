"""A misspelt variable is noticed, and no variable that has a purpose is taken for one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from service.settings_page import settings
from service.unknown_variables import unknown_variables

ROOT = Path(__file__).resolve().parents[2]
TREES = ("bench", "client", "dashboard", "engine", "service", "tests/conftest.py")


def names_in(tree: str) -> set[str]:
    """Names of variables that are whole strings in the code."""
    top = ROOT / tree
    return {
        name
        for path in ([top] if top.is_file() else top.rglob("*.py"))
        for name in re.findall(r'"(QUIRE_[A-Z_]*[A-Z])"', path.read_text())
    }


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("QUIRE_API_KEYS", "QUIRE_API_KEY"),
        ("QUIRE_APIKEY_FILE", "QUIRE_API_KEY_FILE"),
        ("QUIRE_ADMIM_PORT", "QUIRE_ADMIN_PORT"),
        ("QUIRE_PORT_FILE", None),  # not a secret
        ("QUIRE_SOMETHING_ELSE", None),
        ("QUIRE_DASHBOARD", None),
    ],
)
def test_an_unknown_variable_is_named_with_the_one_that_may_be_meant(
    name: str, nearest: str | None
) -> None:
    [found] = unknown_variables({"PATH": "/bin", "QUIRE_PORT": "8000", name: "1"})
    assert found.name == name
    assert nearest is None or found.nearest == nearest


def test_variables_of_settings_are_known() -> None:
    known = {option.variable: "" for option in settings()}
    known |= {option.file_variable: "" for option in settings() if option.secret}
    assert not [*unknown_variables(known)]


@pytest.mark.parametrize("tree", TREES)
def test_variables_that_another_part_of_quire_reads_are_known(tree: str) -> None:
    assert not [*unknown_variables(dict.fromkeys(names_in(tree), "x"))]


def test_variables_of_the_dashboard_are_found_in_its_code() -> None:
    assert "QUIRE_DASHBOARD_ADMIN_URL" in names_in("dashboard")


@pytest.mark.parametrize("service", ["QUIRE", "QUIRE_REPLICAS", "QUIRE_2"])
def test_what_kubernetes_sets_for_a_service_is_known(service: str) -> None:
    address = "tcp://10.0.0.7:8000"
    links = {
        f"{service}_SERVICE_HOST": "10.0.0.7",
        f"{service}_SERVICE_PORT": "8000",
        f"{service}_SERVICE_PORT_HTTP": "8000",
        f"{service}_PORT": address,
        f"{service}_PORT_8000_TCP": address,
        f"{service}_PORT_8000_TCP_PROTO": "tcp",
        f"{service}_PORT_8000_TCP_PORT": "8000",
        f"{service}_PORT_8000_TCP_ADDR": "10.0.0.7",
    }
    assert not [*unknown_variables(links)]
    [found] = unknown_variables({"QUIRE_GRPC_PORTS": address, **links})
    assert found.nearest == "QUIRE_GRPC_PORT"
