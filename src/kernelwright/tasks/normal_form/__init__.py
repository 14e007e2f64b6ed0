"""Rewrites a task's text in normal form, in which our own models are trained and asked."""
