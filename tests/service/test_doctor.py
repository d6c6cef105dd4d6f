"""What ``quire doctor`` finds."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.config import EngineConfig
from service import doctor
from service.doctor import Finding, Level
from service.settings import ServiceSettings
from service.start_checks import CheckedModel
from service.store.place import store_place
from tests.service.tiny_checkpoint import write_tiny_checkpoint

ROOT = Path(__file__).resolve().parents[2]
MACHINE = Path("/proc/cpuinfo").read_text()
CPUINFO = "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu sse2 avx2 avx512f\n"


def torch_answer(**changes: object) -> str:
    facts = {"version": "2.13.0+cpu", "cuda": None, "devices": [], "cpu": "AVX2"}
    return json.dumps({**facts, **changes})


def checked(directory: Path, *, native: bool = True, **settings: Any) -> CheckedModel:
    return CheckedModel(directory, EngineConfig(model=str(directory), **settings), native)


def test_this_very_machine_can_run_quire_with_a_sound_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = write_tiny_checkpoint(tmp_path / "m")
    model = doctor.model_finding(checked(directory, load_format="dummy"))
    assert doctor.run(model, None, ServiceSettings(port=0), needs_gpu=False) == 0
    printed = capsys.readouterr().out
    for subject in (
        "Python",
        "torch",
        "CPU",
        "memory",
        "port",
        "store",
        "model",
        "dashboard",
        "traces",
    ):
        assert f"  {subject} " in printed
    assert "Quire can run here." in printed


def test_problems_of_model_and_settings_fail_after_all_else_was_looked_at(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = doctor.refused_finding("m has no tokenizer.json\x1b[2J")
    settings = ServiceSettings(port=0)
    assert doctor.run(model, "--keys-file: no", settings, needs_gpu=False) == 1
    printed = capsys.readouterr().out
    assert " FAIL  model        m has no tokenizer.json\u241b[2J\n" in printed
    assert " FAIL  settings     --keys-file: no\n" in printed
    assert "  dashboard " in printed
    assert "Something above must be fixed first." in printed


@pytest.mark.parametrize(
    ("version", "level"),
    [((3, 10), Level.FAIL), ((3, 11), Level.OK), ((3, 12), Level.OK), ((3, 13), Level.FAIL)],
)
def test_python_versions(version: tuple[int, int], level: Level) -> None:
    assert doctor.python_finding(version).level is level


@pytest.mark.parametrize(
    ("version", "level"),
    [("2.10.1", Level.NOTE), ("2.11.0+cu130", Level.OK), ("2.13.0+cpu", Level.OK)],
)
def test_torch_versions_that_were_not_tested_are_noted(version: str, level: Level) -> None:
    assert next(doctor.torch_findings(torch_answer(version=version))).level is level


def test_each_gpu_is_named_with_its_memory() -> None:
    device = {"name": "NVIDIA H100", "memory": 80 << 30, "capability": [9, 0]}
    answer = torch_answer(version="2.11.0+cu130", cuda="13.0", devices=[device])
    found = {finding.subject: finding for finding in doctor.torch_findings(answer)}
    assert found["GPU"].detail == "NVIDIA H100, 80.0 GiB, compute 9.0"
    assert "CUDA 13.0" in found["torch"].detail


def test_the_cpus_vector_extensions_are_reported() -> None:
    finding = doctor.cpu_finding(CPUINFO)
    assert "Some CPU" in finding.detail
    assert finding.detail.endswith("avx2 avx512f")


@pytest.mark.skipif("amx_tile" not in MACHINE.split(), reason="needs a CPU with AMX")
def test_amx_that_the_kernel_refuses_is_noted() -> None:
    command = [sys.executable, "-P", "-m", "tests.engine.cpu.without_amx"]
    done = subprocess.run(
        [*command, sys.executable, "-P", "-m", "service.cli", "doctor", "--port", "0"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    [at] = [n for n, line in enumerate(done.stdout.splitlines()) if "  CPU path " in line]
    finding, remedy = done.stdout.splitlines()[at : at + 2]
    assert finding.startswith(" note")
    assert finding.endswith("-x86-64-v4-bf16.so; the kernel does not let this process use AMX")
    assert "→ allow arch_prctl in the container's seccomp profile" in remedy


@pytest.mark.parametrize(("available", "level"), [(500_000, Level.NOTE), (8_000_000, Level.OK)])
def test_little_memory_is_noted(available: int, level: Level) -> None:
    meminfo = f"MemTotal:       16000000 kB\nMemAvailable:   {available} kB\n"
    assert doctor.memory_finding(meminfo).level is level


@pytest.mark.parametrize(
    ("allowed", "level"),
    [(64, Level.FAIL), (1024, Level.NOTE), (4096, Level.OK), (resource.RLIM_INFINITY, Level.OK)],
)
def test_a_low_limit_of_open_files_is_noted_and_a_very_low_one_fails(
    allowed: int, level: Level
) -> None:
    assert doctor.files_finding(allowed).level is level


def test_a_port_in_use_is_noted_with_another() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        finding = doctor.port_finding("127.0.0.1", port)
    assert finding.level is Level.NOTE
    assert str(port + 1) in finding.remedy


def test_a_port_of_the_admin_api_or_grpc_in_use_fails() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = ServiceSettings(port=0, admin_port=port, grpc_port=port)
        public, *others = doctor.port_findings(settings)
        without = msgspec.structs.replace(settings, admin=False, grpc_port=None)
        assert list(doctor.port_findings(without)) == [public]
    assert public.level is Level.OK
    for finding, flag in zip(others, ("admin-port", "grpc-port"), strict=True):
        detail = f"127.0.0.1:{port} is in use"
        assert (finding.level, finding.subject, finding.detail) == (Level.FAIL, flag, detail)
        assert finding.remedy.startswith(f"--{flag} {port + 1}, or")


def test_a_gpu_that_is_required_and_missing_fails() -> None:
    found = {one.subject: one for one in doctor.torch_findings(torch_answer(), needs_gpu=True)}
    assert found["GPU"].level is Level.FAIL
    assert found["GPU"].remedy
    found = {one.subject: one for one in doctor.torch_findings(torch_answer())}
    assert found["GPU"].level is not Level.FAIL


def test_an_address_of_another_machine_fails() -> None:
    finding = doctor.port_finding("203.0.113.9", 0)  # reserved for documentation
    assert finding.level is Level.FAIL
    assert "cannot listen on 203.0.113.9:0" in finding.detail


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("/proc/x/y.db", "/proc: No such file or directory"),
        ("{}", "it is a folder"),
        ("{}/file/y.db", "{}/file: Not a directory"),
    ],
)
def test_a_store_that_cannot_be_written_is_noted_and_fails_if_it_holds_keys(
    tmp_path: Path, file: str, problem: str
) -> None:
    (tmp_path / "file").touch()
    place = store_place(f"sqlite:///{file}".format(tmp_path))
    noted = doctor.store_finding(place, holds_keys=False)
    said = f"cannot write {place.file}: {problem.format(tmp_path)}; the server would "
    assert (noted.level, noted.detail) == (Level.NOTE, f"{said}store nothing")
    failed = doctor.store_finding(place, holds_keys=True)
    assert (failed.level, failed.detail) == (Level.FAIL, f"{said}accept no stored key")
    assert noted.remedy.endswith(", or --store-url none")
    assert "none" not in failed.remedy


def test_looking_at_a_store_makes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "store.sqlite3"
    found = doctor.store_finding(store_place(f"sqlite:///{file}"), holds_keys=True)
    assert (found.level, found.detail) == (Level.OK, str(file))
    assert list(tmp_path.iterdir()) == []
    remote = doctor.store_finding(store_place("postgresql://u:canary@host/d"), holds_keys=True)
    assert (remote.level, "canary" in str(remote)) == (Level.OK, False)


def test_without_weights_random_ones_can_be_served(tmp_path: Path) -> None:
    directory = write_tiny_checkpoint(tmp_path / "m")
    finding = doctor.model_finding(checked(directory))
    assert finding.level is Level.FAIL
    assert "--load-format dummy" in finding.remedy
    finding = doctor.model_finding(checked(directory, load_format="dummy"))
    assert finding.level is Level.OK
    assert finding.detail == f"{directory}, with random weights"


def test_the_collector_is_named_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", raising=False)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "https://me:hunter2@otel.example:4318/?k=abc")
    (found,) = (each for each in doctor.optional_findings() if each.subject == "traces")
    assert found.detail == "exported to https://otel.example:4318"


def test_a_finding_reads_as_one_line_and_its_remedy() -> None:
    finding = Finding(Level.FAIL, "torch", "not installed", "install it")
    assert str(finding).splitlines()[0].split() == ["FAIL", "torch", "not", "installed"]
    assert str(finding).splitlines()[1].strip() == "→ install it"


def test_the_format_of_quantized_weights_is_named(tmp_path: Path) -> None:
    model = write_tiny_checkpoint(tmp_path / "m")
    (model / "model.safetensors").write_bytes(bytes(1 << 20))
    config = json.loads((model / "config.json").read_text())

    def found(**quantization: object) -> Finding:
        changed = config | {"quantization_config": quantization}
        (model / "config.json").write_text(json.dumps(changed))
        return doctor.model_finding(checked(model))

    finding = found(quant_method="gptq", bits=4, group_size=64)
    assert finding.level is Level.OK
    assert finding.detail.endswith(", 1.0 MiB of weights (gptq, 4 bits, groups of 64)")
    left = doctor.model_finding(checked(model, native=False))
    assert left.detail == f"{finding.detail}, computed by transformers' code"
    only_keys = found(quant_method="modelopt", kv_cache_quant_algo="FP8")
    assert only_keys.detail.endswith(", 1.0 MiB of weights")


def test_weights_of_a_model_in_several_files_are_counted_together(tmp_path: Path) -> None:
    model = write_tiny_checkpoint(tmp_path / "m")
    parts = [tmp_path / f"tiny-0000{number}-of-00002.gguf" for number in (1, 2)]
    for part in parts:
        part.write_bytes(bytes(1 << 20))
    (model / "model.gguf").symlink_to(parts[0])
    assert doctor.model_finding(checked(model)).detail.endswith(", 2.0 MiB of weights")
