"""What gRPC needs and a machine lacks, as reported by the command line."""

from __future__ import annotations

import subprocess
import sys

from tests.service.running import ROOT, free_port


def test_without_the_packages_the_flag_says_how_to_get_them() -> None:
    code = (
        "import sys; sys.modules['grpc_health'] = None; from service.cli import main; "
        f"sys.exit(main(['serve', '--grpc-port', '{free_port()}']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "grpcio-health-checking" in done.stderr
    assert f"{sys.executable} -m pip install grpcio-health-checking" in done.stderr
