"""A short way to write a planted bug, and the findings that name its kind."""

from __future__ import annotations

from sets.planted.case import Kind, Mutant

FENCE = ("missing-fence", "data-race")
MASK = ("sync-mask", "shuffle-from-inactive", "barrier-deadlock")
ASYNC = ("async-copy", "data-race")
OVERFLOW = ("index-overflow",)
VALUE = ()


def edit(name: str, kind: Kind, rules: tuple[str, ...], old: str, new: str, *at: str) -> Mutant:
    """Returns the bug that replaces `old` by `new`; `rules` name it on a line that holds one of the texts `at`."""
    return Mutant(name, kind, old, new, rules, at)
