"""Reads a task's text into one expression over inputs, weights and numbers. Runs nothing."""
