"""Rewrites a canonical candidate in other surface forms: other names, or comments, in other authors' spelling."""

from __future__ import annotations

import re
from collections.abc import Callable

_STRING = re.compile(r'r"""\n(.*?)\n"""', re.DOTALL)
_KERNEL = re.compile(r'extern "C" __global__ void (?:__\w+__\([^)]*\) )*(\w+)\(')


def _kernels(text: str) -> list[str]:
    return _KERNEL.findall(text)


def _cuda(text: str, change: Callable[[str], str]) -> str:
    """Changes the CUDA string alone."""
    return _STRING.sub(lambda m: f'r"""\n{change(m[1])}\n"""', text, count=1)


def _named(text: str) -> str:
    """Renames kernels to `*_forward`, and the module to `module`."""
    for name in _kernels(text):
        text = re.sub(rf"\b{name}\b", name.replace("_kernel", "_forward"), text)
    return re.sub(r"\bkernels\b(?=\.\w+\[| = Module)", "module", text)


def _worded(text: str) -> str:
    """Names values and results by words instead of letters."""

    def change(cuda: str) -> str:
        taken = set(re.findall(r"\b[A-Za-z_]\w*\b", cuda))
        if any(re.fullmatch(r"value\d*|out", name) for name in taken):
            return cuda  # the names would clash
        return re.sub(r"\by\b", "out", re.sub(r"\bv(\d*)\b", r"value\1", cuda))

    return _cuda(text, change)


def _commented(text: str) -> str:
    """Adds a comment before each kernel: whether a thread or a block computes an element or a row."""

    def said(match: re.Match[str]) -> str:
        body = match.string[match.end() :].split("\n}\n", 1)[0]
        title = match[1].replace("_kernel", "").replace("_", " ")
        if "row = blockIdx.x;" in body:
            way = "a block computes a row"
        elif "long long row = " in body:
            way = "a thread computes a row"
        elif "long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;" in body:
            way = "a thread computes an element"
        else:
            way = "blocks of threads work together"
        return f"// {title}: {way}.\n{match[0]}"

    return _cuda(text, lambda cuda: _KERNEL.sub(said, cuda))


def _restricted(text: str) -> str:
    """Marks inputs with `__restrict__`: the compiler may assume that they do not overlap the output."""
    return _cuda(
        text, lambda cuda: re.sub(r"const (float|int|long long)\* (?=\w+[,)])", r"const \1* __restrict__ ", cuda)
    )


STYLES: dict[str, tuple[Callable[[str], str], ...]] = {
    "canonical": (),
    "named": (_named,),
    "worded": (_worded,),
    "commented": (_commented,),
    "restricted": (_restricted,),
    "all": (_commented, _restricted, _worded, _named),
}
"""Style -> its changes, in order."""


def styled(text: str, style: str) -> str:
    """Returns a candidate in a style. Raises ValueError for an unknown style."""
    if style not in STYLES:
        raise ValueError(f"unknown style {style!r}; there are {', '.join(STYLES)}")
    for change in STYLES[style]:
        text = change(text)
    return text
