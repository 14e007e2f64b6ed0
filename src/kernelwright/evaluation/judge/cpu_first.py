"""The functional machine in front of a GPU: what it finds wrong needs no GPU, of which there are few.

first = before_gpu(options)
if first is not None and judged(first).verdict in AGAINST: ...      # no GPU needed
else: judged(options)
"""

from __future__ import annotations

from kernelwright.evaluation.options import EvalOptions

AGAINST = frozenset(("wrong", "compile_error", "runtime_error", "rejected"))
"""Verdicts of the functional machine that a GPU need not repeat. It may be too slow for a candidate, and not know
something that a GPU does: those go on."""


def before_gpu(options: EvalOptions) -> EvalOptions | None:
    """What the functional machine is asked first; None where it is not: no GPU judges, or KernelBench's evaluator."""
    if options.resolved() != "gpu" or options.strict_kernelbench:
        return None
    return options.changed(backend="cpu", small_sizes=True)
