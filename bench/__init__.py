"""One command per question; each prints a table and writes JSON under bench/results/."""
