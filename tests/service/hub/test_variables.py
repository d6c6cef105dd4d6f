"""Wrong values of Hugging Face's variables are said where a hub is used, and only there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.hub.errors import HubError
from service.hub.variables import check_variables

_WRONG = [
    ("HF_HUB_DOWNLOAD_TIMEOUT", "1.5"),
    ("HF_HUB_ETAG_TIMEOUT", "x"),
    ("HF_HUB_ETAG_TIMEOUT", "-1"),
    ("HF_ENDPOINT", "http://[::1"),
    ("HF_ENDPOINT", "http://x:99999"),
    ("HF_ENDPOINT", "http://x:port"),
    ("HF_ENDPOINT", "mirror.example"),
    ("HF_ENDPOINT", "ftp://mirror.example"),
    ("HF_ENDPOINT", "https://"),
    ("HF_ENDPOINT", "http://a b"),
]


def quire(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "service.cli", *arguments],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(("name", "value"), _WRONG)
def test_a_wrong_value_is_said(name: str, value: str) -> None:
    with pytest.raises(HubError, match=f"^{name} must be a .*; correct it or unset it$"):
        check_variables({name: value})


def test_an_endpoint_s_password_is_not_shown() -> None:
    with pytest.raises(HubError) as raised:
        check_variables({"HF_ENDPOINT": "https://me:secret/word@mirror.example"})
    assert "secret" not in str(raised.value)


def test_sound_values_stay_and_empty_ones_count_as_unset() -> None:
    sound = {
        "HF_ENDPOINT": "https://me:secret@mirror.example:8443/hub/",
        "HF_HUB_ETAG_TIMEOUT": "30",
        "HF_HUB_CACHE": "/models",
    }
    variables = dict(sound)
    check_variables(variables)
    assert variables == sound
    variables = {"HF_HUB_CACHE": "", "HF_ENDPOINT": "", "HF_HUB_ETAG_TIMEOUT": " ", "OTHER": ""}
    check_variables(variables)
    assert variables == {"OTHER": ""}


@pytest.mark.parametrize("arguments", [["--version"], ["keys", "--help"]], ids=["version", "keys"])
def test_commands_that_use_no_hub_do_not_mind(arguments: list[str]) -> None:
    done = quire(*arguments, HF_HUB_DOWNLOAD_TIMEOUT="1.5", HF_ENDPOINT="http://[::1")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["pull", "doctor", "serve"])
@pytest.mark.parametrize(
    ("name", "value"), [("HF_HUB_DOWNLOAD_TIMEOUT", "1.5"), ("HF_ENDPOINT", "http://x:99999")]
)
def test_commands_that_use_the_hub_name_the_variable(command: str, name: str, value: str) -> None:
    done = quire(command, "tiny/model", **{name: value})
    assert done.returncode == 1
    assert done.stderr.startswith(f"quire: {name} must be ")
    assert done.stderr.count("\n") == 1


def test_an_empty_cache_is_not_the_current_directory(tmp_path: Path) -> None:
    done = quire("doctor", "tiny/model", HF_HUB_CACHE="", HF_HOME=str(tmp_path), HF_ENDPOINT="")
    assert "quire pull tiny/model" in done.stdout
    assert "--download-dir" not in done.stdout
