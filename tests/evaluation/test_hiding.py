"""A candidate finds no module of Kernelwright but `cuda`, and can import none."""

from __future__ import annotations

import subprocess
import sys

NESTED = """
import importlib, sys, types
from kernelwright.evaluation.candidate import hidden_package

package = sys.modules["kernelwright.evaluation"]
for path in ("inner", "inner.deeper", "inner.deeper.deepest"):
    name = f"kernelwright.evaluation.{path}"
    parent, _, leaf = name.rpartition(".")
    sys.modules[name] = types.ModuleType(name)
    setattr(sys.modules[parent], leaf, sys.modules[name])
sys.modules["kernelwright.evaluation.inner"].deeper = None  # as `from ... import` may leave it
seen = []
hidden_package.hide(seen)
"""


def shown(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", NESTED + code], capture_output=True, text=True)
    return done.stdout.strip() + done.stderr


def test_modules_are_hidden_at_every_depth() -> None:
    code = """
import kernelwright, kernelwright.cuda
print(sorted(name for name in sys.modules if name.startswith("kernelwright")), vars(kernelwright).get("evaluation"))
"""
    assert shown(code) == "['kernelwright', 'kernelwright.cuda'] None"


def test_an_import_by_any_name_is_refused_and_noted() -> None:
    code = """
for name in ("kernelwright.solutions", "kernelwright.machine.runtime"):
    try:
        importlib.import_module("kernel" + name[6:])
    except ImportError as error:
        print("belongs to the judge" in str(error), end=" ")
print({rule for rule, _ in seen}, len(seen))
"""
    assert shown(code) == "True True {'harness-access'} 2"
