"""Parses CUDA C++ text: tokens, declarations and launches; splits it into device text and host text."""
