"""Turns a candidate's source into the one Python module that the runner executes.

A `.py` candidate is that module already. A `.cu` or `.cpp` file is wrapped in a `ModelNew` that builds it and calls its
`forward` (`backward`, if the task says so) with the task's inputs, then the weights in `state_dict` order, then the
constructor's arguments.
"""

from __future__ import annotations

import ast
import warnings

from kernelwright import syntax
from kernelwright.backends.source_text.plain import exported_functions, plain_extension_source
from kernelwright.evaluation.failure import Failed
from kernelwright.records import Candidate, Finding

_WRAPPER = """\
import torch
from torch.utils.cpp_extension import load_inline

_extension = load_inline(name="candidate", cpp_sources={cpp!r}, cuda_sources={cuda!r}{flags})


class {entry}(torch.nn.Module):
    def __init__(self, *init, **named):
        super().__init__()
        self.init = [*init, *named.values()]
        self.reference_weights = {{}}  # filled by the runner

    def forward(self, *inputs):
        weights = self.reference_weights.values()
        try:
            return _extension.{function}(*inputs, *weights, *self.init)
        except TypeError as error:
            given = f"{{len(inputs)}} inputs, {{len(weights)}} weights and {{len(self.init)}} constructor arguments"
            raise TypeError(f"{{error}} ({function} is called with {{given}}, in this order)") from None
"""


def module_source(candidate: Candidate, preferred: str = "forward") -> tuple[str, Failed | None]:
    """Returns the Python text to execute, or the reason why there is none. `preferred` is the function to call in a
    file that exports several."""
    path, text = candidate.sources[0].path, candidate.text
    if not text.strip():
        return "", Failed("compile_error", "the candidate is empty")
    if candidate.language == "hip":
        return "", Failed("unsupported", "hip: no backend for HIP candidates in this version")
    if path.endswith((".cu", ".cpp", ".cc", ".cxx")):
        return _wrapped(candidate, path.endswith(".cu"), preferred)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = syntax.parse(text)
    except SyntaxError as error:
        reason = f"SyntaxError: {error.msg}" + (f" (line {error.lineno})" if error.lineno else "")
        finding = Finding(rule="syntax-error", evidence=reason, severity="fault", line=error.lineno)
        return "", Failed("compile_error", reason, finding)
    except (ValueError, RecursionError, MemoryError) as error:
        return "", Failed("compile_error", f"the file cannot be parsed: {str(error) or type(error).__name__}")
    if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
        shown = text.strip()[:40]
        return "", Failed("compile_error", f"the candidate defines no {candidate.entry_point}: its text is {shown!r}")
    return text, None


def _wrapped(candidate: Candidate, cuda: bool, preferred: str) -> tuple[str, Failed | None]:
    functions = exported_functions(candidate.text)
    if not functions:
        reason = "the file exports no function: write `torch::Tensor forward(...)` or a PYBIND11_MODULE"
        return "", Failed("compile_error", reason)
    function = preferred if preferred in functions else functions[0]
    request = plain_extension_source("candidate", candidate.text, cuda)
    flags = "" if cuda else ', extra_cflags=["-O2"]'
    if len(candidate.sources) > 1:
        flags += ', extra_include_paths=["."]'
    text = _WRAPPER.format(
        cpp=request.cpp_source,
        cuda=request.cuda_source,
        flags=flags,
        entry=candidate.entry_point,
        function=function,
    )
    return text, None
