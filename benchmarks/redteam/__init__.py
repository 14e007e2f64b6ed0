"""Composes attacks on the judge from doors, covers, disguises and tasks, and measures how many get through."""
