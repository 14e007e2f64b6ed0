"""Packs weights once: a candidate's forward takes a packed form that is made again when the weight changes.

    def pack_linear(weight):                                    # a function of the candidate's file
        packed = torch.empty(weight.numel(), device=weight.device)
        kernels.pack_kernel[...](weight, packed, ...)
        return packed
    ...
        packed = once(self, "lin.weight", self.lin.weight, pack_linear)

The packed form is kept with the weight's version and address. Torch raises the version with every change that it makes
to a tensor; a change through `.data` or by a raw kernel raises none, and needs a new tensor.
"""

from __future__ import annotations

import re

from kernelwright.solutions.kernels.stages import Writer

ONCE = '''\
def once(module, name, weight, pack):
    """Returns pack(weight), made again when the weight changes."""
    kept = module.__dict__.setdefault("packed_weights", {})
    state = weight._version, weight.data_ptr()
    if name not in kept or kept[name][0] != state:
        kept[name] = state, pack(weight)
    return kept[name][1]'''
"""The function of every candidate that packs weights."""


_ATTRIBUTE = re.compile(r"self(?:\.\w+|\[\d+\])+")


def is_attribute(weight: str) -> bool:
    """Tells whether Python text is an attribute of the module, and so can be packed once."""
    return _ATTRIBUTE.fullmatch(weight) is not None


def packed_once(writer: Writer, weight: str, function: str, name: str = "packed") -> str:
    """Adds the line that takes the packed form of a weight, and returns the Python name of it.

    `weight` is the module's attribute as forward names it (`self.lin.weight`). `function` is the text of a Python
    function of one argument, the weight; it launches kernels and returns the packed tensor. Equal functions are added
    once. Raises ValueError for anything but an attribute of the module, since other values may depend on inputs.
    """
    if not is_attribute(weight):
        raise ValueError(f"{weight} is no attribute of the module")
    for text in (ONCE, function.strip("\n")):
        if text not in writer.functions:
            writer.functions.append(text)
    made = re.match(r"def (\w+)\(", function.strip("\n"))
    if made is None:
        raise ValueError("the text to pack a weight is no function")
    packed = writer.fresh(name)
    key = re.sub(r"\[(\d+)\]", r".\1", weight).removeprefix("self.")
    writer.line(f'{packed} = once(self, "{key}.{made[1]}", {weight}, {made[1]})')
    return packed
