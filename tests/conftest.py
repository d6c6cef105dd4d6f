"""Rules for all tests: which parts may be missing, and when that is a failure."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.engine.gpu.quicker import quicken_interpreter
from tests.quick import is_quick, skip_what_starts_processes

# Tests share the machine, so the duration of an example means nothing.
settings.register_profile("quire", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("quire"), max_examples=20)
settings.load_profile("quire")

# Without a GPU, kernels run in Triton's interpreter. Triton reads this when it is imported.
if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"

CHART = Path(__file__).parent / "chart"

# Set where all optional parts are installed (.ci/run): skipping a test there hides a gap.
MUST_NOT_SKIP = bool(os.environ.get("QUIRE_TESTS_MUST_NOT_SKIP"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="only tests that start no process (make quick)"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not config.getoption("quick"):
        return None
    if collection_path.is_dir():
        return None if any(map(is_quick, collection_path.rglob("test_*.py"))) else True
    if collection_path.match("test_*.py"):
        return None if is_quick(collection_path) else True
    return None


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("quick"):
        settings.load_profile("quick")


@pytest.fixture(autouse=True, scope="session")
def _quick(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("quick"):
        skip_what_starts_processes()


@pytest.fixture(autouse=True, scope="session")
def _state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the servers that tests start from storing anything in the user's files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True, scope="module")
def _log_settings() -> Iterator[None]:
    """Servers in this process set how, and from which level on, all of it logs."""
    before = structlog.get_config() if structlog.is_configured() else None
    yield
    structlog.reset_defaults()
    if before is not None:
        structlog.configure(**before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with pytest.MonkeyPatch.context() as patch:
        if item.get_closest_marker("one_process"):
            patch.delenv("QUIRE_TEST_WORKERS", raising=False)
            patch.delenv("QUIRE_TEST_ENGINES", raising=False)
        return (yield)


def pytest_collection() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    """What the tests import stays: looking through it takes the collector half a second each
    time."""
    gc.freeze()
    gc.enable()
    # Now, not at import: few test runs need Triton.
    if "triton" in sys.modules:
        quicken_interpreter()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test-chart` looks for tests in the chart's folder only, and `make test` runs none of
    them."""
    for item in items:
        if item.get_closest_marker("chart") and CHART not in item.path.parents:
            raise pytest.UsageError(f"{item.nodeid} is marked chart, but is not in {CHART}")


LOST_WORKER = pytest.StashKey[bool]()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """xdist calls this when a worker ends, with an ``error`` if it died."""
    if error:
        node.config.stash[LOST_WORKER] = True


def pytest_sessionfinish(session: pytest.Session) -> None:
    """After a worker died, exit with a code that CI does not retry: the tests left were not run."""
    if session.config.stash.get(LOST_WORKER, False):
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    needs_parts = any(item.get_closest_marker(name) for name in ("debian", "chart", "node"))
    if MUST_NOT_SKIP and report.skipped and needs_parts:
        report.outcome = "failed"
        report.longrepr = f"skipped where every part is installed: {report.longrepr}"
    return report
