"""Rewrites a task's text into the one form that our models are trained on and asked with."""
