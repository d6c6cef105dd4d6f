"""Triton kernels. They need triton to import; ``engine.gpu.availability`` checks that first."""
