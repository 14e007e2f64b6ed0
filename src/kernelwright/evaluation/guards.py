"""Rules against computing nothing, computing elsewhere, and looking where a candidate has no business.

Each rule has a name, and turns what was seen into `Finding`s. Static rules read the candidate's text; dynamic rules
read the facts of a call. Where a rule of KernelGuard means the same, the finding says so in its evidence. What this
does not do: decide whether outputs are right (that is `compare`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

from kernelwright.evaluation.library_ops import allowed, owner
from kernelwright.records import Candidate, Finding, Policy

SMALL_OP = 4096
"""A library operator on at most this many elements, and on at most a quarter of the largest input's, is glue."""

_SNOOPING = {
    "gc": {"get_objects", "get_referrers", "get_referents"},
    "sys": {"_getframe", "_current_frames", "settrace", "setprofile"},
    "inspect": {"stack", "currentframe", "getouterframes", "trace"},
}
_INSIDE = {"tb_frame", "gi_frame", "cr_frame", "ag_frame", "f_back", "f_locals", "f_globals", "f_builtins"}
_INSIDE |= {"__closure__", "__globals__", "__code__", "__subclasses__", "cell_contents"}
"""Attributes that lead from an object to frames, to functions' insides, or to all classes there are."""
_OURS = re.compile(r"kernelwright\.(?!cuda$)[\w.]+")
_PATCHABLE = {"torch", "time", "os", "sys", "builtins", "json", "nn", "F", "np", "numpy"}
_PATCH_EXEMPT = {"backends", "_dynamo", "_inductor", "_C"}
_PROCESSES = {"subprocess", "socket", "multiprocessing", "requests", "urllib", "http"}


def static_findings(candidate: Candidate) -> list[Finding]:
    """What the text alone gives away. Only reading another's frames, heap or modules rejects; the rest is advice."""
    try:
        tree = ast.parse(candidate.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found: list[Finding] = []
    for node in ast.walk(tree):
        found.extend(_of_node(node))
    seen: set[tuple[str, int | None]] = set()
    unique = []
    for finding in found:
        if (finding.rule, finding.line) not in seen:
            seen.add((finding.rule, finding.line))
            unique.append(finding)
    return unique[:20]


def _dotted(node: ast.expr) -> list[str]:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
        return parts[::-1]
    return []


def _of_node(node: ast.AST) -> Iterator[Finding]:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from _of_import(node)
    elif isinstance(node, ast.Attribute):
        name = _dotted(node)
        if len(name) == 2 and name[1] in _SNOOPING.get(name[0], ()):
            yield Finding(
                rule="frame-walk",
                evidence=f"{'.'.join(name)} looks at frames or objects of others (KernelGuard FRAME_WALK)",
                severity="reject",
                line=node.lineno,
            )
        if node.attr in _INSIDE:
            yield Finding(
                rule="frame-walk",
                evidence=f".{node.attr} leads to what belongs to others (KernelGuard FRAME_WALK)",
                severity="reject",
                line=node.lineno,
            )
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, str) and _OURS.fullmatch(node.value):
            yield _reaching(f"names {node.value}", node.lineno)
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _of_patch(target)
    elif isinstance(node, ast.Call):
        name = _dotted(node.func)
        if name == ["setattr"] and node.args and isinstance(node.args[0], (ast.Name, ast.Attribute)):
            root = _dotted(node.args[0])
            if root and root[0] in _PATCHABLE and not _PATCH_EXEMPT & set(root):
                yield _patched(".".join(root), node.lineno)
        elif name in (["exec"], ["eval"]) and not (node.args and isinstance(node.args[0], ast.Constant)):
            yield Finding(
                rule="dynamic-code",
                evidence=f"{name[0]} of text that is made at run time (KernelGuard OBFUSCATED_EXEC)",
                line=node.lineno,
            )
        elif name[-2:] == ["threading", "Thread"] or name == ["Thread"]:
            yield Finding(rule="background-thread", evidence="starts a thread of its own", line=node.lineno)


def _of_import(node: ast.Import | ast.ImportFrom) -> Iterator[Finding]:
    names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    for name in names:
        if name.split(".")[0] == "kernelwright" and name not in ("kernelwright", "kernelwright.cuda"):
            yield _reaching(f"imports {name}", node.lineno)
        if name.split(".")[0] in _PROCESSES:
            yield Finding(rule="process-or-network", evidence=f"imports {name}", line=node.lineno)
        if isinstance(node, ast.ImportFrom) and name in _SNOOPING:
            for alias in node.names:
                if alias.name in _SNOOPING[name]:
                    yield Finding(
                        rule="frame-walk",
                        evidence=f"imports {name}.{alias.name} (KernelGuard FRAME_WALK)",
                        severity="reject",
                        line=node.lineno,
                    )


def _reaching(what: str, line: int) -> Finding:
    return Finding(
        rule="harness-access",
        evidence=f"{what}: only kernelwright.cuda is meant for candidates",
        severity="reject",
        line=line,
    )


def _of_patch(target: ast.expr) -> Iterator[Finding]:
    if isinstance(target, ast.Attribute):
        name = _dotted(target)
        if len(name) >= 2 and name[0] in _PATCHABLE and not _PATCH_EXEMPT & set(name):
            yield _patched(".".join(name), target.lineno)
    if isinstance(target, ast.Subscript) and _dotted(target.value) == ["sys", "modules"]:
        yield _patched("sys.modules", target.lineno)


def _patched(name: str, line: int) -> Finding:
    return Finding(
        rule="patched-function",
        evidence=f"replaces {name} (KernelGuard MONKEY_PATCH)",
        severity="reject",
        line=line,
    )


def call_findings(facts: dict[str, Any], policy: Policy, largest_input: int, workload: str) -> list[Finding]:
    """What one call gives away: mutation, aliasing, lazy outputs, no kernel of its own, library operators.

    `facts` is the runner's answer to `call` (see `runner.Runner.call`).
    """
    found = [
        Finding(rule=str(rule), evidence=str(evidence), severity=_object_severity(str(rule)), workload=workload)
        for rule, evidence in facts.get("problems", [])
    ]
    if facts.get("mutated"):
        found.append(
            Finding(
                rule="input-mutated",
                evidence=f"input {facts['mutated'][0]} holds other values after the call than before",
                severity="reject",
                workload=workload,
            )
        )
    for event in facts.get("snooped", []):
        found.append(Finding(rule="frame-walk", evidence=str(event), severity="reject", workload=workload))
    libraries = allowed(policy)
    if policy == "libraries":
        return found
    call = facts.get("facts", {})
    launches = sum(int(one.get("count", 1)) for one in call.get("launches", []))
    calls = int(call.get("own_calls", 0))
    used_libraries = library_work(facts, largest_input)
    heavy = [name for name in used_libraries if owner(name) not in libraries]
    if used_libraries and not heavy:
        return found  # what the named libraries computed need not be a kernel's
    if launches + calls == 0:
        used = f"; it computed with {', '.join(heavy)}" if heavy else ""
        found.append(
            Finding(
                rule="no-own-kernel",
                evidence=f"no kernel of the candidate's own ran in this call{used}",
                severity="reject",
                workload=workload,
            )
        )
    elif heavy:
        found.append(
            Finding(
                rule="library-op",
                evidence=f"computed with {', '.join(heavy)} although {_permitted(libraries)}",
                severity="reject",
                workload=workload,
            )
        )
    elif foreign := [i for i, numel in facts.get("foreign", []) if numel > _few(largest_input)]:
        found.append(
            Finding(
                rule="foreign-output",
                evidence=f"output {foreign[0]} holds values that neither a kernel nor glue made of a kernel's results",
                severity="reject",
                workload=workload,
            )
        )
    elif launches and not any(int(n) for n in call.get("written", {}).values()):
        found.append(
            Finding(
                rule="decoy-kernel",
                evidence="kernels ran but wrote to no tensor",
                severity="reject",
                workload=workload,
            )
        )
    return found


def _permitted(libraries: frozenset[str]) -> str:
    if not libraries:
        return "the task is to be solved from scratch"
    return f"only {', '.join(sorted(libraries))} may be called"


def _object_severity(rule: str) -> Any:
    return "warning" if rule == "patched-output" else "reject"


def _few(largest_input: int) -> int:
    return min(SMALL_OP, max(1, largest_input // 4))


def library_work(facts: dict[str, Any], largest_input: int) -> list[str]:
    """Names of the library operators that did more than glue, largest first, each once."""
    small = _few(largest_input)
    names: list[str] = []
    for name, numel in [*facts.get("operators", []), *facts.get("library_ops", [])]:
        if int(numel) > small and name not in names:
            names.append(str(name))
    return names


def unfounded(facts: dict[str, Any], built: bool, workload: str) -> list[Finding]:
    """Kernels or functions that are said to have run although nothing was built for this candidate."""
    call = facts.get("facts", {})
    if built or not (call.get("launches") or call.get("own_calls")):
        return []
    evidence = "says that kernels of its own ran, but none was ever built"
    return [Finding(rule="forged-answer", evidence=evidence, severity="reject", workload=workload)]


def rejecting(findings: Sequence[Finding]) -> Finding | None:
    """The first finding that rejects, if any."""
    return next((f for f in findings if f.severity == "reject"), None)
