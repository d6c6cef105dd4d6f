"""Benchmarks: one command per question; each prints a table and writes JSON to bench/results/."""
