"""Benchmarks: one command per question; each prints a table and writes JSON to bench/results/.

They need the packages that ``make develop`` installs; those that compare with others also need
``make peers``.
"""

import sys

from bench.missing import report

if sys.argv[0] == "-m":  # python -m bench.…, which is about to import the benchmark
    sys.excepthook = report
