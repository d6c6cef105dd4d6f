"""Triton kernels. Importing one needs triton; ``engine.gpu.triton`` tells whether it is there."""
