"""Runs foreign code: everything here is loaded in the process of a candidate or of a compiler."""
