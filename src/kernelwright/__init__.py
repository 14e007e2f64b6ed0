"""Teaches language models to write GPU kernels, and judges what they write.

    import kernelwright as kw

    evaluation = kw.evaluate(kw.load_task("rms_norm"), kw.load_candidate("kernel.py"))
    print(evaluation.verdict, evaluation.reason)

The names in `__all__` are the public surface; `__init__.pyi` has their types. Each is imported when it is used, so that
`import kernelwright` loads neither torch nor numpy nor pydantic.
"""

__version__ = "0.1.0"

_MODULES = {
    "kernelwright.records": ("Candidate", "Evaluation", "Task"),
    "kernelwright.evaluation": ("EvalOptions", "Evaluator", "evaluate", "evaluate_many"),
    "kernelwright.search.optimize": ("optimize",),
    "kernelwright.tasks": ("load_candidate", "load_task"),
    "kernelwright.errors": (
        "CandidateError",
        "ConfigError",
        "HarnessError",
        "KernelwrightError",
        "MachineError",
        "PolicyError",
        "SandboxError",
        "StoreError",
        "TaskError",
        "UsageError",
        "WorkerDied",
    ),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    """Imports a public name from its module. Keeps nothing: a candidate finds no function of the judge here."""
    if name not in _HOME:
        raise AttributeError(f"module 'kernelwright' has no attribute {name!r}")
    # `__import__` raises the audit event `import`: a runner notes by it that its candidate reaches for the judge.
    return getattr(__import__(_HOME[name], fromlist=(name,)), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
