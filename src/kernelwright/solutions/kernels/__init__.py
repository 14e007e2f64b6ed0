"""Writes kernels and host lines for an expression."""
