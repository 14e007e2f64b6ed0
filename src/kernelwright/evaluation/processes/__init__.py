"""Starts and confines child processes, and talks with them."""
