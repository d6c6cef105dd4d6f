"""``python -m service.grpc.generate [FOLDER]``: generates Python code from the proto file (``make
proto``).

Needs grpcio-tools in the version that pyproject.toml pins; a test fails when the committed code
differs from the output.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from engine.python_command import python_command

ROOT = Path(__file__).resolve().parents[1] / "proto"
SOURCE = "quire/v1/quire.proto"
GENERATED = ("quire/v1/quire_pb2.py", "quire/v1/quire_pb2.pyi", "quire/v1/quire_pb2_grpc.py")
# protoc names modules by the proto file's path, which follows the proto package, not Python's.
_IMPORT = "from quire.v1 import quire_pb2"
_OUR_IMPORT = "from service.proto.quire.v1 import quire_pb2"


def generate(folder: Path) -> None:
    """Write ``GENERATED`` below ``folder``. Raises CalledProcessError."""
    outputs = [f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")]
    command = ["-m", "grpc_tools.protoc", f"--proto_path={ROOT}", *outputs, SOURCE]
    subprocess.run(python_command(*command), check=True)
    stubs = folder / GENERATED[-1]
    stubs.write_text(stubs.read_text().replace(_IMPORT, _OUR_IMPORT))


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
