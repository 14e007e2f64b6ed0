"""Judges: seeds, tolerances and the verdict, in the user's process. No torch, no foreign code."""
