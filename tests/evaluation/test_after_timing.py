"""The watched call after timing: timed calls are not watched, so the kernels' origin is checked once more."""

from __future__ import annotations

import pytest
from test_full_size import CUDA, judged

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool


@pytest.mark.parametrize("calls, verdict", [(9, "rejected"), (10**9, "correct")])
def test_a_library_that_takes_over_later_is_seen(pool: Pool, calls: int, verdict: str) -> None:
    """The library's result is correct, so a comparison of outputs does not detect it."""
    text = CUDA.replace("super().__init__()\n", "super().__init__()\n        self.calls = 0\n").replace(
        "        return module.forward(x, self.scale)",
        f"        self.calls += 1\n        if self.calls > {calls}:\n            return torch.relu(x) * self.scale\n"
        "        return module.forward(x, self.scale)",
    )
    options = EvalOptions(timing_seconds=0.1, trials=3, timeout=20)
    with Evaluator(options, device="cpu", pool=pool) as evaluator:
        result = judged(evaluator, text, "from_scratch")
    assert result.verdict == verdict and (verdict == "correct" or "no-own-kernel" in result.reason), result.reason
