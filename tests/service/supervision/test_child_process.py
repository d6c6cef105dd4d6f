"""How the supervisor's children begin and end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from service.supervision.child_process import await_end, child_environment, describe_exit

ROOT = Path(__file__).resolve().parents[3]


def run(script: str, cwd: Path = ROOT) -> str:
    """What ``script`` prints, run as a supervisor would: nothing else in its process."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_settings_of_the_parents_environment_do_not_reach_a_child() -> None:
    environ = {"PATH": "/bin", "QUIRE_MAX_NUM_SEQS": "8", "QUIRE_API_KEY": "secret"}
    child = child_environment(environ, {"QUIRE_API_KEY": "chosen"})
    assert child["PATH"] == "/bin"
    assert child["QUIRE_API_KEY"] == "chosen"
    assert "QUIRE_MAX_NUM_SEQS" not in child


def test_children_import_our_packages_regardless_of_the_working_directory(tmp_path: Path) -> None:
    impostor = tmp_path / "engine"
    impostor.mkdir()
    (impostor / "__init__.py").write_text("raise RuntimeError('not ours')")
    printed = run(
        """
        import os, sys
        sys.path.remove("")
        from service.supervision.child_process import child_environment, spawn
        pid = spawn("engine", ["--help"], child_environment(os.environ))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """,
        cwd=tmp_path,
    )
    assert printed.splitlines()[-1] == "0"


def test_a_child_leads_a_group_of_its_own_and_reads_no_input() -> None:
    printed = run(
        """
        import os
        from service.supervision.child_process import child_environment, spawn
        pid = spawn("timeit", ["-n1", "-r1", "-s", "import os, sys",
                    "print(os.getpgrp() == os.getpid(), sys.stdin.read() == '')"],
                    child_environment(os.environ))
        os.waitpid(pid, 0)
        """
    )
    assert "True True" in printed


def test_orphans_that_the_supervisor_inherits_are_reaped() -> None:
    """As process 1 of a container it is the parent of every orphan. PR_SET_CHILD_SUBREAPER (36)
    makes this process such a parent."""
    printed = run(
        """
        import ctypes, os, subprocess, time
        from service.supervision.child_process import reap
        assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
        subprocess.run(["sh", "-c", "sh -c 'echo $$; exit 7' & wait"], check=True)
        orphan = subprocess.run(["sh", "-c", "(sleep 0.2; exit 7) & echo $!"],
                                capture_output=True, text=True, check=True).stdout
        ended, deadline = [], time.monotonic() + 10
        while not ended and time.monotonic() < deadline:
            ended = reap()
            time.sleep(0.01)
        print(ended == [(int(orphan), 7)])
        """
    )
    assert printed.splitlines()[-1] == "True"


def test_exits_are_described_in_words() -> None:
    assert describe_exit(3) == "status 3"
    assert describe_exit(-signal.SIGKILL) == "SIGKILL"


def test_a_process_killed_by_a_real_time_signal_is_described() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        process.send_signal(signal.SIGRTMIN + 6)
        assert describe_exit(process.wait(30)) == f"signal {signal.SIGRTMIN + 6}"


def test_a_child_that_does_not_end_is_not_waited_for_for_ever() -> None:
    stays = os.posix_spawnp("sleep", ["sleep", "600"], os.environ)
    ends = os.posix_spawnp("true", ["true"], os.environ)
    assert await_end([stays, ends], 1.0) == [stays]
    os.kill(stays, signal.SIGKILL)
    assert await_end([stays], 60.0) == []
    assert await_end([stays], 0.0) == []  # reaped already
