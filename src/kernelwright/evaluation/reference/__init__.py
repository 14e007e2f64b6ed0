"""Runs the task's reference: the processes that know the expected outputs."""
