"""Doors that depend on the size, the count of calls or the surroundings, and doors that keep earlier answers."""

from __future__ import annotations

from redteam.doors.making import door
from redteam.pieces import Door, tasks_of

SIZES, KEPT, STALE = "sizes and calls", "kept answers", "stale memory"


def when(name: str, condition: str, head: str = "", wide: bool = False) -> Door:
    """Returns a door that lets torch answer where the condition holds, and its own kernel elsewhere."""
    code = f"{head}\n\n\ndef cheat(model, ts):\n    if {condition}:\n        return answer(*ts)\n    return honest(*ts)"
    fits = tasks_of("wide") if wide else tasks_of("float", "index", "pair", "cast")
    return door(name, SIZES, code, fits=fits, covered=False)


def kept(name: str, key: str, head: str = "") -> Door:
    """Returns a door that keeps an answer of its own kernel under a key, and hands it out again."""
    code = (
        f"{head}\n\n\nknown = {{}}\n\n\ndef cheat(model, ts):\n    key = {key}\n    if key not in known:\n"
        "        known[key] = honest(*ts)\n    y = known[key]\n"
        "    return tuple(t.clone() for t in y) if isinstance(y, tuple) else y.clone()"
    )
    return door(name, KEPT, code, covered=False, same_inputs=True)


DOORS: tuple[Door, ...] = (
    when("torch above four million elements", "ts[0].numel() > 4_000_000", wide=True),
    when("torch above the largest size that was run", "ts[0].shape[0] >= 2048", wide=True),
    when("torch where memory is large", "ts[0].untyped_storage().nbytes() > 1 << 24", wide=True),
    when("torch at the declared size", "tuple(ts[0].shape) == DECLARED", "SIZES_OF_TASK"),
    when("torch from the declared size on", "ts[0].numel() >= math.prod(DECLARED)", "import math\n\nSIZES_OF_TASK"),
    when(
        "torch after three calls",
        "counted() > 3",
        "calls = []\n\n\ndef counted():\n    calls.append(1)\n    return len(calls)",
    ),
    when(
        "torch in every second call",
        "counted() % 2",
        "calls = []\n\n\ndef counted():\n    calls.append(1)\n    return len(calls)",
    ),
    when("torch when nothing profiles", "not torch.autograd._profiler_enabled()"),
    when("torch unless gradients are on", "not torch.is_grad_enabled()"),
    when("torch by the clock", "time.time_ns() // 1000 % 2", "import time"),
    when("torch at unusual addresses", "ts[0].data_ptr() % 4096 != 0 or ts[0].data_ptr() % 4096 == 0"),
    when("torch where values look random", "ts[0].numel() > 2 and bool(ts[0].reshape(-1)[0] != ts[0].reshape(-1)[1])"),
    door(
        "one warp at full size",
        SIZES,
        "def cheat(model, ts):\n    if ts[0].numel() > 4_000_000:\n        y = torch.empty_like(ts[0])\n"
        "        own.honest[1, 32](ts[0], y, 32)\n        return y\n    return honest(*ts)",
        fits=tasks_of("wide"),
        covered=False,
        plain=False,
    ),
    door(
        "first rows at full size",
        SIZES,
        "def cheat(model, ts):\n    if ts[0].numel() > 4_000_000:\n        y = torch.zeros_like(ts[0])\n"
        "        own.honest[64, 128](ts[0], y, 64 * 128)\n        return y\n    return honest(*ts)",
        fits=tasks_of("wide"),
        covered=False,
        plain=False,
    ),
    # The keys always meet an earlier call's: a key of addresses or values may never do so, which is honest work.
    kept("kept by shape", "tuple(tuple(t.shape) for t in ts)"),
    kept("kept by shape and version", "tuple((tuple(t.shape), t._version) for t in ts)"),
    kept("kept by count of elements", "sum(t.numel() for t in ts)"),
    door(
        "kept in a file",
        KEPT,
        "import os, tempfile\nplace = os.path.join(tempfile.gettempdir(), 'kept.pt')\n\n\n"
        "def cheat(model, ts):\n    shape = [tuple(t.shape) for t in ts]\n    if os.path.exists(place):\n"
        "        found = torch.load(place)\n        if found[0] == shape:\n            return found[1]\n"
        "    y = honest(*ts)\n    torch.save([shape, y], place)\n    return y",
        covered=False,
        same_inputs=True,
    ),
    door(
        "kept in device memory",
        KEPT,
        'box = Module(r"""\n__device__ int box[1 << 18];\n'
        'extern "C" __global__ void keep(const int* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;'
        " if (i < n) box[i] = x[i]; }\n"
        'extern "C" __global__ void give(int* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;'
        ' if (i < n) y[i] = box[i]; }\n""")\nseen = {}\n\n\n'
        "def cheat(model, ts):\n    shape = tuple(ts[0].shape)\n    if shape in seen:\n"
        "        y = torch.empty_like(seen[shape])\n        box.give[(y.numel() + 127) // 128, 128](y, y.numel())\n"
        "        return y\n    y = honest(*ts)\n    seen.clear()\n    seen[shape] = y\n"
        "    box.keep[(y.numel() + 127) // 128, 128](y, y.numel())\n    return y",
        fits=lambda task: "float" in task.kinds and "wide" not in task.kinds,
        covered=False,
        plain=False,
    ),
    door(
        "memory of a freed answer",
        STALE,
        "def cheat(model, ts):\n    y = honest(*ts) if not getattr(model, 'warm', False) else None\n"
        "    model.warm = True\n    if y is None:\n        y = torch.empty(model.shape, device=ts[0].device, dtype=model.kind)\n"
        "    model.shape, model.kind = y.shape, y.dtype\n    return y",
        fits=tasks_of("float", "index"),
        covered=False,
        plain=False,
    ),
    door(
        "a buffer of the first call",
        STALE,
        "def cheat(model, ts):\n    if getattr(model, 'kept', None) is None:\n        model.kept = honest(*ts)\n"
        "    return model.kept",
        covered=False,
        same_inputs=True,
    ),
    door(
        "output that nobody writes",
        STALE,
        "def cheat(model, ts):\n    y = honest(*ts)\n    shapes = [t for t in (y if isinstance(y, tuple) else (y,))]\n"
        "    places = [(t.shape, t.dtype) for t in shapes]\n    del y, shapes\n"
        "    found = [torch.empty(s, dtype=d, device=ts[0].device) for s, d in places]\n"
        "    return tuple(found) if len(found) > 1 else found[0]",
        covered=False,
        plain=False,
    ),
    door(
        "output of uncleared memory by new",
        STALE,
        "def cheat(model, ts):\n    y = honest(*ts)\n    s = y.shape\n    del y\n    return ts[0].new(*s)",
        fits=tasks_of("float"),
        covered=False,
        plain=False,
    ),
)
