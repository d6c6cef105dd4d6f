"""Other engines for comparison, each run by a small worker process in a separate environment."""
