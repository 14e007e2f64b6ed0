"""Turns a plain `.cpp` or `.cu` candidate, without Python code, into an extension request."""

from __future__ import annotations

import re

from kernelwright.backends.source_text.declarations import read_chunk
from kernelwright.backends.source_text.launches import ANNOTATIONS
from kernelwright.backends.source_text.tokens import matching, tokenize
from kernelwright.builds import BuildRequest


def exported_functions(source: str) -> tuple[str, ...]:
    """Returns the functions that a plain file exports: those of its PYBIND11_MODULE, else `forward`.

    Empty when it has neither.
    """
    if re.search(r"\bPYBIND11_MODULE\s*\(", source):
        return tuple(dict.fromkeys(re.findall(r"\bdef\s*\(\s*\"(\w+)\"", source)))
    return ("forward",) if _defines_forward(source) else ()


def _defines_forward(source: str) -> bool:
    """Tells whether a non-static host function `forward` is defined at top level or in an `extern "C"` block."""
    tokens = tokenize(source)
    k = 0
    while k < len(tokens):
        if tokens[k].kind == "directive" or tokens[k].text in (";", "}"):
            k += 1
        elif tokens[k].text == "extern" and k + 2 < len(tokens) and tokens[k + 2].text == "{":
            k += 3
        elif tokens[k].text == "namespace":
            while k < len(tokens) and tokens[k].text not in ("{", ";"):
                k += 1
            k = matching(tokens, k, len(tokens)) + 1
        else:
            chunk = read_chunk(tokens, k, len(tokens))
            hidden = {"static", "template"} | ANNOTATIONS
            if chunk.name == "forward" and chunk.body is not None and not hidden & set(chunk.words):
                return True
            k = chunk.stop
    return False


def plain_extension_source(name: str, source: str, cuda: bool, flags: tuple[str, ...] = ()) -> BuildRequest:
    """Returns the build request for a plain file. `cuda`: the text may hold kernels; else it is optimised host code.

    A file without PYBIND11_MODULE gets one that binds `forward`. torch/extension.h is included for the author.
    """
    text = "#include <torch/extension.h>\n#line 1\n" + source
    if not re.search(r"\bPYBIND11_MODULE\s*\(", source) and exported_functions(source):
        text += '\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }\n'
    if cuda:
        return BuildRequest("extension", name, cuda_source=text, cuda_flags=flags)
    return BuildRequest("extension", name, cpp_source=text, cpp_flags=flags)
