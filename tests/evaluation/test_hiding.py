"""A candidate finds no module of the evaluation in `sys.modules`, at any depth."""

from __future__ import annotations

import subprocess
import sys

NESTED = """
import sys, types
from kernelwright.evaluation.candidate import runner

package = sys.modules["kernelwright.evaluation"]
for path in ("inner", "inner.deeper", "inner.deeper.deepest"):
    name = f"kernelwright.evaluation.{path}"
    parent, _, leaf = name.rpartition(".")
    sys.modules[name] = types.ModuleType(name)
    setattr(sys.modules[parent], leaf, sys.modules[name])
sys.modules["kernelwright.evaluation.inner"].deeper = None  # as `from ... import` may leave it
runner.hide_harness()
import kernelwright
print([name for name in sys.modules if name.startswith("kernelwright.evaluation")], hasattr(kernelwright, "evaluation"))
"""


def test_modules_are_hidden_at_every_depth() -> None:
    done = subprocess.run([sys.executable, "-c", NESTED], capture_output=True, text=True)
    assert done.stdout.strip() == "[] False", done.stdout + done.stderr
