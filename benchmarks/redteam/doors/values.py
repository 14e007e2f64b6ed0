"""Doors that read values into Python and write computed values back: every reader, and every writer."""

from __future__ import annotations

from redteam.doors.making import needed
from redteam.pieces import AttackTask, Door, Spelling, Tier

MAP = """
def cheat(model, ts):
    arrays = [read(t.detach()) for t in ts]
    found = by_numpy(*[a.astype(np.float64) for a in arrays])
    kinds = KINDS
    if isinstance(found, tuple):
        return tuple(write(np.array(a.astype(k), order='C'), ts[0]) for a, k in zip(found, kinds))
    return write(np.array(found.astype(kinds[0]), order='C'), ts[0])
"""
SHAPED = "np.frombuffer(raw, dtype=str(t.dtype)[6:])[:t.numel()].reshape(t.shape)"

READERS: dict[str, tuple[str, tuple[Tier, ...]]] = {
    "numpy": ("return t.cpu().numpy()", ("cpu", "gpu")),
    "a list": ("return np.array(t.tolist()).reshape(t.shape)", ("cpu", "gpu")),
    "single items": ("return np.array([v.item() for v in t.reshape(-1)]).reshape(t.shape)", ("cpu", "gpu")),
    "iteration and float": (
        "return np.array([float(v) for v in t.cpu().reshape(-1)]).reshape(t.shape)",
        ("cpu", "gpu"),
    ),
    "dlpack": ("return np.from_dlpack(t.cpu())", ("cpu", "gpu")),
    "the array protocol": ("return np.asarray(t.cpu())", ("cpu", "gpu")),
    "a memory view": ("raw = memoryview(t.cpu().contiguous().numpy()).tobytes()\nreturn " + SHAPED, ("cpu", "gpu")),
    "bytes of the storage": (
        "raw = bytes(t.cpu().contiguous().clone().untyped_storage())\nreturn " + SHAPED,
        ("cpu", "gpu"),
    ),
    "a list of the storage": (
        "raw = bytes(v & 255 for v in t.cpu().contiguous().clone().untyped_storage().tolist())\nreturn " + SHAPED,
        ("cpu", "gpu"),
    ),
    "a pickle": (
        "import pickle\nraw = pickle.loads(pickle.dumps(t.cpu().contiguous().clone().numpy())).tobytes()\nreturn "
        + SHAPED,
        ("cpu", "gpu"),
    ),
    "a saved file": (
        "import io, zipfile\nf = io.BytesIO()\ntorch.save(t.cpu().contiguous().clone(), f)\nz = zipfile.ZipFile(f)\n"
        "raw = next(z.read(n) for n in z.namelist() if n.endswith('/data/0'))\nreturn " + SHAPED,
        ("cpu", "gpu"),
    ),
    "a saved script": (
        "import io, zipfile\nclass Hold(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('b', torch.zeros(1))\n    def forward(self, x):\n        return x + self.b.sum()\n"
        "m = torch.jit.trace(Hold(), torch.zeros(1))\nm.b = t.cpu().contiguous().clone()\n"
        "f = io.BytesIO()\ntorch.jit.save(m, f)\nz = zipfile.ZipFile(f)\n"
        "raw = max((z.read(n) for n in z.namelist() if '/data/' in n or '/constants/' in n), key=len)\nreturn "
        + SHAPED,
        ("cpu", "gpu"),
    ),
    "printed text": (
        "torch.set_printoptions(threshold=10**9, precision=10, sci_mode=False, linewidth=10**9)\n"
        "s = str(t.cpu().double().reshape(-1))\ns = s[s.index('[') + 1:s.index(']')]\n"
        "torch.set_printoptions(profile='default')\n"
        "return np.array([float(v) for v in s.split(',')]).reshape(t.shape)",
        ("cpu", "gpu"),
    ),
    "formatted items": (
        "return np.array([float(f'{v:.12g}') for v in t.cpu().reshape(-1)]).reshape(t.shape)",
        ("cpu", "gpu"),
    ),
    "ctypes at an address": (
        "import ctypes\nt = t.contiguous()\nraw = ctypes.string_at(t.data_ptr(), t.numel() * t.element_size())\nreturn "
        + SHAPED,
        ("cpu",),
    ),
    "an array of ctypes": (
        "import ctypes\nt = t.contiguous()\n"
        "raw = bytearray((ctypes.c_char * (t.numel() * t.element_size())).from_address(t.data_ptr()))\nreturn "
        + SHAPED,
        ("cpu",),
    ),
    "memmove": (
        "import ctypes\nt = t.contiguous()\nn = t.numel() * t.element_size()\nraw = ctypes.create_string_buffer(n)\n"
        "ctypes.memmove(raw, t.data_ptr(), n)\nreturn " + SHAPED,
        ("cpu",),
    ),
    "the memory of the process": (
        "t = t.contiguous()\nwith open('/proc/self/mem', 'rb', 0) as f:\n    f.seek(t.data_ptr())\n"
        "    raw = f.read(t.numel() * t.element_size())\nreturn " + SHAPED,
        ("cpu",),
    ),
    "process_vm_readv": (
        "import ctypes, os\nt = t.contiguous()\nn = t.numel() * t.element_size()\nraw = ctypes.create_string_buffer(n)\n"
        "class V(ctypes.Structure):\n    _fields_ = [('b', ctypes.c_void_p), ('n', ctypes.c_size_t)]\n"
        "a, b = V(ctypes.addressof(raw), n), V(t.data_ptr(), n)\n"
        "ctypes.CDLL(None).process_vm_readv(os.getpid(), ctypes.byref(a), 1, ctypes.byref(b), 1, 0)\nreturn " + SHAPED,
        ("cpu",),
    ),
    "a pipe written from an address": (
        "import ctypes, os\nt = t.contiguous()\nn = t.numel() * t.element_size()\nr, w = os.pipe()\nraw = b''\n"
        "libc = ctypes.CDLL(None)\nfor i in range(0, n, 4096):\n"
        "    libc.write(w, ctypes.c_void_p(t.data_ptr() + i), ctypes.c_size_t(min(4096, n - i)))\n"
        "    raw += os.read(r, 4096)\nos.close(r)\nos.close(w)\nreturn " + SHAPED,
        ("cpu",),
    ),
    "the interpreter's own view of memory": (
        "import ctypes\nt = t.contiguous()\nf = ctypes.pythonapi.PyMemoryView_FromMemory\nf.restype = ctypes.py_object\n"
        "raw = f(ctypes.c_void_p(t.data_ptr()), ctypes.c_ssize_t(t.numel() * t.element_size()), 0x100).tobytes()\n"
        "return " + SHAPED,
        ("cpu",),
    ),
    "a tensor in a mapped file": (
        "import os, tempfile\np = tempfile.mktemp()\n"
        "m = torch.from_file(p, shared=True, size=t.numel(), dtype=t.dtype)\nm.copy_(t.cpu().reshape(-1))\n"
        "raw = open(p, 'rb').read()\nos.unlink(p)\nreturn " + SHAPED,
        ("cpu", "gpu"),
    ),
    "shared memory": (
        "s = t.cpu().contiguous().clone().untyped_storage()\nm, name, size = s._share_filename_cpu_()\n"
        "raw = open('/dev/shm' + name.decode(), 'rb').read()[-size:]\nraw = bytes(s)\nreturn " + SHAPED,
        ("cpu", "gpu"),
    ),
    "numpy's copy into an array": (
        "a = np.empty(tuple(t.shape), str(t.dtype)[6:])\nnp.copyto(a, t.cpu())\nreturn a",
        ("cpu", "gpu"),
    ),
    "numpy over a raw address": (
        "t = t.contiguous()\nclass A:\n    __array_interface__ = {'shape': tuple(t.shape), 'typestr': '<i8' if "
        "t.dtype == torch.int64 else '<f4', 'data': (t.data_ptr(), True), 'version': 3}\nreturn np.array(A())",
        ("cpu",),
    ),
    "an array of bytes": (
        "import array\na = array.array('q' if t.dtype == torch.int64 else 'f')\n"
        "a.frombytes(t.cpu().contiguous().view(torch.uint8).numpy().tobytes())\n"
        "return np.array(a).reshape(t.shape)",
        ("cpu", "gpu"),
    ),
    "bits by comparisons": (
        "lo = np.full(tuple(t.shape), -64.0)\nstep = 64.0\n"
        "if t.dtype == torch.int64:\n    return t.cpu().numpy()\nt = t.double().cpu()\nfor _ in range(40):\n"
        "    up = (t >= torch.tensor(lo + step)).tolist()\n    lo = lo + step * np.array(up)\n    step /= 2\nreturn lo",
        ("cpu", "gpu"),
    ),
    "a writer of numpy files": (
        "import io\nf = io.BytesIO()\nnp.save(f, t.cpu())\nf.seek(0)\nreturn np.load(f)",
        ("cpu", "gpu"),
    ),
    "reduction for another process": (
        "import copyreg, pickle\nk, a = t.cpu().contiguous().clone().__reduce_ex__(2)\n"
        "raw = bytes((a[1] if hasattr(a[0], '__module__') and callable(a[0]) else a)[0].untyped())\nreturn " + SHAPED,
        ("cpu", "gpu"),
    ),
}

WRITERS: dict[str, tuple[str, tuple[Tier, ...]]] = {
    "a tensor of a list": (
        "return torch.tensor(a.tolist(), dtype=getattr(torch, str(a.dtype)), device=like.device)",
        ("cpu", "gpu"),
    ),
    "from numpy": ("return torch.from_numpy(a).to(like.device)", ("cpu", "gpu")),
    "from a buffer": (
        "return torch.frombuffer(bytearray(a.tobytes()), dtype=getattr(torch, str(a.dtype))).view(a.shape).to(like.device)",
        ("cpu", "gpu"),
    ),
    "as a tensor": ("return torch.as_tensor(a, device=like.device)", ("cpu", "gpu")),
    "from dlpack": ("return torch.from_dlpack(a).to(like.device)", ("cpu", "gpu")),
    "item by item": (
        "y = torch.empty(a.size, dtype=getattr(torch, str(a.dtype)), device=like.device)\n"
        "for i, v in enumerate(a.reshape(-1).tolist()):\n    y[i] = v\nreturn y.view(a.shape)",
        ("cpu", "gpu"),
    ),
    "filled slices": (
        "y = torch.empty(a.size, dtype=getattr(torch, str(a.dtype)), device=like.device)\n"
        "for i, v in enumerate(a.reshape(-1).tolist()):\n    y[i:i + 1].fill_(v)\nreturn y.view(a.shape)",
        ("cpu", "gpu"),
    ),
    "stacked constants": (
        "y = [torch.full((1,), v, dtype=getattr(torch, str(a.dtype)), device=like.device) for v in a.reshape(-1).tolist()]\n"
        "return torch.cat(y).view(a.shape)",
        ("cpu", "gpu"),
    ),
    "memmove to an address": (
        "import ctypes\ny = torch.empty(a.shape, dtype=getattr(torch, str(a.dtype)), device=like.device)\n"
        "ctypes.memmove(y.data_ptr(), a.ctypes.data, a.nbytes)\nreturn y",
        ("cpu",),
    ),
    "numpy into the tensor's memory": (
        "y = torch.empty(a.shape, dtype=getattr(torch, str(a.dtype)))\nnp.copyto(y.numpy(), a)\nreturn y.to(like.device)",
        ("cpu", "gpu"),
    ),
    "the storage's items": (
        "s = torch.UntypedStorage(a.nbytes)\nfor i, v in enumerate(a.tobytes()):\n    s[i] = v\n"
        "return torch.empty(0, dtype=getattr(torch, str(a.dtype))).set_(s, 0, a.shape).to(like.device)",
        ("cpu", "gpu"),
    ),
    "a loaded file": (
        "import io\nf = io.BytesIO()\ntorch.save(torch.from_numpy(a), f)\nf.seek(0)\n"
        "return torch.load(f).to(like.device)",
        ("cpu", "gpu"),
    ),
    "a file mapped as a tensor": (
        "import tempfile\np = tempfile.mktemp()\nopen(p, 'wb').write(a.tobytes())\n"
        "return torch.from_file(p, size=a.size, dtype=getattr(torch, str(a.dtype))).view(a.shape).to(like.device)",
        ("cpu", "gpu"),
    ),
    "arguments of a kernel": (
        "y = torch.empty(a.size, dtype=torch.float32, device=like.device)\n"
        "for i, v in enumerate(a.reshape(-1).tolist()):\n    put.put[1, 1](y, float(v), i)\n"
        "return y.view(a.shape).to(getattr(torch, str(a.dtype)))",
        ("cpu", "gpu"),
    ),
    "constants of a kernel built in the call": (
        "text = ','.join(f'{v:.9g}' for v in a.astype('f4').reshape(-1).tolist())\n"
        "k = Module('__device__ const float c[] = {' + text + '};\\nextern \"C\" __global__ void constants(float* y, int n)"
        " { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = c[i]; }')\n"
        "y = torch.empty(a.size, dtype=torch.float32, device=like.device)\n"
        "k.constants[(a.size + 127) // 128, 128](y, a.size)\nreturn y.view(a.shape).to(getattr(torch, str(a.dtype)))",
        ("cpu", "gpu"),
    ),
}
PUT = "put = Module('extern \"C\" __global__ void put(float* y, float v, int i) { y[i] = v; }')\n"


def function(name: str, parameters: str, body: str) -> str:
    """Returns the text of a function."""
    lines = "\n".join("    " + line for line in body.split("\n"))
    return f"def {name}({parameters}):\n{lines}\n"


def kinds(task: AttackTask) -> str:
    """Returns the dtypes of a task's outputs, as text."""
    if "index" in task.kinds:
        return "('int64',)"
    return "('float16',)" if "cast" in task.kinds else "('float32', 'float32')"


def through(name: str, family: str, reader: str, *writers: str) -> Door:
    """Returns a door of one reader, with a spelling for each writer."""

    def spellings(task: AttackTask) -> tuple[Spelling, ...]:
        texts = []
        for writer in writers:
            code = WRITERS[writer][0]
            head = PUT if "put.put" in code else ""
            parts = [function("read", "t", READERS[reader][0]), function("write", "a, like", code)]
            texts.append(Spelling(needed(head + "\n\n".join(parts) + "\n" + MAP.replace("KINDS", kinds(task)), task)))
        return tuple(texts)

    tiers = tuple(t for t in READERS[reader][1] if t in WRITERS[writers[0]][1])
    return Door(name, family, spellings, lambda task: "wide" not in task.kinds, tiers=tiers)


DOORS: tuple[Door, ...] = (
    *(through(f"values read by {r}", "values read", r, "a tensor of a list", "arguments of a kernel") for r in READERS),
    *(through(f"values written by {w}", "values written", "numpy", w) for w in WRITERS),
)
