"""Runs the functional machine before a GPU: a candidate that it finds wrong needs no GPU, and GPUs are scarce.

first = before_gpu(options)
if first is not None and judged(first).verdict in AGAINST: ...      # no GPU needed
else: judged(options)
"""

from __future__ import annotations

from kernelwright.evaluation.options import EvalOptions

AGAINST = frozenset(("wrong", "compile_error", "runtime_error", "rejected"))
"""Verdicts of the functional machine that a GPU need not repeat. All others go on to the GPU: the machine may be too
slow for a candidate, or lack a feature that a GPU has."""


def before_gpu(options: EvalOptions) -> EvalOptions | None:
    """Returns the options for the functional machine's check before the GPU.

    None if there is no such check: no GPU judges, or KernelBench's evaluator does.
    """
    if options.resolved() != "gpu" or options.strict_kernelbench:
        return None
    return options.changed(backend="cpu", small_sizes=True)
