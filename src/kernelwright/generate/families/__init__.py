"""Families of generated tasks: each module holds functions that fill a draft."""
