"""mini-swe-agent, by litellm's ``hosted_vllm`` provider: it writes and runs a program."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

URL, MODEL = sys.argv[1:]
TASK = "MINI-SWE: write hello.py so that it prints hello, and run it"

with tempfile.TemporaryDirectory() as folder:
    done = subprocess.run(
        [
            Path(sys.executable).with_name("mini"),
            *("--model", f"hosted_vllm/{MODEL}", "--task", TASK, "--yolo", "--exit-immediately"),
            *("--output", str(Path(folder) / "trajectory.json")),
        ],
        cwd=folder,
        env={
            **os.environ,
            "HOME": folder,
            "HOSTED_VLLM_API_BASE": f"{URL}/v1",
            "HOSTED_VLLM_API_KEY": "unused",
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "MSWEA_SILENT_STARTUP": "1",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (Path(folder) / "hello.py").read_text() == "print('hello')\n", done.stdout
    assert (Path(folder) / "out.txt").read_text() == "hello\n", done.stdout
