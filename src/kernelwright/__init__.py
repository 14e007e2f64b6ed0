"""Kernelwright: teaches language models to write GPU kernels, and proves what they write.

Importing the package is light; torch and the other heavy libraries load with the parts that need them.
"""

__version__ = "0.1.0"
