"""Removes or deletes host member functions of types that host and device code share.

nvcc compiles a member function without `__device__` for the host only. In our device text everything is device code.
Of an extension, member functions that use host-only names are removed (a constructor that takes tensors, a factory),
and other host functions are deleted, so that a call from device code is an error, as with nvcc. Of a whole program, all
host functions are removed, declarations, too: NVRTC knows no `std::ostream`. Data members, which determine the layout,
and nested types are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kernelwright.backends.source_text.tokens import Token, blank, matching

_AFTER = {"const", "noexcept", "override", "final", "&"}
"""Tokens allowed between parameters and body."""
_NO_NAMES = {"alignas", "__align__", "decltype", "__attribute__", "noexcept", "explicit", "operator"}
"""Words before a parenthesis that opens no parameter list."""
_KEPT = {"constexpr", "consteval", "virtual", "override", "~", "friend"}
"""Words of functions that device code may call, or whose deletion would change the type."""


class Member(NamedTuple):
    """A member function; tokens [first, head) precede the body, the constructor's initialiser list, or the `;`."""

    first: int
    head: int
    last: int


class MemberReader:
    """Rewrites the types of one text. `qualifiers`: annotations by macro name."""

    def __init__(
        self, source: str, tokens: list[Token], host_only: re.Pattern[str], qualifiers: Mapping[str, set[str]]
    ) -> None:
        self.source, self.tokens, self.host_only, self.qualifiers = source, tokens, host_only, qualifiers

    def device_text(self, start: int, stop: int, name: str, whole: bool) -> str:
        """Returns the device text of type `name` in tokens [start, stop); `whole`: of a whole program."""
        tokens, out = self.tokens, [""]
        position = tokens[start].start
        body = next((k for k in range(start, stop) if tokens[k].text == "{"), None)
        found: list[Member] = []
        if body is not None:
            end = matching(tokens, body, stop)
            found = [*self._functions(body + 1, end), *(self._declared(body + 1, end) if whole else ())]
        for member in sorted(found):
            first, end = tokens[member.first].start, tokens[member.last].end
            text = self.source[first:end]
            if self._is_device(member):
                continue
            if self.host_only.search(text) or "<<<" in text or (whole and self._is_of_host(member)):
                out += [self.source[position:first], blank(text)]
            elif not whole and self._may_go(member, name):
                head = tokens[member.head - 1].end
                out += [self.source[position:head], " = delete;", blank(self.source[head:end])]
            else:
                continue
            position = end
        return "".join([*out, self.source[position : tokens[stop - 1].end]])

    def _is_device(self, member: Member) -> bool:
        words = {token.text for token in self.tokens[member.first : member.head]}
        return "__device__" in words.union(*(self.qualifiers.get(word, set()) for word in words))

    def _is_of_host(self, member: Member) -> bool:
        """Tells whether a member function is compiled for the host only and leaves no trace in the type's layout."""
        tokens = self.tokens[member.first : member.head]
        words = {token.text for token in tokens}
        # An unknown macro before a type may mean __device__.
        before_word = {a.text for a, b in zip(tokens, tokens[1:], strict=False) if b.kind == "word"}
        macros = before_word - self.qualifiers.keys()
        unknown = any(re.fullmatch(r"[A-Z][A-Z0-9_]{2,}", word) for word in macros)
        return not unknown and not words & {"constexpr", "consteval", "virtual", "override"}

    def _may_go(self, member: Member, name: str) -> bool:
        words = [token.text for token in self.tokens[member.first : member.head]]
        if _KEPT & set(words) or any(re.fullmatch(r"[A-Z][A-Z0-9_]{2,}", word) for word in words):
            return False  # an unknown macro may mean __device__
        copies = words.count(name) > 1  # a copy or move constructor, which the compiler would generate
        return not copies and "operator =" not in " ".join(words)

    def _declared(self, k: int, stop: int) -> Iterator[Member]:
        """Yields member functions that are declared without a body."""
        tokens = self.tokens
        first, opening = k, None
        while k < stop:
            text = tokens[k].text
            if text == "{":
                k = matching(tokens, k, stop)
                first, opening = k + 1, None
            elif text == "(":
                named = tokens[k - 1].kind == "word" and tokens[k - 1].text not in _NO_NAMES
                before = [token.text for token in tokens[first:k]]
                operator = "operator" in before
                given = "=" in before and not operator  # a data member with an initialiser
                pointer = k + 1 < stop and tokens[k + 1].text in ("*", "&")
                if opening is None and not given and (named or operator) and not pointer:
                    opening = k
                k = matching(tokens, k, stop)
            elif text in (";", ":") and not (text == ":" and opening is not None):
                if text == ";" and opening is not None and self._is_head(matching(tokens, opening, stop), k):
                    yield Member(first, k, k)
                first, opening = k + 1, None
            k += 1

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
