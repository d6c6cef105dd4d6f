"""What is wrong with a model or the settings is said before anything starts."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.architecture.errors import ModelError
from engine.config import EngineConfig
from service.hub.errors import NotServableError
from service.hub.place import ModelPlace
from service.served_model import served_model
from service.settings import ServiceSettings
from service.start_checks import (
    check_model,
    directory_problem,
    refuse_before_download,
    settings_problem,
    settings_warning,
)
from tests.service.tiny_checkpoint import write_tiny_checkpoint

ROOT = Path(__file__).resolve().parents[2]


def check(model: str, **settings: Any) -> Any:
    found = served_model(model)
    return check_model(found, EngineConfig(model=found.reference, **settings))


def test_a_sound_directory_is_accepted(tmp_path: Path) -> None:
    model = write_tiny_checkpoint(tmp_path / "m")
    checked = check(str(model))
    assert checked == (model, EngineConfig(model=str(model)), True)


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json"])
def test_a_directory_that_lacks_a_file_names_it(tmp_path: Path, missing: str) -> None:
    model = write_tiny_checkpoint(tmp_path / "m")
    (model / missing).unlink()
    assert missing in directory_problem(model)
    with pytest.raises(ModelError, match=missing):
        check(str(model))


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json"])
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, file: str) -> None:
    model = write_tiny_checkpoint(tmp_path / "m")
    (model / file).write_text("{", encoding="utf-8")
    with pytest.raises(ModelError, match=f"^the model in .*/m cannot be served: {file}: it is not"):
        check(str(model))


def test_a_tokenizer_of_an_unsupported_kind_is_refused_before_the_weights_are_downloaded(
    tmp_path: Path,
) -> None:
    path = write_tiny_checkpoint(tmp_path) / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"decoder": None}))
    with pytest.raises(NotServableError, match=r"decoder \(none\) is not supported"):
        refuse_before_download(ModelPlace("tiny/model", "main", tmp_path), tmp_path)


def test_a_path_that_is_no_model_gets_a_remedy(tmp_path: Path) -> None:
    assert "no such model directory" in directory_problem(tmp_path / "nowhere")
    assert "; give a directory" in directory_problem(tmp_path / "nowhere")


def test_a_folder_of_gguf_files_names_one(tmp_path: Path) -> None:
    for name in ("mmproj-x.gguf", "x-Q8_0.gguf"):
        (tmp_path / name).touch()
    assert directory_problem(tmp_path).endswith(f"name one of them, such as {tmp_path}/x-Q8_0.gguf")


def test_a_path_that_cannot_be_looked_at_is_said_in_a_sentence() -> None:
    with pytest.raises(ModelError, match=r"^cannot read x+: File name too long$"):
        check("x" * 5000)


needs_setpriv = pytest.mark.skipif(
    os.geteuid() == 0 and not Path("/usr/bin/setpriv").exists(), reason="as root"
)


def unprivileged(code: str, *arguments: Path) -> str:
    """Run code without root's privileges. Returns what it printed."""
    drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(
        [*(drop if os.geteuid() == 0 else []), *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_setpriv
def test_a_folder_that_may_not_be_read_is_said_in_a_sentence(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    write_tiny_checkpoint(locked)
    locked.chmod(0)
    code = (
        "from pathlib import Path; import sys; from tests.service.test_start_checks import check\n"
        "try: check(sys.argv[1])\n"
        "except ValueError as error: print(error)"
    )
    said = unprivileged(code, locked)
    locked.chmod(0o755)
    assert said == f"cannot read {locked / 'config.json'}: Permission denied\n"


@needs_setpriv
def test_an_audit_log_in_a_folder_that_may_not_be_written_is_said_in_a_sentence(
    tmp_path: Path,
) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(0o555)
    code = (
        "import sys; from engine.config import EngineConfig\n"
        "from service.settings import ServiceSettings\n"
        "from service.start_checks import settings_problem\n"
        "print(settings_problem(EngineConfig(model='m'), ServiceSettings(audit_log=sys.argv[1])))"
    )
    said = f"--audit-log: cannot write {locked}/audit.log: {locked} is not writable\n"
    assert unprivileged(code, locked / "audit.log") == said


def test_a_simulation_has_a_context(tmp_path: Path) -> None:
    check("simulated:fast,context=1000", max_model_len=1000)
    with pytest.raises(ModelError, match="1001 exceeds the simulation's context of 1000"):
        check("simulated:fast,context=1000", max_model_len=1001)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"port": 9000, "admin_port": 9000}, "--port and --admin-port are both 9000"),
        ({"port": 9000, "grpc_port": 9000}, "--port and --grpc-port are both 9000"),
        (
            {"admin_port": 9000, "grpc_port": 9000, "host": "0.0.0.0"},  # noqa: S104 - not opened
            "--admin-port and --grpc-port are both 9000",
        ),
        ({"port": 9000, "admin_port": 9000, "admin_host": "10.0.0.1"}, None),
        ({"port": 9000, "admin_port": 9000, "admin": False}, None),
        ({"port": 0, "admin_port": 0, "grpc_port": 0}, None),
    ],
)
def test_two_servers_on_one_port_are_refused(fields: dict[str, Any], problem: str | None) -> None:
    found = settings_problem(EngineConfig(model="m"), ServiceSettings(**fields))
    expected = problem and f"{problem}; give one of them another port"
    assert found == expected


def test_settings_are_checked_together(tmp_path: Path) -> None:
    engine, service = EngineConfig(model="m"), ServiceSettings()
    assert settings_problem(engine, service) is None
    hosts = msgspec.structs.replace(engine, tensor_parallel_size=2, tensor_parallel_hosts=2)
    assert "needs a secret" in str(settings_problem(hosts, service))
    keys = msgspec.structs.replace(service, keys_file=str(tmp_path / "keys.json"))
    assert "--keys-file: cannot read" in str(settings_problem(engine, keys))
    (tmp_path / "keys.json").write_text(json.dumps(3))
    assert str(settings_problem(engine, keys)).startswith(f"--keys-file: {tmp_path}/keys.json: ")


def test_an_audit_log_that_cannot_be_written_is_said_in_a_sentence(tmp_path: Path) -> None:
    engine, service = EngineConfig(model="m"), ServiceSettings()
    for path, said in (
        (tmp_path / "missing" / "audit.log", "No such file or directory"),
        (tmp_path, "Is a directory"),
    ):
        wrong = msgspec.structs.replace(service, audit_log=str(path))
        expected = f"--audit-log: cannot write {path}: {said}"
        assert settings_problem(engine, wrong) == expected
        unused = msgspec.structs.replace(wrong, admin=False)
        assert settings_problem(engine, unused) is None
    sound = msgspec.structs.replace(service, audit_log=str(tmp_path / "audit.log"))
    assert settings_problem(engine, sound) is None
    assert not (tmp_path / "audit.log").exists()  # not made before there is something to write
    (tmp_path / "audit.log").touch()
    assert settings_problem(engine, sound) is None


def test_a_store_that_cannot_be_is_said_in_a_sentence() -> None:
    engine, service = EngineConfig(model="m"), ServiceSettings()
    for url, said in (
        ("mysql://x", "--store-url: the store must be sqlite:///FILE or postgresql://…"),
        ("postgresql://h/d?foo=bar", "--store-url: the store's URL has an unknown parameter"),
    ):
        wrong = msgspec.structs.replace(service, store_url=url)
        assert str(settings_problem(engine, wrong)).startswith(said)
    for url in ("none", "", "postgresql://h/d?ssl=require", "sqlite:////tmp/a"):
        sound = msgspec.structs.replace(service, store_url=url)
        assert settings_problem(engine, sound) is None


def test_wrong_variables_of_traces_count_only_if_traces_are_exported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, service = EngineConfig(model="m"), ServiceSettings()
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "abc")
    assert settings_problem(engine, service) is None
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    said = "OTEL_TRACES_SAMPLER_ARG is 'abc'; it must be a number from 0 to 1"
    assert settings_problem(engine, service) == said
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json")
    assert "TRACES_PROTOCOL is 'http/json'; it must" in str(settings_problem(engine, service))


def test_an_endpoint_of_traces_without_a_scheme_is_refused_where_one_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, service = EngineConfig(model="m"), ServiceSettings()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317")
    said = "OTEL_EXPORTER_OTLP_ENDPOINT must begin with http:// or https://"
    assert settings_problem(engine, service) == said
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    assert settings_problem(engine, service) is None
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "HTTPS://me:secret@collector:4318/x")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    assert settings_problem(engine, service) is None


@pytest.mark.parametrize(("hard", "is_refused"), [(63, True), (64, False)])
def test_a_limit_of_open_files_that_no_worker_could_live_with_is_a_sentence(
    hard: int, is_refused: bool
) -> None:
    code = "from service.start_checks import descriptors_problem; print(descriptors_problem())"
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard)),
    )
    said = "the open-file limit is 63; a server needs at least 64, preferably 128 plus one for each"
    assert found.stdout.startswith(said if is_refused else "None")


@pytest.mark.parametrize("host", ["::", "10.0.0.5"])
def test_an_admin_api_for_others_without_a_key_gets_a_warning(host: str) -> None:
    warning = settings_warning(ServiceSettings(admin_host=host))
    assert warning is not None
    assert f"--admin-host {host} needs an admin key" in warning
    assert "QUIRE_ADMIN_KEY" in warning


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"admin_host": "::1"},
        {"admin_host": "::", "admin": False},
        {"admin_host": "::", "admin_key": ("read=a-long-key",)},
    ],
)
def test_other_settings_of_the_admin_api_get_no_warning(settings: dict[str, Any]) -> None:
    assert settings_warning(ServiceSettings(**{"admin_host": "localhost", **settings})) is None


@pytest.mark.parametrize(
    ("kind", "their_reason", "asked", "said"),
    [
        ("llama", "-", [], None),
        ("stablelm", "", ["auto"], None),
        ("stablelm", "it counts tokens itself", ["auto"], "it counts tokens itself"),
        ("t5", "", [], "T5ForCausalLM is not supported"),
    ],
)
def test_before_a_download_transformers_is_asked_only_about_what_our_code_does_not_compute(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    their_reason: str,
    asked: list[str],
    said: str | None,
) -> None:
    model = write_tiny_checkpoint(tmp_path / "m")
    if kind != "llama":
        name = {"t5": "T5", "stablelm": "StableLm"}[kind]
        config = {"model_type": kind, "architectures": [f"{name}ForCausalLM"]}
        (model / "config.json").write_text(json.dumps(config))
    found: list[str] = []

    def why_refused(engine: EngineConfig) -> str:
        assert engine.model == str(model)
        found.append(engine.model_impl)
        return their_reason

    monkeypatch.setattr("service.start_checks.why_refused", why_refused)
    place = ModelPlace("tiny/model", "main", tmp_path)
    if said is None:
        refuse_before_download(place, model)
    else:
        with pytest.raises(NotServableError, match=said):
            refuse_before_download(place, model)
    assert found == asked
