"""Rewrites kernel launches in host text: `k<T><<<g, b>>>(x)` becomes `(::kw::configure(g, b), k<T>(x))`.

Works on a token range of host code, directives included. Removes CUDA's annotations, which a host compiler does not
know, and leaves everything else as written. `split` handles declarations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelwright.backends.source_text.tokens import Token, blank, line_at, matching, tokenize

ANNOTATIONS = {"__global__", "__device__", "__host__", "__constant__", "__managed__", "__noinline__"}
ANNOTATIONS |= {"__forceinline__", "__grid_constant__", "__shared__"}
CALL_ANNOTATIONS = {"__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__block_size__"}


class UnsupportedSource(Exception):
    """Raised for source that the splitter cannot handle; `what` names the construct."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(f"line {line}: {what}")
        self.what = what


class RefusedSource(Exception):
    """Raised for source that nvcc also rejects. The message is an error line with its place."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(f"cuda.cu({line}): error: {what}")


@dataclass
class LaunchSyntax:
    """One launch by token indices: callee [start, opening), configuration up to `closing`, arguments up to `last`."""

    start: int
    opening: int
    closing: int
    last: int


@dataclass
class HostText:
    """Renders host code from tokens with replacements, and collects the launches."""

    source: str
    tokens: list[Token]
    callees: list[tuple[int, int]] = field(default_factory=list)
    fixed: dict[int, str] = field(default_factory=dict)
    """Permanent replacements by token index, for device lambdas."""

    def render(self, start: int, stop: int, replace: Mapping[int, str] | None = None) -> str:
        """Returns the text of tokens [start, stop) with launches rewritten; `replace` maps token indices to texts."""
        replace = {**self.fixed, **(replace or {})} if self.fixed else replace or {}
        launches = self._launches(start, stop)
        before = {launch.start: launch for launch in launches}
        skip = {launch.opening: launch.closing for launch in launches}
        after = {launch.last for launch in launches}
        out: list[str] = []
        position = self.tokens[start].start if start < stop else 0
        k = start
        while k < stop:
            token = self.tokens[k]
            out.append(self.source[position : token.start])
            if k in before:
                launch = before[k]
                out.append(f"(::kw::configure({self.render(launch.opening + 1, launch.closing - 2)}), ")
                self.callees.append((launch.start, launch.opening))
            if k in skip:
                k = skip[k]
            elif k in replace:
                out.append(replace[k])
            elif token.text in CALL_ANNOTATIONS:
                k = matching(self.tokens, k + 1, stop)
            elif token.kind == "directive":
                out.append(host_directive(token.text))
            elif token.text not in ANNOTATIONS:
                out.append(token.text)
            if k in after:
                out.append(")")
            position = self.tokens[k].end
            k += 1
        return "".join(out)

    def line(self, index: int) -> int:
        """Returns the line number of a token, from 1."""
        return line_at(self.source, self.tokens[index].start)

    def _launches(self, start: int, stop: int) -> list[LaunchSyntax]:
        found = []
        for k in range(start, stop):
            if self.tokens[k].text == "<<<" and self.tokens[k].kind == "punct":
                found.append(self._launch(k, start, stop))
        return found

    def _launch(self, opening: int, start: int, stop: int) -> LaunchSyntax:
        callee = callee_start(self.tokens, opening - 1, start)
        closing = self._configuration_end(opening, stop)
        if closing is None or closing + 1 >= stop or self.tokens[closing + 1].text != "(":
            raise UnsupportedSource("a launch that is put together by a macro", self.line(opening))
        return LaunchSyntax(callee, opening, closing, matching(self.tokens, closing + 1, stop))

    def _configuration_end(self, opening: int, stop: int) -> int | None:
        """Returns the index of the last `>` of the `>>>` that ends the configuration."""
        k = opening + 1
        while k < stop - 2:
            text = self.tokens[k].text
            if text in ("(", "[", "{"):
                k = matching(self.tokens, k, stop)
            elif text == ">" and self.tokens[k + 1].text == ">" and self.tokens[k + 2].text == ">":
                while k + 3 < stop and self.tokens[k + 3].text == ">":
                    k += 1
                return k + 2
            k += 1
        return None


def callee_start(tokens: list[Token], last: int, first: int) -> int:
    """Returns the first token of the expression that ends at `last`: `ns::k<T>`, `(*f)`, `table[i]`, `f(x)`; in a
    macro's body also a name that is pasted together, `k_##type##_f<T>`."""
    k = _name_start(tokens, last, first)
    while k > first and tokens[k - 1].text in ("::", ".", "->"):
        if k - 2 < first or tokens[k - 2].text in ("(", ",", ";", "{", "}", "=") or tokens[k - 2].kind == "directive":
            return k - 1
        k = _name_start(tokens, k - 2, first)
    return k


def _name_start(tokens: list[Token], k: int, first: int) -> int:
    k = _step_back(tokens, k, first)
    while k - 3 >= first and tokens[k - 1].text == "#" and tokens[k - 2].text == "#":
        k = _step_back(tokens, k - 3, first)
    return k


def _step_back(tokens: list[Token], k: int, first: int) -> int:
    while k >= first:
        text = tokens[k].text
        if text == ">":
            k = _open_before(tokens, k, first, "<", ">") - 1
        elif text == ")":
            k = _open_before(tokens, k, first, "(", ")")
            if k <= first or tokens[k - 1].kind != "word" or tokens[k - 1].text in ("return", "if", "while", "else"):
                return max(k, first)
            k -= 1
        elif text == "]":
            k = _open_before(tokens, k, first, "[", "]") - 1
        else:
            return k
    return first


def _open_before(tokens: list[Token], k: int, first: int, opening: str, closing: str) -> int:
    depth = 0
    while k > first:
        if tokens[k].text == closing:
            depth += 1
        elif tokens[k].text == opening:
            depth -= 1
            if depth == 0:
                return k
        k -= 1
    return first


def host_directive(text: str) -> str:
    """Renders a directive for the host: removes annotations and rewrites launches in a macro's body."""
    if not text[1:].lstrip().startswith("define") or not ("__" in text or "<<<" in text):
        return text
    body = text.replace("\\\r\n", " ").replace("\\\n", " ")[1:]
    tokens = tokenize(body)
    rendered = "#" + " " + HostText(body, tokens).render(0, len(tokens)).replace("\n", " ")
    return rendered + blank(text)
