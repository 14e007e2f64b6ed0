"""Shows runs and verdicts: in the terminal, and as a page."""
