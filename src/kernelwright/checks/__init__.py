"""Checks tasks and whole programs before they are used."""
