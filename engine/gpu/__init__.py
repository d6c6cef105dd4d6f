"""Running a model on a GPU with Quire's own kernels."""
