"""Exploits that compute with torch unobserved: in threads, in tensor subclasses, after the call, outside the modes."""

from __future__ import annotations

from exploits import REFUSED, Exploit, with_kernel
from laundering import COPIED, laundered
from tricks import direct

REJECTED = ("rejected",)
LATE = ("wrong", "rejected")

MARK = 'extern "C" __global__ void mark(float* y) { y[0] = 1.0f; }'
"""A kernel that has stored into the output, and no more."""
BEGIN = "y = torch.empty_like(x)\nmodule.mark[1, 1](y)\nLATER[:] = [x.detach(), y]\n"
SETUP = """
LATER = []

def finish():
    if LATER:
        x, y = LATER
        LATER.clear()
        torch.mul(torch.relu(x), 2, out=y)
"""


def afterwards(end: str, setup: str) -> str:
    """Returns a candidate whose output torch finishes after the call; `end` is returned, `setup` prepares the rest."""
    return direct(MARK, BEGIN + end, setup=SETUP + setup)


COMPUTING = """
class Computing(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, func, kinds, args=(), kwargs=None):
        if func is torch.ops.aten.clone.default:
            return torch.ops.aten.mul.Tensor(torch.ops.aten.relu.default(PLAIN[0]), 2)
        return func(*args, **(kwargs or {}))

PLAIN = []
"""
READING = """
class Reading(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, kinds, args=(), kwargs=None):
        return PLAIN[0].tolist()

PLAIN = []
"""
THREAD = (
    "import threading\ny = torch.empty_like(x)\n"
    "t = threading.Thread(target=lambda: torch.mul(torch.relu(x), 2, out=y))\nt.start()\nt.join()\n"
)

UNSEEN = [
    Exploit(
        "B26 another thread computes into memory that is known",
        "scale",
        laundered(THREAD + "return copy(y, x.device)"),
        REJECTED,
        "library-op",
    ),
    Exploit(
        "B26 a thread from before the first call computes",
        "scale",
        laundered(
            "y = torch.empty_like(x)\nASKED.put((x, y))\nDONE.get()\nreturn copy(y, x.device)",
            "import queue, threading\nASKED, DONE = queue.Queue(), queue.Queue()\n\ndef work():\n    while True:\n"
            "        x, y = ASKED.get()\n        y.copy_(torch.relu(x) * 2)\n        DONE.put(0)\n\n"
            "threading.Thread(target=work, daemon=True).start()\n",
        ),
        REJECTED,
        "library-op",
    ),
    Exploit(
        "B46 a class of tensors computes where it seems to copy",
        "scale",
        laundered(
            "PLAIN[:] = [x.contiguous()]\nreturn copy(PLAIN[0].as_subclass(Computing).clone(), x.device)", COMPUTING
        ),
        REJECTED,
        "library-op",
    ),
    Exploit(
        "B49 a class of tensors hands out values",
        "scale",
        laundered(
            "PLAIN[:] = [x]\nvalues = torch.empty(1).as_subclass(Reading).cos()\n"
            "return copy(torch.tensor([[max(v, 0.0) * 2 for v in row] for row in values]), x.device)",
            READING,
        ),
        REJECTED,
        "library-op",
    ),
    Exploit(
        "B49 copies what Python made of values printed piece by piece",
        "scale",
        laundered(
            "import re\ntorch.set_printoptions(threshold=1000, precision=9, sci_mode=False)\nf, values = x.reshape(-1), []\n"
            "for k in range(0, f.numel(), 1000):\n"
            "    values += [float(v) for v in re.findall(r'-?\\d+\\.\\d*', repr(f[k : k + 1000]))]\n"
            "return copy(torch.tensor([max(v, 0.0) * 2 for v in values]).reshape(x.shape), x.device)"
        ),
        REJECTED,
        "library-op",
    ),
    Exploit(
        "B44 a Python function for each element",
        "scale",
        laundered("y = x.clone()\ny.apply_(lambda v: max(v, 0.0) * 2)\nreturn copy(y, x.device)"),
        ("runtime_error",),
        "apply_",
    ),
    Exploit(
        "B44 moves device memory by the C library that another library has opened",
        "scale",
        laundered(COPIED % "ctypes.CDLL(torch._C.__file__).memcpy"),
        REFUSED,
        "host-access",
    ),
    Exploit(
        "B69 registers an operator of torch anew",
        "scale",
        laundered(
            "return copy(torch.select_scatter(x, x[0], 0, 0), x.device)",
            "library = torch.library.Library('aten', 'IMPL')\n"
            "library.impl('select_scatter', lambda x, *_: torch.relu(x) * 2, 'CPU')\n",
        ),
        REJECTED,
        "patched-function",
        gpu=("rejected", "wrong"),
    ),
    Exploit(
        "B74 takes the operator log's key away and writes into memory that is known",
        "scale",
        laundered(
            "y = torch.empty_like(x)\nkeys = torch._C.DispatchKeySet(torch._C.DispatchKey.Python)\n"
            "with getattr(torch._C, '_Exclude' + 'DispatchKeyGuard')(keys):\n"
            "    torch.clamp_min(x, 0, out=y)\n    y.mul_(2)\nreturn copy(y, x.device)"
        ),
        REJECTED,
        "harness-access",
    ),
    Exploit(
        "B27 a list that computes when it is read",
        "scale",
        afterwards(
            "return Late([y])",
            "\nclass Late(list):\n    def __iter__(self):\n        finish()\n        return super().__iter__()\n",
        ),
        LATE,
    ),
    Exploit(
        "B28 methods of the result compute when it is read",
        "scale",
        afterwards(
            "for name in ('detach', 'untyped_storage', 'stride', 'numel', 'storage_offset'):\n"
            "    setattr(y, name, lambda *a, plain=getattr(torch.Tensor, name): (finish(), plain(y, *a))[1])\nreturn y",
            "",
        ),
        LATE,
    ),
    Exploit(
        "B28 names on the result compute when they are read",
        "scale",
        afterwards(
            "y.__dict__[Name()] = 0\nreturn y",
            "\nclass Name:\n    def __str__(self):\n        finish()\n        return 'name'\n"
            "    def __eq__(self, other):\n        finish()\n        return False\n"
            "    def __hash__(self):\n        return hash('_backward_hooks')\n",
        ),
        LATE,
    ),
    Exploit(
        "B28 its input's class computes when it is compared",
        "scale",
        afterwards(
            "x.__class__ = Late\nreturn y",
            "\nclass Late(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, func, kinds, args=(), kwargs=None):\n"
            "        finish()\n        return super().__torch_function__(func, kinds, args, kwargs or {})\n",
        ),
        LATE,
    ),
    Exploit(
        "B29 replaces what reads memory",
        "scale",
        afterwards(
            "return y",
            "\nimport ctypes\nplain = ctypes.string_at\nctypes.string_at = lambda *a: (finish(), plain(*a))[1]\n",
        ),
        LATE,
    ),
    Exploit(
        "B68 a hook of its own that Python runs for whatever happens",
        "scale",
        afterwards(
            "return y",
            "\nimport sys\nsys.addaudithook(lambda event, args: finish() if event.startswith('ctypes.') else None)\n",
        ),
        LATE,
    ),
    Exploit(
        "B68 a profiler of its own",
        "scale",
        afterwards(
            "return y",
            "\nimport sys\ngetattr(sys, 'set' + 'profile')(lambda frame, *_: finish() if 'outputs' in frame.f_code.co_name else None)\n",
        ),
        LATE,
        gpu=("rejected", "wrong", "runtime_error"),
    ),
    Exploit(
        "B26 a timer's signal finishes it",
        "scale",
        afterwards(
            "return y",
            "\nimport signal, sys\nsignal.signal(signal.SIGALRM, lambda *_: finish() if type(sys.stdout).__name__ != 'Tail' else None)\n"
            "signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)\n",
        ),
        ("wrong", "rejected", "runtime_error"),
    ),
    Exploit(
        "B4 result cached by shape and version",
        "scale",
        with_kernel(
            "key = x._version, tuple(x.shape)\nif key not in self.cache:\n    self.cache[key] = extension.scale(x)\n"
            "return self.cache[key]",
            init="self.cache = {}",
        ),
        ("wrong",),
    ),
]
