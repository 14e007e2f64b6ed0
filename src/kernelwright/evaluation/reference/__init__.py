"""Runs the task's reference: the processes that know what is expected."""
