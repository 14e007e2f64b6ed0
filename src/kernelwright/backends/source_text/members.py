"""Types that host and device code share: what becomes of their member functions in device code.

nvcc compiles a member function without `__device__` for the host only. Here all of a device text is the device's, so
those that name what only the host has are left out (a constructor that takes tensors, a factory), and the others are
deleted: a call from device code is an error, as it is with nvcc. What this does not do: look at data members, which
decide where the others lie, or into types within types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kernelwright.backends.source_text.tokens import Token, blank, matching

_AFTER = {"const", "noexcept", "override", "final", "&"}
"""What may stand between parameters and body."""
_KEPT = {"constexpr", "consteval", "virtual", "override", "~", "friend"}
"""Functions that device code may call as they are, or whose deletion would change the type."""


class Member(NamedTuple):
    """A member function with a body, by its tokens: [first, head) come before the body or a constructor's list."""

    first: int
    head: int
    last: int


class MemberReader:
    """Takes the types of one text apart. `qualifiers`: annotations that macros stand for."""

    def __init__(
        self, source: str, tokens: list[Token], host_only: re.Pattern[str], qualifiers: Mapping[str, set[str]]
    ) -> None:
        self.source, self.tokens, self.host_only, self.qualifiers = source, tokens, host_only, qualifiers

    def device_text(self, start: int, stop: int, name: str, delete: bool) -> str:
        """The type `name` in tokens [start, stop) as device code gets it; `delete`: host functions are deleted."""
        tokens, out = self.tokens, [""]
        position = tokens[start].start
        body = next((k for k in range(start, stop) if tokens[k].text == "{"), None)
        for member in self._functions(body + 1, matching(tokens, body, stop)) if body is not None else ():
            first, end = tokens[member.first].start, tokens[member.last].end
            text = self.source[first:end]
            if self._is_device(member):
                continue
            if self.host_only.search(text) or "<<<" in text:
                out += [self.source[position:first], blank(text)]
            elif delete and self._may_go(member, name):
                head = tokens[member.head - 1].end
                out += [self.source[position:head], " = delete;", blank(self.source[head:end])]
            else:
                continue
            position = end
        return "".join([*out, self.source[position : tokens[stop - 1].end]])

    def _is_device(self, member: Member) -> bool:
        words = {token.text for token in self.tokens[member.first : member.head]}
        return "__device__" in words.union(*(self.qualifiers.get(word, set()) for word in words))

    def _may_go(self, member: Member, name: str) -> bool:
        words = [token.text for token in self.tokens[member.first : member.head]]
        if _KEPT & set(words) or any(re.fullmatch(r"[A-Z][A-Z0-9_]{2,}", word) for word in words):
            return False  # a macro of unknown meaning may say that it is the device's
        copies = words.count(name) > 1  # made of another one: the compiler would have made it itself
        return not copies and "operator =" not in " ".join(words)

    def _functions(self, k: int, stop: int) -> Iterator[Member]:
        tokens = self.tokens
        first, closed, head = k, None, None
        while k < stop:
            text = tokens[k].text
            if text == "(":
                k = matching(tokens, k, stop)
                closed = k if head is None else closed
            elif text == "{":
                closing = matching(tokens, k, stop)
                following = tokens[closing + 1].text if closing + 1 < stop else ""
                end = k if head is None else head
                if closed is not None and self._is_head(closed, end) and (head is None or following not in (",", "{")):
                    yield Member(first, end, closing)
                    first, closed, head = closing + 1, None, None
                k = closing
            elif text == ";" or (text == ":" and tokens[k - 1].text in ("public", "private", "protected")):
                first, closed, head = k + 1, None, None
            elif text == ":" and closed is not None and head is None:
                head = k
            k += 1

    def _is_head(self, closed: int, end: int) -> bool:
        between = [token.text for token in self.tokens[closed + 1 : end]]
        return all(word in _AFTER for word in between) or "->" in between
