"""``quire doctor``: what Quire can use on this machine, what is missing, and how to get it."""

from __future__ import annotations

import dataclasses
import enum
import errno
import importlib.util
import io
import json
import os
import platform
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.addresses import address_text, listening_socket
from engine.architecture.quantization import read_quantization
from engine.cpu.library import (
    ALLOW_TILES,
    NO_TILES,
    LibraryUnavailableError,
    cpu_flags,
    file_name,
    levels_for,
    library,
    may_use_tiles,
)
from engine.gguf.names import gguf_of
from engine.gguf.part_names import named_part, parts_by_name
from engine.python_command import python_command
from observability.terminal import for_terminal
from service.hub.place import ModelPlace
from service.serving.connection_limits import RESERVED_DESCRIPTORS
from service.settings import ServiceSettings
from service.start_checks import CheckedModel, settings_warning
from service.store.place import StorePlace, store_place
from service.version import VERSION

SUPPORTED_PYTHONS = ((3, 11), (3, 12))
SUPPORTED_TORCH = ((2, 11), (2, 13))
_TORCH_SECONDS = 120
_ENOUGH_FILES = 4096
_MIB, _GIB = 1 << 20, 1 << 30

# Runs in a separate process: torch takes seconds to import and may crash.
_ASK_TORCH = """
import json, torch
devices = [
    {"name": p.name, "memory": p.total_memory, "capability": [p.major, p.minor]}
    for p in map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
] if torch.cuda.is_available() else []
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "devices": devices,
                  "cpu": torch.backends.cpu.get_cpu_capability()}))
"""


class Level(enum.Enum):
    OK = "ok"
    NOTE = "note"  # something optional is missing
    FAIL = "FAIL"  # Quire will not run


@dataclass(frozen=True, slots=True)
class Finding:
    """``remedy``: what to do about it, if it is not ok."""

    level: Level
    subject: str
    detail: str
    remedy: str = ""

    def __str__(self) -> str:
        line = f"{self.level.value:>5}  {self.subject:<12} {self.detail}"
        return f"{line}\n{'':>20}→ {self.remedy}" if self.remedy else line


def run(
    model: Finding, settings_problem: str | None, service: ServiceSettings, *, needs_gpu: bool
) -> int:
    """Print all findings. Returns the exit status: 0, or 1 if Quire cannot run here."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # of names of files
    print(f"Quire {VERSION} on {platform.platform()}")
    failed = False
    for finding in _findings(model, settings_problem, service, needs_gpu):
        # Names that are not text keep their bytes: they are how the operator finds them.
        text = str(finding).encode(errors="backslashreplace").decode()
        print(for_terminal(text), flush=True)
        failed |= finding.level is Level.FAIL
    print("Something above must be fixed first." if failed else "Quire can run here.")
    return 1 if failed else 0


def _findings(
    model: Finding, settings_problem: str | None, service: ServiceSettings, needs_gpu: bool
) -> Iterator[Finding]:
    yield python_finding(sys.version_info[:2])
    yield from _torch_findings(needs_gpu)
    yield cpu_finding(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    yield _compiled_finding()
    yield memory_finding(Path("/proc/meminfo").read_text(encoding="utf-8"))
    yield files_finding(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    yield from port_findings(service)
    if settings_problem is not None:
        yield Finding(Level.FAIL, "settings", settings_problem)
    elif service.store_url != "none":
        yield store_finding(store_place(service.store_url), holds_keys=service.stored_keys)
    if warning := settings_warning(service):
        yield Finding(Level.NOTE, "settings", warning)
    yield model
    yield from optional_findings()


def python_finding(version: tuple[int, ...]) -> Finding:
    text = f"{platform.python_implementation()} {'.'.join(map(str, version))} at {sys.executable}"
    if version in SUPPORTED_PYTHONS:
        return Finding(Level.OK, "Python", text)
    wanted = " or ".join(".".join(map(str, each)) for each in SUPPORTED_PYTHONS)
    return Finding(Level.FAIL, "Python", text, f"use Python {wanted}")


def _torch_findings(needs_gpu: bool) -> Iterator[Finding]:
    remedy = "make install (or pip install torch from the index for your hardware)"
    if importlib.util.find_spec("torch") is None:
        yield Finding(Level.FAIL, "torch", "not installed", remedy)
        return
    try:
        asked = subprocess.run(
            python_command("-c", _ASK_TORCH),
            capture_output=True,
            text=True,
            timeout=_TORCH_SECONDS,
            check=True,
        )
    except subprocess.TimeoutExpired:
        yield Finding(Level.FAIL, "torch", f"does not import within {_TORCH_SECONDS} s", remedy)
    except subprocess.CalledProcessError as error:
        last = error.stderr.strip().rpartition("\n")[2]
        yield Finding(Level.FAIL, "torch", f"does not import: {last}", remedy)
    else:
        yield from torch_findings(asked.stdout, needs_gpu=needs_gpu)


def torch_findings(answer: str, *, needs_gpu: bool = False) -> Iterator[Finding]:
    """Yield findings from the output of ``_ASK_TORCH``."""
    facts = json.loads(answer)
    version = facts["version"]
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    build = f"CUDA {facts['cuda']}" if facts["cuda"] else "CPU"
    text = f"{version} ({build} build, computes with {facts['cpu']})"
    first, last = SUPPORTED_TORCH
    if first <= numbers <= last:
        yield Finding(Level.OK, "torch", text)
    else:
        span = " to ".join(".".join(map(str, each)) for each in SUPPORTED_TORCH)
        yield Finding(Level.NOTE, "torch", text, f"tested with {span}")
    if not facts["devices"]:
        yield _no_gpu_finding(bool(facts["cuda"]), needs_gpu)
    for device in facts["devices"]:
        capability = ".".join(map(str, device["capability"]))
        memory = f"{device['memory'] / _GIB:.1f} GiB"
        yield Finding(Level.OK, "GPU", f"{device['name']}, {memory}, compute {capability}")
    if facts["devices"] and not (shutil.which("cc") or shutil.which("gcc")):
        yield Finding(
            Level.NOTE,
            "C compiler",
            "none; Triton builds its launchers with one",
            "apt-get install gcc",
        )


def _no_gpu_finding(cuda_build: bool, needs_gpu: bool) -> Finding:
    level = Level.FAIL if needs_gpu else Level.NOTE
    has_driver = shutil.which("nvidia-smi") is not None
    if has_driver and not cuda_build:
        return Finding(
            level,
            "GPU",
            "there is an NVIDIA driver, but this torch is a CPU build",
            "install a CUDA build of torch to use the GPU",
        )
    if has_driver:
        return Finding(level, "GPU", "none that torch can use", "see nvidia-smi")
    if needs_gpu:
        return Finding(
            level,
            "GPU",
            "none, but --device cuda needs one",
            "use --device cpu, or install a driver",
        )
    return Finding(Level.OK, "GPU", "none; models run on the CPU")


def cpu_finding(cpuinfo: str) -> Finding:
    """Return a finding about the CPU from /proc/cpuinfo."""

    def field(name: str) -> str:
        found = re.search(rf"^{name}\s*:\s*(.*)$", cpuinfo, re.MULTILINE)
        return found[1].strip() if found else ""

    usable = len(os.sched_getaffinity(0))
    flags = set((field("flags") or field("Features")).split())
    known = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16", "sve")
    having = [flag for flag in known if flag in flags]
    model = field("model name") or platform.machine()
    text = f"{model}, {usable} cores usable, {' '.join(having) or 'no vector extensions known'}"
    if platform.machine() == "x86_64" and "avx2" not in flags:
        return Finding(Level.NOTE, "CPU", text, "without AVX2 a CPU model is very slow")
    return Finding(Level.OK, "CPU", text)


def _compiled_finding() -> Finding:
    try:
        opened = library()
    except LibraryUnavailableError as error:
        remedy = "apt-get install gcc libc6-dev; torch computes meanwhile, 2 to 4 times slower"
        return Finding(Level.NOTE, "CPU path", str(error), remedy)
    text, best = f"compiled: {opened.path}", levels_for(cpu_flags())[0]
    if opened.path.name == file_name(best):
        return Finding(Level.OK, "CPU path", text)
    if "amx_tile" in best.needs and not may_use_tiles():
        return Finding(Level.NOTE, "CPU path", f"{text}; {NO_TILES}", ALLOW_TILES)
    remedy = f"install GCC 11 or later, to compile for {best.name}"
    return Finding(Level.NOTE, "CPU path", f"{text}, not all that this CPU can do", remedy)


def memory_finding(meminfo: str) -> Finding:
    """Return a finding about memory from /proc/meminfo."""
    kib = {
        name: int(value)
        for name, value in re.findall(r"^(\w+):\s+(\d+) kB$", meminfo, re.MULTILINE)
    }
    total, available = kib.get("MemTotal", 0) << 10, kib.get("MemAvailable", 0) << 10
    text = f"{available / _GIB:.1f} GiB available of {total / _GIB:.1f}"
    if available < _GIB:
        return Finding(Level.NOTE, "memory", text, "pocket needs about 1 GiB, others more")
    return Finding(Level.OK, "memory", text)


def files_finding(hard: int) -> Finding:
    """``hard``: the limit to which a worker raises its own."""
    unlimited = hard == resource.RLIM_INFINITY
    text = f"{'any number of' if unlimited else hard} open files allowed"
    if not unlimited and hard < RESERVED_DESCRIPTORS:
        remedy = f"raise it (ulimit -n): below {RESERVED_DESCRIPTORS} few clients can connect"
        return Finding(Level.FAIL, "limits", text, remedy)
    if not unlimited and hard < _ENOUGH_FILES:
        return Finding(Level.NOTE, "limits", text, "raise it (ulimit -n): one per connection")
    return Finding(Level.OK, "limits", text)


def port_findings(service: ServiceSettings) -> Iterator[Finding]:
    yield port_finding(service.host, service.port)
    if service.admin and service.admin_port is not None:
        yield _own_port_finding("admin-port", service.admin_host, service.admin_port)
    if service.grpc_port is not None:
        yield _own_port_finding("grpc-port", service.host, service.grpc_port)


def _own_port_finding(flag: str, host: str, port: int) -> Finding:
    """Return a finding about a port that is only opened where it was set."""
    found = port_finding(host, port, flag)
    return found if found.level is Level.OK else dataclasses.replace(found, level=Level.FAIL)


def port_finding(host: str, port: int, flag: str = "port") -> Finding:
    """Return a finding about the port of a setting. One in use is only noted: it may be this very
    server's."""
    where = address_text(host, port)
    try:
        listening_socket(host, port, backlog=1).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            remedy = f"--{flag} {port + 1}, or stop the process that is using it"
            return Finding(Level.NOTE, flag, f"{where} is in use", remedy)
        return Finding(Level.FAIL, flag, f"cannot listen on {where}: {error.strerror or error}")
    return Finding(Level.OK, flag, f"{where} is free")


def store_finding(place: StorePlace, *, holds_keys: bool) -> Finding:
    """Return a finding about where responses and keys are stored. Nothing is made there: it would
    belong to the user who looks, who need not be the one who serves."""
    if place.file is None:
        return Finding(Level.OK, "store", "PostgreSQL (this check does not contact it)")
    if problem := _file_problem(place.file):
        detail = f"cannot write {place.file}: {problem}; the server would"
        remedy = "--store-url sqlite:///FILE with a file that can be written"
        if holds_keys:
            return Finding(Level.FAIL, "store", f"{detail} accept no stored key", remedy)
        remedy += ", or --store-url none"
        return Finding(Level.NOTE, "store", f"{detail} store nothing", remedy)
    return Finding(Level.OK, "store", str(place.file))


def _file_problem(path: Path) -> str:
    """Say why the file, or in its folder the ones that SQLite adds, cannot be written."""
    try:
        if path.is_dir():
            return "it is a folder"
        if path.exists() and not os.access(path, os.R_OK | os.W_OK):
            return "it is not writable"
        folder = next(parent for parent in path.absolute().parents if parent.exists())
    except OSError as error:  # of a folder that this user may not look into
        return f"{error.filename}: {error.strerror}"
    try:
        # os.access would say that root may write anywhere, also to /proc.
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return ""


def absent_finding(place: ModelPlace) -> Finding:
    """``place``: of a model on the hub of which there is no whole copy."""
    return Finding(
        Level.NOTE,
        "model",
        f"{place.asked} is not in the cache as a whole, or not verified; 'quire serve' would first "
        "download what is missing",
        shlex.join(place.pull_command),
    )


def unverified_finding(place: ModelPlace, found: Finding) -> Finding:
    """``found``: about a copy that the cache has of a model on the hub."""
    if found.level is not Level.OK:
        return found
    return Finding(
        Level.NOTE,
        "model",
        f"{found.detail}, not verified; 'quire serve' would first ask the hub, or without a "
        "network check what is there",
        shlex.join(place.pull_command),
    )


def refused_finding(problem: str) -> Finding:
    return Finding(Level.FAIL, "model", problem)


def simulated_finding(tokenizer: Path) -> Finding:
    return Finding(Level.OK, "model", f"simulated, with the tokenizer in {tokenizer}")


def model_finding(checked: CheckedModel) -> Finding:
    """Raises ConfigError."""
    model, code = checked.directory, "" if checked.native else ", computed by transformers' code"
    if checked.engine.load_format == "dummy":
        return Finding(Level.OK, "model", f"{model}, with random weights{code}")
    gguf = {each for file in model.glob("*.gguf") for each in parts_by_name(named_part(file))}
    weights = [*model.glob("*.safetensors"), *filter(Path.is_file, gguf)]
    if not weights:
        return Finding(
            Level.FAIL,
            "model",
            f"{model} has no weights (safetensors, or a GGUF file)",
            "add them, or use random ones: --load-format dummy",
        )
    size = sum(file.stat().st_size for file in weights)
    quantized = read_quantization(model)
    kind = "" if quantized is None or quantized.is_floats else f" ({quantized.description})"
    written = f"{size / _GIB:.2f} GiB" if size >= _GIB else f"{size / _MIB:.1f} MiB"
    name = gguf_of(model) or model
    return Finding(Level.OK, "model", f"{name}, {written} of weights{kind}{code}")


def optional_findings() -> Iterator[Finding]:
    if importlib.util.find_spec("streamlit") is None:
        remedy = f"make dashboard, or {shlex.quote(sys.executable)} -m pip install streamlit httpx"
        yield Finding(Level.NOTE, "dashboard", "Streamlit is not installed", remedy)
    else:
        yield Finding(Level.OK, "dashboard", "Streamlit is installed: quire dashboard")
    endpoint = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get(
        "OTEL_EXPORTER_OTLP_ENDPOINT"
    )
    yield Finding(
        Level.OK,
        "traces",
        f"exported to {_host_of(endpoint)}"
        if endpoint
        else "not exported (OTEL_EXPORTER_OTLP_ENDPOINT)",
    )
    for program, package, use in (
        ("promtool", "prometheus", "checks the metrics page in the tests"),
        ("chromium", "chromium", "opens the dashboard in the tests"),
    ):
        if shutil.which(program) is None:
            remedy = f"apt-get install --no-install-recommends {package}"
            yield Finding(Level.NOTE, program, f"not found; {use}", remedy)
        else:
            yield Finding(Level.OK, program, use)


def _host_of(url: str) -> str:
    """Return the part of a URL that holds no secret."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else "a collector"
