"""``python -m tests.service.few_files_worker``: the API worker, which may have 256 open files."""

from __future__ import annotations

import os
import resource
import sys

from service import worker

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    os._exit(worker.main(sys.argv[1:]))
