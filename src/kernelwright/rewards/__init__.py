"""Turns a verdict into a number with its parts."""
