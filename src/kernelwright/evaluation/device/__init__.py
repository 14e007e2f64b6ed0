"""Runs calls on a GPU: memory shared between processes, the clock, timed calls. Judges nothing."""
