"""The process under the profiler: loads one candidate, makes a task's inputs on the device, and calls it.

    python -m kernelwright.profile.target --task FILE --candidate FILE [--constants JSON] [--trace FILE] [--facts FILE]

Only the calls between cudaProfilerStart and cudaProfilerStop are profiled; earlier calls are warm-up. The candidate
runs with the user's rights and without the judge's sandbox, since a profiler must attach to it. The ladder only gives
it an environment without secrets and a time limit. A failure prints one line, `target-failed: …`, and exits with
status 4.
"""

from __future__ import annotations

import argparse
import atexit
import json
import shutil
import sys
import tempfile
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

FAILED = 4
WARM_UP = 3


def main(words: Sequence[str] | None = None) -> int:
    """Parses the command line, runs, and returns an exit status."""
    parser = argparse.ArgumentParser(prog="python -m kernelwright.profile.target")
    parser.add_argument("--task", required=True, help="a task as `kernelwright eval` takes it")
    parser.add_argument("--candidate", type=Path, required=True, help="a .py, .cu or .cpp file")
    parser.add_argument("--entry", default="ModelNew")
    parser.add_argument("--constants", default="{}", help="constants of the reference to replace, as JSON")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calls", type=int, default=1, help="forward calls that are profiled")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--trace", type=Path, help="write the events of torch's profiler here")
    parser.add_argument("--facts", type=Path, help="write bytes and operations of the call here")
    parser.add_argument("--function", default="forward")
    given = parser.parse_args(words)
    try:
        _run(given)
    except BaseException as error:  # a candidate may raise anything, SystemExit included
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        print(f"\ntarget-failed: {type(error).__name__}: {first[:300]}", flush=True)
        return FAILED
    return 0


def _run(given: argparse.Namespace) -> None:
    import torch

    from kernelwright.tasks import draws, load_task
    from kernelwright.tasks import inputs as task_inputs
    from kernelwright.tasks.reference import instantiate

    task, constants = load_task(given.task), json.loads(given.constants)
    namespace = instantiate(task.source, constants)
    reference = task_inputs.construct(namespace, given.seed)
    entry = load_candidate(given.candidate, given.entry, given.device, given.function)
    torch.manual_seed(given.seed)
    args, named = task_inputs.init_arguments(namespace)
    model = entry(*args, **named)
    model = _with_weights(model, reference, given.device)
    draws.home = given.device
    values = task_inputs.make_inputs(namespace, "own", given.seed)

    def call() -> Any:
        with torch.no_grad():
            return model(*values)

    for _ in range(WARM_UP):
        result = call()
    _settle(given.device)
    if given.facts is not None:
        given.facts.write_text(json.dumps(_facts(task.source, constants, values, model, result, given.device)))
    (_traced if given.trace is not None else _marked)(call, given)


def load_candidate(path: Path, entry: str, device: str, function: str = "forward") -> Callable[..., Any]:
    """Returns the candidate's model class; decides how its device code is built.

    On a GPU our own loader builds it (NVRTC and the stand-in headers: one second instead of torch's forty). If that
    lacks something that the candidate needs, torch's `load_inline` does. Raises whatever the candidate raises.
    """
    from kernelwright.evaluation.text import as_module
    from kernelwright.tasks import load_candidate as read

    candidate = read(path)
    source, failed = as_module.module_source(candidate, function)
    if failed is not None:
        raise failed
    if device != "cuda":
        return _executed(source, entry)
    import torch.utils.cpp_extension as cpp_extension

    from kernelwright.solutions.forms import with_headers

    originals = cpp_extension.load_inline, cpp_extension.load
    runtime = _fast_runtime()
    try:
        return _executed(source, entry)
    except Exception:
        if all(result.status != "unsupported" for result in runtime.builds):
            raise
    cpp_extension.load_inline, cpp_extension.load = originals
    return _executed(with_headers(source), entry)


def _fast_runtime() -> Any:
    """Points torch's extension builders at our compiler and NVIDIA's driver, in this process."""
    from kernelwright.backends import values
    from kernelwright.backends.build import build
    from kernelwright.backends.gpu import GpuRuntime
    from kernelwright.config import cache_dir
    from kernelwright.evaluation.candidate.runner import patch_builds

    values.real_cuda = True
    cache = cache_dir()
    runtime = GpuRuntime(lambda request: build(request, cache))
    patch_builds(runtime)  # type: ignore[arg-type]
    return runtime


def _executed(source: str, entry: str) -> Callable[..., Any]:
    import linecache

    # A real file until the process ends: Triton and inspect read a function's source from its file.
    folder = tempfile.mkdtemp(prefix="kernelwright-target-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    module = types.ModuleType("candidate")
    module.__file__ = str(Path(folder) / "candidate.py")
    Path(module.__file__).write_text(source, encoding="utf-8")
    linecache.checkcache()
    sys.modules["candidate"] = module
    exec(compile(source, module.__file__, "exec", dont_inherit=True), module.__dict__)
    found = module.__dict__.get(entry)
    if not callable(found):
        raise RuntimeError(f"the candidate defines no {entry}")
    return found  # type: ignore[no-any-return]


def _with_weights(model: Any, reference: Any, device: str) -> Any:
    """Moves the candidate's model to the device and loads the reference's weights where they fit."""
    import torch

    from kernelwright.evaluation.candidate.runner import load_weights

    state = dict(reference.state_dict()) if isinstance(reference, torch.nn.Module) else {}
    load_weights(model, {name: t.to(device) for name, t in state.items()})
    return model.to(device) if isinstance(model, torch.nn.Module) else model


def _facts(
    source: str, constants: dict[str, Any], values: list[Any], model: Any, result: Any, device: str
) -> dict[str, Any]:
    """Returns the minimum work of one call: bytes of inputs, weights and outputs; operations; dtype."""
    import torch

    from kernelwright.tasks import probe, reference_runs
    from kernelwright.tasks.inputs import tensors_in

    given = tensors_in(values)
    weights = list(model.parameters()) if isinstance(model, torch.nn.Module) else []
    made = reference_runs.flatten_outputs(result)
    try:
        flops = probe.measure(source, constants, "meta").flops
    except Exception:  # a reference that does not run on `meta` has no count
        flops = 0
    floats = [t.dtype for t in (*given, *weights) if t.is_floating_point()]
    return {
        "bytes": sum(t.nbytes for t in (*given, *weights, *made)),
        "flops": flops,
        "dtype": str(floats[0]).removeprefix("torch.") if floats else "float32",
        "card": torch.cuda.get_device_name(0) if device == "cuda" else "",
    }


def _settle(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def _marked(call: Callable[[], Any], given: argparse.Namespace) -> None:
    """Runs the calls between cudaProfilerStart and cudaProfilerStop, for ncu."""
    import torch

    if given.device != "cuda":
        call()
        return
    torch.cuda.cudart().cudaProfilerStart()
    for _ in range(given.calls):
        call()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def _traced(call: Callable[[], Any], given: argparse.Namespace) -> None:
    """Runs the calls under torch's profiler. The host waits after each, so that calls start on an idle device."""
    from torch.profiler import ProfilerActivity, profile

    activity = ProfilerActivity.CUDA if given.device == "cuda" else ProfilerActivity.CPU
    with profile(activities=[activity]) as first:  # CUPTI takes a second to start, and its first calls are slow
        call()
        _settle(given.device)
    del first
    with profile(activities=[activity]) as seen:
        for _ in range(given.calls):
            call()
            _settle(given.device)
    seen.export_chrome_trace(str(given.trace))


if __name__ == "__main__":
    sys.exit(main())
