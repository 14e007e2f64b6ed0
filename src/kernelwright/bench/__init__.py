"""Measures a policy on a suite: the job, its numbers, statistics and tables."""
