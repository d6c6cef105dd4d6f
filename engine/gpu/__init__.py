"""Running a model on a GPU by our own kernels."""
