"""Rules against candidates that compute nothing, compute with libraries, or access the harness.

Each rule has a name, and turns the facts of a call into `Finding`s. `static_rules` reads the candidate's text, and
`on_host` decides whether outputs are right; this module does neither.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright.evaluation.processes.messages import CallState
from kernelwright.evaluation.tensor_bytes import shares_memory
from kernelwright.evaluation.text.library_ops import allowed, owner
from kernelwright.records import Finding, LibraryRule

FEW_IN_ALL = 1024
"""Elements that all small library operators of a call may process together, even if its inputs are smaller."""
SMALL_OP = 4096
"""A library operator on at most this many elements, and on at most a quarter of the largest input's, is glue."""


@dataclass(frozen=True)
class Shared:
    """The inputs that a reference shares or changes: pairs of output and input, by number, in one memory, and the
    numbers of the changed ones."""

    handed: Sequence[Sequence[int]] = ()
    changed: Sequence[int] = ()


def call_findings(
    facts: CallState,
    policy: LibraryRule,
    largest_input: int,
    workload: str,
    shared: Shared | None = None,
) -> list[Finding]:
    """Checks one call for mutation, aliasing, lazy outputs, no own kernel and library operators.

    `facts` is the runner's answer to `call` (see `runner.Runner.call`). What the reference does to inputs itself
    (`shared`) a candidate may do, too.
    """
    shared = shared or Shared()
    excused = {shares_memory(*pair) for pair in shared.handed}
    mutated = [i for i in facts.mutated if i not in shared.changed]
    found = [
        Finding(rule=rule, evidence=evidence, severity=_object_severity(rule), workload=workload)
        for rule, evidence in facts.problems
        if rule != "aliased-output" or evidence not in excused
    ]
    if mutated:
        found.append(
            Finding(
                rule="input-mutated",
                evidence=f"input {mutated[0]} holds other values after the call than before",
                severity="reject",
                workload=workload,
            )
        )
    found += _reaching_out(facts, workload)
    libraries = allowed(policy)
    if policy == "libraries":
        return found
    call = facts.facts
    launches = sum(one.count for one in call.launches)
    calls = call.own_calls
    used_libraries = library_work(facts, largest_input, libraries)
    heavy = [name for name in used_libraries if owner(name) not in libraries]
    if used_libraries and not heavy:
        return found  # work of allowed libraries needs no kernel
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
    elif evidence := _foreign(facts, largest_input):
        found.append(Finding(rule="foreign-output", evidence=evidence, severity="reject", workload=workload))
    elif launches and not any(call.written.values()):
        found.append(_decoy("kernels ran but wrote to no tensor", workload))
    elif launches and facts.idle:
        found.append(_decoy("kernels ran, but stored no element of the outputs", workload))
    return found


def _decoy(evidence: str, workload: str) -> Finding:
    """Returns a finding that is no fault by itself: a kernel that stores on a condition may never meet it.

    `idle_kernels` decides over all calls.
    """
    return Finding(rule="decoy-kernel", evidence=evidence, severity="info", workload=workload)


def moved_decoy(evidence: str, workload: str) -> Finding:
    """Returns the finding about an output that torch's operators moved (`compare.moved_outputs`)."""
    said = f"{evidence}, and moving is all that the task does for it"
    return Finding(rule="decoy-kernel", evidence=said, severity="reject", workload=workload)


def _reaching_out(facts: CallState, workload: str) -> list[Finding]:
    """Checks Python code for access to the harness's objects and for patched functions; all rules apply."""
    seen: list[tuple[str, str]] = list(facts.snooped)
    seen += [("patched-function", f"replaces {name}") for name in facts.patched]
    return [Finding(rule=rule, evidence=what, severity="reject", workload=workload) for rule, what in seen]


_STRANGE = {
    "host": "the host uploaded after it had read values of the call",
    "glue": "torch's operators computed",
    "finished": "torch's operators computed",
}


def _foreign(facts: CallState, largest_input: int) -> str:
    """Explains the way in which values of unknown origin reached the outputs; empty if none did."""
    bound = few(largest_input)
    for number, made in enumerate(facts.origins or ()):
        for label, meaning in _STRANGE.items():
            if made.get(label, 0) > bound:
                return f"output {number} holds {made[label]} elements that {meaning}"
    if foreign := [i for i, numel in facts.foreign if numel > bound]:
        return f"output {foreign[0]} holds values that neither a kernel nor glue made of a kernel's results"
    if (strangers := facts.strangers) > bound:
        return f"kernels were given {strangers} values that neither a kernel, nor an operator that was seen, has made"
    return ""


def _permitted(libraries: frozenset[str]) -> str:
    if not libraries:
        return "the task is to be solved from scratch"
    return f"only {', '.join(sorted(libraries))} may be called"


def _object_severity(rule: str) -> Any:
    return "warning" if rule == "patched-output" else "reject"


def few(largest_input: int) -> int:
    """Returns the number of elements up to which torch's work in a call is glue."""
    return min(SMALL_OP, max(1, largest_input // 4))


def library_work(facts: CallState, largest_input: int, libraries: frozenset[str] = frozenset()) -> list[str]:
    """Returns the names of library operators that did more than glue, largest first, each once.

    An operator counts by a single large call, or by many small ones that together process more than half of the largest
    input's elements. Operators of `libraries`, which the policy allows, are summed by library, all others together.
    """
    small = few(largest_input)
    names: list[str] = []
    for name, numel in [*facts.operators, *facts.library_ops]:
        if numel > small and name not in names:
            names.append(name)
    together: dict[str, int] = {}
    pieces = [(name, numel, owner(name)) for name, numel in facts.pieces]
    for _, numel, library in pieces:
        key = library if library in libraries else ""
        together[key] = together.get(key, 0) + numel
    many = max(FEW_IN_ALL, largest_input // 2)
    over = [name for name, _, library in pieces if together[library if library in libraries else ""] > many]
    return names + [name for name in over if name not in names]


def unwritten(facts: CallState, workload: str) -> Finding | None:
    """Returns the finding about an output with elements that nothing has written; the device knows by its labels. None
    after a fault: the launch has ended before it could write them."""
    if any(found.severity == "fault" for found in facts.findings):
        return None
    for number, made in enumerate(facts.origins or ()):
        if count := made.get("unwritten"):
            evidence = f"output {number} has {count} of {sum(made.values())} elements that nothing has written"
            return Finding(rule="unwritten-output", evidence=evidence, severity="fault", workload=workload)
    return None


def unfounded(facts: CallState, built: bool, workload: str) -> list[Finding]:
    """Rejects a report of own kernels or functions that ran although nothing was built for this candidate."""
    if built or not (facts.facts.launches or facts.facts.own_calls):
        return []
    evidence = "says that kernels of its own ran, but none was ever built"
    return [Finding(rule="forged-answer", evidence=evidence, severity="reject", workload=workload)]


def never_read(facts: CallState, shapes: Sequence[Sequence[int]], workload: str) -> list[Finding]:
    """Reports inputs of which no kernel read a byte, if every launch was watched and read only inputs and weights.

    Information only: a result may not need an input's values, and then the outputs are right.
    """
    launches = facts.facts.launches
    read = [m.name for one in launches for m in one.memory if m.read]
    complete = launches and all(one.watched == one.count for one in launches)
    if not complete or any(not re.search(r"\b(input|weight) \d", name) for name in read):
        return []
    if facts.operators or facts.library_ops:
        return []
    unread = [i for i, s in enumerate(shapes) if s and not any(re.search(rf"\binput {i}\b", n) for n in read)]
    return [
        Finding(rule="input-never-read", evidence=f"no kernel read input {i}", severity="info", workload=workload)
        for i in unread
    ]


def rejecting(findings: Sequence[Finding]) -> Finding | None:
    """Returns the first finding that rejects, if any."""
    return next((f for f in findings if f.severity == "reject"), None)
