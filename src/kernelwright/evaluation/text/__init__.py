"""Reads a candidate's text. Runs nothing."""
