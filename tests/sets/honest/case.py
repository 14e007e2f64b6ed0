"""The honest case, and the builders that write tasks and candidates as text.

The builders only save repetition. The families' modules write out the parts that differ: the kernels and their
launches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from kernelwright.records import Candidate, LibraryRule, SourceFile, Task
from kernelwright.tasks.language import detect_language

Needs = Literal["", "gpu", "triton"]
HEAD = "import torch\nimport torch.nn as nn\n"


@dataclass(frozen=True)
class Case:
    """An honest candidate with its task. No judge may reject it."""

    name: str
    task_source: str
    candidate_source: str
    policy: LibraryRule = "from_scratch"
    entry: str = "ModelNew"
    needs: Needs = ""
    """What must be there for a verdict: nothing, a GPU, or Triton (with a GPU or without)."""
    suffix: str = ".py"
    reason: str = ""
    """Why it is not judged everywhere; empty where it is."""
    tolerance: float | None = None
    """The task's relative tolerance, where what is measured from its dtype is not meant."""

    def task(self) -> Task:
        return Task(
            task_id=f"honest-{self.name}", source=self.task_source, policy=self.policy, tolerance=self.tolerance
        )

    def candidate(self, stamp: str = "") -> Candidate:
        """Returns the candidate; a stamp makes its text unknown to every cache."""
        text = self.candidate_source
        if stamp:
            text += f"\n{'#' if self.suffix == '.py' else '//'} {stamp}\n"
        return Candidate(
            sources=(SourceFile(path=f"candidate{self.suffix}", content=text),),
            language=detect_language(text, self.suffix),
            entry_point=self.entry,
        )


def _indented(text: str, by: int = 8) -> str:
    return "\n".join(" " * by + line if line else line for line in text.strip("\n").split("\n"))


def _model(name: str, args: str, body: str, init: str, setup: str) -> str:
    parts = [f"class {name}(nn.Module):"]
    if setup:
        parts.append(
            f"    def __init__(self{', ' * bool(init)}{init}):\n        super().__init__()\n{_indented(setup)}\n"
        )
    parts.append(f"    def forward(self, {args}):\n{_indented(body)}\n")
    return "\n".join(parts)


def task(
    constants: str, inputs: str, args: str, body: str, *, init: str = "", setup: str = "", init_inputs: str = ""
) -> str:
    """Returns a reference module: `constants` are its sizes, `inputs` the list of get_inputs."""
    return (
        f"{HEAD}import torch.nn.functional as F\n\n{constants.strip()}\n\n"
        + _model("Model", args, body, init, setup)
        + f"\ndef get_inputs():\n    return [{inputs}]\n\ndef get_init_inputs():\n    return [{init_inputs}]\n"
    )


def model(args: str, body: str, *, init: str = "", setup: str = "") -> str:
    """Returns the class that a candidate defines."""
    return "\n\n" + _model("ModelNew", args, body, init, setup)


def inline(declared: str, cuda: str, new_model: str, *, flags: str = "") -> str:
    """Returns a candidate by `load_inline` with a list of functions, `declared` in C++."""
    names = re.findall(r"(\w+)\s*\(", declared)
    options = f", extra_cuda_cflags=[{flags}]" if flags else ""
    return (
        f"{HEAD}from torch.utils.cpp_extension import load_inline\n\n"
        f'cuda_source = r"""\n#include <torch/extension.h>\n{cuda.strip()}\n"""\n'
        f'extension = load_inline(name="{names[0]}_extension", cpp_sources="{declared}", cuda_sources=cuda_source,\n'
        f"                        functions={names!r}{options})\n{new_model}"
    )


def bound(names: str, cuda: str, new_model: str) -> str:
    """Returns a candidate whose CUDA text binds its functions itself, with PYBIND11_MODULE."""
    bindings = "\n".join(f'    m.def("{name}", &{name}, "{name} on the GPU");' for name in names.split())
    return (
        f"{HEAD}from torch.utils import cpp_extension\n\n"
        f'SOURCE = r"""\n#include <torch/extension.h>\n{cuda.strip()}\n\n'
        f"PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n{bindings}\n}}\n"
        f'"""\nextension = cpp_extension.load_inline("{names.split()[0]}_bound", cpp_sources="", cuda_sources=SOURCE)\n'
        f"{new_model}"
    )


def plain(cuda: str, new_model: str) -> str:
    """Returns a candidate that launches from Python, through `kernelwright.cuda.Module`."""
    return f'{HEAD}from kernelwright.cuda import Module\n\nmodule = Module(r"""\n{cuda.strip()}\n""")\n{new_model}'


def file(cuda: str) -> str:
    """Returns a bare .cu file whose `forward` takes the task's inputs."""
    return f"#include <torch/extension.h>\n{cuda.strip()}\n"
