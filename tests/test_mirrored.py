"""Every module has its test at the mirrored path, apart from a few exceptions with reasons."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("engine", "service", "client", "dashboard", "observability")
SUFFIXES = ("", "_live", "_laws")
MOST_EXCEPTIONS = 0.1  # of all modules

# Why a module has no separate test, and in brackets the test that covers it.
EXCEPTIONS: dict[str, str] = {
    "engine/architecture/errors.py": (
        "exception classes only (tests/engine/architecture/test_config.py)"
    ),
    "engine/gguf/family.py": "data only (tests/engine/gguf/test_families.py)",
    "engine/gguf/types.py": "data only (tests/engine/gguf/test_blocks.py)",
    "engine/gpu/kernels/tiles.py": (
        "a Triton function (tests/engine/gpu/kernels/test_ragged_attention.py)"
    ),
    "engine/gpu/kernels/types.py": (
        "a table of types (tests/engine/gpu/kernels/test_ragged_attention.py)"
    ),
    "engine/inspected.py": "data only (tests/engine/schedule/test_inspection.py)",
    "engine/loop/errors.py": "two exceptions without code (tests/engine/loop/test_core.py)",
    "engine/model/decoder.py": "a Protocol (tests/engine/model/test_llama.py)",
    "engine/schedule/scheduling.py": "a Protocol (tests/engine/schedule/test_scheduler.py)",
    "engine/step/runner.py": "a Protocol (tests/engine/run/test_model_runner.py)",
    "observability/buckets.py": "data only (tests/observability/test_catalogue.py)",
    "observability/key_listing.py": "data only (tests/service/http/admin/test_keys.py)",
    "observability/metric_kinds.py": "data only (tests/observability/test_catalogue.py)",
    "service/hub/errors.py": "exception classes only (tests/service/hub/test_problems.py)",
    "service/overview/snapshot.py": "data only (tests/service/overview/test_diagnose.py)",
    "service/admin/archive.py": "a Protocol (tests/service/http/admin/test_reading.py)",
    "service/output/events.py": "data only (tests/service/output/test_log.py)",
    "service/store/migrations/env.py": "a script for Alembic (tests/service/store/test_schema.py)",
    "service/telemetry/record.py": "data only (tests/service/telemetry/test_requests.py)",
    "service/tenants/key_limits.py": "data only (tests/service/tenants/test_stored_key.py)",
    "service/wire/task.py": "a NamedTuple (tests/service/wire/messages/test_request.py)",
}


def modules() -> list[str]:
    return sorted(
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py") and "_pb2" not in path.name
    )


def mirrored(module: str) -> list[str]:
    """Return the paths where its test may be."""
    path = Path("tests", module)
    return [str(path.with_name(f"test_{path.stem}{suffix}.py")) for suffix in SUFFIXES]


def has_test(module: str) -> bool:
    return any((ROOT / path).is_file() for path in mirrored(module))


def test_every_module_has_its_test_at_the_mirrored_path() -> None:
    missing = [
        f"{module}: create {mirrored(module)[0]}"
        for module in modules()
        if not has_test(module) and module not in EXCEPTIONS
    ]
    assert not missing, "modules without a test of their own:\n" + "\n".join(missing)


def test_no_exception_is_stale() -> None:
    there = set(modules())
    gone = [module for module in EXCEPTIONS if module not in there]
    assert not gone, "take out of EXCEPTIONS, the module is gone:\n" + "\n".join(gone)
    tested = [module for module in EXCEPTIONS if has_test(module)]
    assert not tested, "take out of EXCEPTIONS, the module has its test:\n" + "\n".join(tested)
    covered = [reason.partition("(")[2].rstrip(")") for reason in EXCEPTIONS.values()]
    assert [path for path in covered if not (ROOT / path).is_file()] == []
    unreasoned = [module for module, reason in EXCEPTIONS.items() if not reason.strip()]
    assert not unreasoned, "say in EXCEPTIONS why:\n" + "\n".join(unreasoned)


def test_exceptions_stay_few() -> None:
    most = int(len(modules()) * MOST_EXCEPTIONS)
    assert len(EXCEPTIONS) <= most, (
        f"{len(EXCEPTIONS)} exceptions, of {len(modules())} modules at most {most}: write tests "
        f"such as {', '.join(mirrored(module)[0] for module in list(EXCEPTIONS)[:3])}"
    )
