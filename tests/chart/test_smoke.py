"""`helm test`: its script against the real server and dashboard, and keys that are rotated under
them as the kubelet does it."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chart.helms import CHART, Helm, Values, objects
from tests.dashboard.running import dashboard_of
from tests.e2e.quire_server import QuireServer, free_port, until

pytestmark = [pytest.mark.chart, pytest.mark.one_process]

SCRIPT = CHART / "files" / "smoke.py"
SMOKE: dict[str, Any] = runpy.run_path(str(SCRIPT))
FIRST, SECOND, ADMIN = "sk-first-0123456789", "sk-second-0123456789", "sk-admin-0123456789"


class MountedSecret:
    """A volume of a Secret: `..data` is a link to a folder, which one rename replaces."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._version = 0

    def write(self, **files: str) -> None:
        self._version += 1
        new = self.folder / f"..{self._version}"
        new.mkdir(parents=True)
        for name, text in files.items():
            (new / name.replace("_", ".")).write_text(text)
            link = self.folder / name.replace("_", ".")
            if not link.is_symlink():
                link.symlink_to(Path("..data") / link.name)
        aside = self.folder / "..data_tmp"
        aside.symlink_to(new.name)
        aside.replace(self.folder / "..data")


class Running:
    def __init__(self, server: QuireServer, admin: str, dashboard: str, secret: MountedSecret):
        self.server, self.admin, self.dashboard, self.secret = server, admin, dashboard, secret

    def test(self, name: str, url: str = "") -> tuple[int, str, str]:
        """Run one test as its pod does, except for where Secrets are mounted."""
        address = url or {"metrics": self.admin, "dashboard": self.dashboard}.get(
            name, self.server.url
        )
        program = (
            "import runpy, sys, pathlib\n"
            f"main = runpy.run_path({str(SCRIPT)!r})['main']\n"
            "folder = pathlib.Path(sys.argv.pop())\n"
            "sys.exit(main(*sys.argv[1:], folder))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, name, address, "60", str(self.secret.folder)],
            capture_output=True,
            text=True,
            timeout=90,
        )
        return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("smoke")
    secret = MountedSecret(folder / "secrets")
    secret.write(keys_txt=f"alice={FIRST}\n", admin=f"read:watch={ADMIN}")
    port = free_port()
    arguments = [
        *("--keys-file", str(secret.folder / "keys.txt"), "--admin-port", str(port)),
        *("--threads", "1"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUIRE_ADMIN_KEY_FILE", str(secret.folder / "admin"))
        with (
            QuireServer(*arguments) as server,
            dashboard_of(
                f"dns+http://localhost:{server.port}",
                folder / "dashboard.log",
                admin=f"dns+http://localhost:{port}",
            ) as dashboard,
        ):
            yield Running(server, f"http://127.0.0.1:{port}", dashboard, secret)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("models", "it serves"),
        ("completion", "tokens"),
        ("stream", "events"),
        ("metrics", "quire_engine_ready"),
        ("dashboard", "it says ok"),
    ],
)
def test_each_test_passes_on_a_sound_release(running: Running, name: str, says: str) -> None:
    status, output, error = running.test(name)
    assert (status, error) == (0, "")
    assert says in output


def test_a_test_fails_with_one_sentence(running: Running) -> None:
    status, _, error = running.test("models", f"http://127.0.0.1:{free_port()}")
    assert status == 1
    assert error.count("\n") == 1
    # The dashboard is not an API.
    status, _, error = running.test("models", running.dashboard)
    assert status == 1
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("text", "key"),
    [("a=k1\nb=k2\n", "k1"), ("\n a=k1 , b=k2", "k1"), ("read:a=k1", "k1"), ("k1", "k1"), ("", "")],
)
def test_the_first_of_several_keys_is_used(text: str, key: str) -> None:
    assert runpy.run_path(str(SCRIPT))["first_of"](text) == key


def test_no_error_shows_a_key(tmp_path: Path) -> None:
    (tmp_path / "admin").write_text("one=k\x01secret")
    program = (
        f"import pathlib, runpy, sys; main = runpy.run_path({str(SCRIPT)!r})['main']; "
        f"sys.exit(main('metrics', 'http://127.0.0.1:9', '5', pathlib.Path({str(tmp_path)!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "no header may have" in done.stderr
    assert "secret" not in done.stderr.replace("Secret", "")


def status_with(key: str, server: QuireServer) -> int:
    return int(server.get("/v1/models", {"authorization": f"Bearer {key}"})[0])


@pytest.mark.proves("rotation", "chart")
def test_a_rotated_key_works_and_the_old_one_stops(running: Running) -> None:
    """Within 60 s of the change of the mounted file, without a restart."""
    server, secret = running.server, running.secret
    assert status_with(FIRST, server) == 200
    assert status_with(SECOND, server) == 401
    began = time.monotonic()
    secret.write(keys_txt=f"alice={SECOND}\n", admin=f"read:watch={ADMIN}")
    until(lambda: status_with(SECOND, server) == 200, 60, "the new key")
    until(lambda: status_with(FIRST, server) == 401, 60 - (time.monotonic() - began), "the old one")
    assert running.test("completion")[0] == 0
    secret.write(keys_txt=f"alice={FIRST}\n", admin=f"read:watch={ADMIN}")
    until(lambda: status_with(FIRST, server) == 200, 60, "the first key again")


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        ("keys.txt", "sk-plain-key", "sk-plain-key"),
        ("keys.txt", "alice=sk-a,bob=sk-b\n", "sk-a"),
        ("keys.txt", "c29tZSBrZXk==", "c29tZSBrZXk=="),
        ("keys.toml", '[[keys]]\nalias = "a"\nsha256 = "0"\n[[keys]]\nkey = "sk-b"\n', "sk-b"),
        ("keys.json", '{"keys": [{"alias": "a", "key": "sk-c"}]}', "sk-c"),
    ],
)
def test_the_key_is_the_first_of_the_file(tmp_path: Path, name: str, text: str, key: str) -> None:
    (tmp_path / name).write_text(text)
    assert SMOKE["api_key"](tmp_path) == key


def test_without_a_key_in_the_file_it_says_which_value_to_set(tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text('[[keys]]\nalias = "a"\nsha256 = "0"\n')
    with pytest.raises(ValueError, match=r"tests\.existingSecret"):
        SMOKE["api_key"](tmp_path)
    assert SMOKE["api_key"](tmp_path / "nothing") == ""
    assert SMOKE["admin_key"](tmp_path) == ""


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({}, {"models", "completion", "stream", "metrics"}),
        ({"auth": {"existingSecret": "keys"}}, {"models", "completion", "stream"}),
        ({"dashboard": {"enabled": True}, "admin": {"existingSecret": "a"}}, set(SMOKE["TESTS"])),
        ({"tests": {"enabled": False}}, set()),
        ({"api": {"storedKeys": True}}, set()),
        (
            {"api": {"storedKeys": True}, "tests": {"existingSecret": "key"}},
            {"models", "completion", "stream"},
        ),
        (
            {"extraArgs": ["--no-stored-keys"]},
            {"models", "completion", "stream", "metrics"},
        ),
        (
            {"extraEnv": [{"name": "QUIRE_STORED_KEYS", "value": "false"}]},
            {"models", "completion", "stream", "metrics"},
        ),
    ],
)
def test_there_is_a_pod_for_each_test(helm: Helm, values: Values, names: set[str]) -> None:
    pods = [each for each in objects(helm.render(values)) if each["kind"] == "Pod"]
    assert {each["spec"]["containers"][0]["args"][1] for each in pods} == names
    for each in pods:
        [container] = each["spec"]["containers"]
        assert each["metadata"]["annotations"]["helm.sh/hook"] == "test"
        assert container["args"][0] == SCRIPT.read_text()
        compile(container["args"][0], "smoke.py", "exec")


def test_the_script_needs_only_python() -> None:
    """The image's python3 starts it, outside the environment of the server's packages."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", SCRIPT.read_text(), "models", "http://127.0.0.1:1", "1"],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.returncode == 1
    assert "models: http://127.0.0.1:1" in done.stderr
