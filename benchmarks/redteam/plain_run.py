"""Tries attacks in plain torch on a CPU, with no guard: only an attack that gives the right answer there counts as one.

    python -m redteam.plain_run < attacks.jsonl > results.jsonl

The own kernels of covers, and the honest ones, are emulated with torch, since nothing else is needed of them. A
candidate is called three times: with two inputs, and with the first inputs again, as a judge without guards does. Each
attack runs in a forked process of its own, for at most `SECONDS`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import re
import select
import signal
import sys
import types
from typing import Any

from redteam import plain_host

SECONDS = 20.0


class _Launch:
    """Stands for a kernel: runs its emulation, by its name."""

    def __init__(self, name: str, answer: Any, inputs: int) -> None:
        self.name, self.answer, self.inputs = name, answer, inputs

    def __getitem__(self, config: Any) -> Any:
        return self.launch

    def launch(self, *given: Any) -> None:
        """Emulates one launch."""
        import torch

        tensors = [t for t in given if isinstance(t, torch.Tensor)]
        numbers = [v for v in given if not isinstance(v, torch.Tensor)]
        name = re.sub(r"\d$", "", self.name)
        if name == "honest":
            found = self.answer(*[t.detach() for t in tensors[: self.inputs]])
            for y, r in zip(tensors[self.inputs :], found if isinstance(found, tuple) else (found,), strict=True):
                y.copy_(r)
        elif name == "put":
            tensors[0].view(-1)[numbers[1]] = numbers[0]
        elif name == "turned":
            tensors[1].view(-1).copy_(tensors[0].view(-1).flip(0))
        elif name not in ("never", "one", "lower") and tensors[0] is not tensors[-1]:
            y = tensors[2] if name == "halves_of_two_copies" or name == "larger_of_two_copies" else tensors[-1]
            y.view(-1).copy_(tensors[0].view(-1))


def fake_module(answer: Any, inputs: int) -> types.ModuleType:
    """Returns a stand-in for `kernelwright.cuda`, whose kernels are emulated."""

    class Module:
        def __init__(self, source: str, flags: Any = ()) -> None:
            self.source = source

        def __getattr__(self, name: str) -> Any:
            if name == "constants":
                table = re.search(r"\{(.*?)\};", self.source)
                values = [float(v) for v in table[1].split(",")] if table else []
                return _Constants(values)
            return _Launch(name, answer, inputs)

    module = types.ModuleType("kernelwright.cuda")
    module.Module = Module  # type: ignore[attr-defined]
    return module


class _Constants:
    """Stands for a kernel that writes the constants of its text."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def __getitem__(self, config: Any) -> Any:
        return self.launch

    def launch(self, y: Any, n: int) -> None:
        """Writes the constants."""
        import torch

        y.view(-1).copy_(torch.tensor(self.values))


def close(found: Any, expected: Any) -> bool:
    """Tells whether the outputs are right to about float16's precision of a result."""
    import torch

    pairs = list(zip(found, expected, strict=True)) if isinstance(expected, tuple) else [(found, expected)]
    return all(
        y.shape == r.shape and y.dtype == r.dtype and torch.allclose(y.double(), r.double(), rtol=1e-3, atol=1e-3)
        for y, r in pairs
    )


def tried(job: dict[str, Any]) -> str:
    """Returns `works`, `wrong` or the name of the exception that the attack raised."""
    import torch

    torch.set_num_threads(1)
    _on_cpu(torch)
    space: dict[str, Any] = {"__name__": "reference"}
    exec(compile(job["reference"], "reference.py", "exec"), space)
    weights = job["weights"]
    plain: dict[str, Any] = {}
    exec(f"import torch\nimport torch.nn.functional as F\n{job['answer']}", plain)
    package = types.ModuleType("kernelwright")
    package.cuda = fake_module(plain["answer"], job["inputs"])  # type: ignore[attr-defined]
    sys.modules.update({"kernelwright": package, "kernelwright.cuda": package.cuda})  # type: ignore[attr-defined]
    torch.manual_seed(1)
    cpp_extension = importlib.import_module("torch.utils.cpp_extension")
    cpp_extension.load_inline = functools.partial(  # type: ignore[attr-defined]
        plain_host.load_inline, lambda *ts: plain["answer"](*ts).shape
    )
    first, second = space["get_inputs"](), space["get_inputs"]()
    reference = space["Model"](*space["get_init_inputs"]())
    sys.modules["candidate"] = types.ModuleType("candidate")
    candidate_space = sys.modules["candidate"].__dict__
    candidate_space["__file__"] = "candidate.py"
    exec(compile(job["text"], "candidate.py", "exec"), candidate_space)
    candidate = candidate_space["ModelNew"](*space["get_init_inputs"]())
    with torch.no_grad():
        for name in weights:
            getattr(candidate, name).copy_(getattr(reference, name))
        good = True
        for inputs in (first, first) if job["same_inputs"] else (first, second, first):
            found = candidate(*[t.clone() for t in inputs])
            good = good and close(found, reference(*inputs))
    return "works" if good else "wrong"


def _on_cpu(torch: Any) -> None:
    """Makes `cuda` a name of the CPU, as far as attacks use it."""
    held = torch.Tensor.to

    def to(self: Any, *given: Any, **named: Any) -> Any:
        return held(self, *["cpu" if isinstance(a, str) and a.startswith("cuda") else a for a in given], **named)

    torch.Tensor.to = to
    torch.Tensor.cuda = lambda self, *a, **k: self


def apart(job: dict[str, Any]) -> str:
    """Tries a job in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.setsid()
            os.close(read)
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            try:
                said = tried(job)
            except BaseException as error:
                said = f"{type(error).__name__}: {str(error)[:200]}"
            os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    ready, _, _ = select.select([read], [], [], SECONDS)
    said = os.read(read, 4096).decode(errors="replace") if ready else "timeout"
    os.close(read)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return said or "died"


def main() -> None:
    """Reads jobs, one a line, and writes one result a line."""
    import torch

    torch.set_num_threads(1)
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps({"key": job["key"], "plain": apart(job)}), flush=True)


if __name__ == "__main__":
    main()
