"""Keeps a run on disk: its folder, its store, the queue in it and the workers that serve it."""
