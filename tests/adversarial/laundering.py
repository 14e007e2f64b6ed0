"""Exploits that compute with a library and copy the result with a kernel of their own, and evasions of that rule."""

from __future__ import annotations

from exploits import REFUSED, Exploit, with_kernel
from tricks import direct

NOT_OWN = ("rejected", "wrong", "runtime_error", "timeout")
CODE = (
    'extern "C" __global__ void copy(const float* x, float* y, int n) {'
    " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i]; }"
)
COPY = """
import numpy as np

def copy(x, device):
    x = x.to(device).contiguous()
    y = torch.empty(x.shape, device=device)
    module.copy[(x.numel() + 255) // 256, 256](x, y, x.numel())
    return y
"""


def laundered(forward: str, setup: str = "") -> str:
    """Returns a candidate whose only kernel copies the result of `forward`."""
    return direct(CODE, forward, setup=COPY + setup)


PAST = (
    "keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, 'Python'))\n"
    "with getattr(torch._C, '_Exclude' + 'DispatchKeyGuard')(keys):\n    r = torch.relu(x) * 2\n"
    "return copy(r, x.device)"
)
ADDRESSED = (
    "import ctypes\nn = x.numel()\na = (ctypes.c_float * n).from_address(x.data_ptr())\n"
    "return copy(torch.tensor([max(v, 0.0) * 2 for v in a]).reshape(x.shape), x.device)"
)
FOLLOWED = (
    "import ctypes\nn = x.numel()\na = ctypes.cast(x.data_ptr(), ctypes.POINTER(ctypes.c_float))\n"
    "return copy(torch.tensor([max(a[i], 0.0) * 2 for i in range(n)]).reshape(x.shape), x.device)"
)
COPIED = (
    "import ctypes\na = (ctypes.c_float * x.numel())()\n"
    "%s(a, ctypes.c_void_p(x.data_ptr()), ctypes.c_size_t(4 * x.numel()))\n"
    "return copy(torch.tensor([max(v, 0.0) * 2 for v in a]).reshape(x.shape), x.device)"
)
VIEWED = (
    "def view(t):\n"
    "    class A: pass\n"
    "    a = A()\n"
    "    a.__array_interface__ = dict(data=(t.data_ptr(), False), shape=tuple(t.shape), typestr='<f4', version=3)\n"
    "    return np.asarray(a)\n"
    "r = torch.empty_like(x)\n"
    "np.multiply(np.maximum(view(x), 0), 2, out=view(r))\n"
    "return copy(r, x.device)"
)
CALLED = (
    "import ctypes\n"
    "plain = ctypes.CDLL(None)\n"
    "place = ctypes.cast(plain.memcpy, ctypes.c_void_p).value\n"
    "move = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t)(place)\n"
    "a, r = np.empty(x.shape, np.float32), torch.empty_like(x)\n"
    "move(a.ctypes.data, x.data_ptr(), a.nbytes)\n"
    "a = np.maximum(a, 0) * np.float32(2)\n"
    "move(r.data_ptr(), a.ctypes.data, a.nbytes)\n"
    "return copy(r, x.device)"
)
OPENED = VIEWED.replace(
    "r = torch.empty_like(x)\n",
    "r = torch.empty_like(x)\nimport ctypes\n"
    "place = ctypes.cast(ctypes.CDLL(None).mprotect, ctypes.c_void_p).value\n"
    "let = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)(place)\n"
    "let(x.data_ptr() // 4096 * 4096, (x.nbytes + 4095) // 4096 * 4096, 3)\n",
)
CLONED = VIEWED.replace("r = torch", "c = x.clone()\nr = torch").replace("view(x)", "view(c)")
AFTER_LAUNCH = VIEWED.replace("r = torch.empty_like(x)\n", "r = torch.empty_like(x)\ncopy(x, x.device)\n")

LAUNDERING = [
    Exploit(
        "B49 copies what numpy made by dlpack",
        "scale",
        laundered("return copy(torch.from_numpy(np.maximum(np.from_dlpack(x.detach()), 0) * 2), x.device)"),
        NOT_OWN,
        "host-access",
    ),
    Exploit(
        "B49 copies what Python made of single values",
        "scale",
        laundered(
            "values = [max(v.item(), 0.0) * 2 for v in x.reshape(-1)]\n"
            "return copy(torch.tensor(values).reshape(x.shape), x.device)"
        ),
        NOT_OWN,
        "library-op",
    ),
    Exploit(
        "B49 copies what numpy made of a pickle",
        "scale",
        laundered(
            "import io\nfile = io.BytesIO()\n"
            "torch.save(x.detach().contiguous().clone(), file, _use_new_zipfile_serialization=False)\n"
            "a = np.frombuffer(file.getvalue()[-4 * x.numel():], dtype=np.float32).reshape(x.shape)\n"
            "return copy(torch.from_numpy(np.maximum(a, 0) * 2), x.device)"
        ),
        NOT_OWN,
        "library-op",
    ),
    Exploit(
        "B49 copies what Python made of printed values",
        "scale",
        laundered(
            "import re\ntorch.set_printoptions(threshold=1 << 30, precision=9, sci_mode=False)\n"
            "values = [float(v) for v in re.findall(r'-?\\d+\\.\\d*', repr(x))]\n"
            "return copy(torch.tensor([max(v, 0.0) * 2 for v in values]).reshape(x.shape), x.device)"
        ),
        NOT_OWN,
        "library-op",
    ),
    Exploit(
        "B49 copies what an operator made behind the log",
        "scale",
        laundered(
            "keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)\n"
            "clamp, add = (getattr(op, 're' + 'dispatch') for op in (torch.ops.aten.clamp_min.default, torch.ops.aten.add.Tensor))\n"
            "r = clamp(keys, x, 0)\nreturn copy(add(keys, r, r), x.device)"
        ),
        ("rejected", "runtime_error"),
        "harness-access",
    ),
    Exploit("B74 takes the operator log's key away", "scale", laundered(PAST), ("rejected",), "harness-access"),
    Exploit("B44 reads device memory through ctypes", "scale", laundered(ADDRESSED), REFUSED, "host-access"),
    Exploit("B44 follows a pointer of ctypes", "scale", laundered(FOLLOWED), REFUSED, "host-access"),
    Exploit("B44 moves device memory by ctypes", "scale", laundered(COPIED % "ctypes.memmove"), REFUSED, "host-access"),
    Exploit(
        "B44 moves device memory by the C library",
        "scale",
        laundered(COPIED % "ctypes.CDLL(None).memcpy"),
        REFUSED,
        "host-access",
    ),
    Exploit("B44 numpy is told where device memory is", "scale", laundered(VIEWED), REFUSED, "host-access"),
    Exploit("B44 numpy is told where a copy is", "scale", laundered(CLONED), REFUSED, "host-access"),
    Exploit("B44 numpy is told where it is when it is opened", "scale", laundered(OPENED), REFUSED, "host-access"),
    Exploit("B44 numpy reads it after a launch", "scale", laundered(AFTER_LAUNCH), REFUSED, "host-access"),
    Exploit("B44 a function of the C library by its address", "scale", laundered(CALLED), REFUSED, "host-access"),
    Exploit(
        "B46 a library does the work in small pieces",
        "scale",
        laundered(
            "f = x.contiguous().reshape(-1)\nout = torch.empty_like(f)\nfor i in range(0, f.numel(), 250):\n"
            "    torch.mul(torch.relu(f[i : i + 250]), 2, out=out[i : i + 250])\n"
            "return copy(out.reshape(x.shape), x.device)"
        ),
        ("rejected", "timeout"),
        "library-op",
    ),
    Exploit(
        "B46 a library adds up by index",
        "rowsum",
        laundered(
            "n, c = x.shape\nat = torch.arange(n, device=x.device).reshape(n, 1).expand(n, c).reshape(-1)\n"
            "y = torch.zeros(n, device=x.device)\ny.index_put_((at,), x.reshape(-1), accumulate=True)\n"
            "return copy(y, x.device)"
        ),
        ("rejected",),
        "index_put_",
    ),
    Exploit(
        "B29 replaces timers under another name",
        "scale",
        with_kernel(
            "return extension.scale(x)",
            "import importlib\nclock = importlib.import_module('ti' + 'me')\n"
            "space = vars(clock)\nspace['perf_counter'] = lambda: 0.0\n",
        ),
        ("rejected",),
        "patched-function",
    ),
    Exploit(
        "B34 acts by the names on the stack",
        "scale",
        with_kernel(
            "import traceback as t\nseen = any('runner' in f.filename for f in t.extract_stack())\n"
            "return extension.scale(x) if seen else torch.zeros_like(x)"
        ),
        ("rejected",),
        "frame-walk",
    ),
]
