"""Takes CUDA C++ text apart: tokens, declarations, launches, device text and host text."""
