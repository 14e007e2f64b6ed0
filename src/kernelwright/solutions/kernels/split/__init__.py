"""Writes products and convolutions of float32 on tensor cores, by pairs of f16 numbers."""
