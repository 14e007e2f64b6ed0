"""Compiles and launches Triton kernels on the functional machine."""
