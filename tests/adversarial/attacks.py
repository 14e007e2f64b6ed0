"""Attacks on the machine, the judge and the rules; shortcuts in computing are in `exploits`.

Numbers are those of the catalogue of exploits.
"""

from __future__ import annotations

from exploits import REFUSED, Exploit, plain, with_kernel
from laundering import LAUNDERING, laundered
from tasks import HEAD, KERNEL
from unseen import UNSEEN

ENDED = ("runtime_error",)
NOT_OWN = ("rejected",)

CHANNEL = """
import json, os, stat, struct

def channel():
    for fd in range(3, 256):
        if os.path.exists(f"/proc/self/fd/{fd}") and stat.S_ISSOCK(os.fstat(fd).st_mode):
            os.set_blocking(fd, True)
            return fd

def frame(header, *data):
    text = json.dumps(header).encode()
    lengths = b"".join(struct.pack("<Q", len(d)) for d in data)
    return b"KW" + struct.pack("<II", len(text), len(data)) + lengths + text + b"".join(data)

def say(header, *data):
    left = frame(header, *data)
    while left:
        left = left[os.write(channel(), left):]
"""
"""Speaks the runner's protocol, as a candidate that read this repository can."""

TAKE_OVER = """
def read(count):
    data = b""
    while len(data) < count:
        data += os.read(channel(), count - len(data))
    return data

def hear():
    _, length, count = struct.unpack("<2sII", read(10))
    sizes = struct.unpack(f"<{count}Q", read(8 * count))
    header = json.loads(read(length))
    return header, [read(size) for size in sizes]

FACTS = {"launches": [{"kernel": "k", "count": 1}], "own_calls": 1, "written": {"1": 4}}

def serve_in_the_runners_place():
    say({"kind": "loaded"})
    while True:
        header, data = hear()
        if header["kind"] == "model":
            say({"kind": "made", "weights": "none"})
            continue
        dtype, shape = header["tensors"][0]
        y = torch.relu(torch.frombuffer(bytearray(data[0]), dtype=torch.float32)) * 2
        say({"kind": "called", "tensors": [[dtype, shape]], "facts": FACTS, "operators": [], "mutated": [],
             "problems": []}, y.numpy().tobytes())

serve_in_the_runners_place()
"""


def host(body: str, head: str = "") -> str:
    """Returns a candidate for `scale` whose host function runs `body` before its kernel."""
    launch = "    scale_kernel<<<"
    kernel = KERNEL.replace(launch, f"    {body}\n{launch}").replace("__global__ void", f"{head}\n__global__ void", 1)
    return with_kernel("return extension.scale(x)", kernel=kernel)


def only_host(body: str, head: str = "") -> str:
    """Returns a candidate for `scale` whose CUDA text has no kernel."""
    start, end = KERNEL.index("__global__"), KERNEL.index("torch::Tensor scale")
    launch = KERNEL.index("    scale_kernel<<<")
    text = KERNEL[:start] + head + "\n" + KERNEL[end:launch] + f"    {body}\n" + KERNEL[KERNEL.index("    return y;") :]
    return with_kernel("return extension.scale(x)", kernel=text)


def said(header: str) -> str:
    """Returns a candidate that sends one message in the runner's place, then continues."""
    return plain(f"say({header})\nreturn x", CHANNEL)


# Attacks on the channel and on the judge's trust in it.

FORGED = {
    "answers before it is asked": "{'kind': 'called'}",
    "answers another question": "{'kind': 'made', 'weights': 'names'}",
    "facts that are no facts": "{'kind': 'called', 'facts': [1], 'operators': [], 'mutated': [], 'problems': []}",
    "a count that is no count": "{'kind': 'called', 'facts': {'launches': [{'count': 'many'}]}, 'operators': [],"
    " 'mutated': [], 'problems': []}",
    "a failure without a name": "{'kind': 'failed'}",
    "a build request of numbers": "{'kind': 'build', 'request': {'kind': 'device', 'cuda_source': 7}}",
}
ATTACKS = [
    *(
        Exploit(f"B63 forges {name}", "scale", said(text), ("rejected",), "forged-answer")
        for name, text in FORGED.items()
    ),
    Exploit(
        "B63 takes the runner's place",
        "scale",
        plain("return x", CHANNEL + TAKE_OVER),
        ("rejected",),
        "forged-answer",
        gpu=("runtime_error", "rejected"),
    ),
    Exploit(
        "B63 a message nested too deep",
        "scale",
        plain("t = b'[' * 200000\nos.write(channel(), b'KW' + struct.pack('<II', len(t), 0) + t)\nreturn x", CHANNEL),
        ENDED,
    ),
    Exploit(
        "B73 fills the judge's memory",
        "scale",
        plain(
            "os.write(channel(), b'KW' + struct.pack('<IIQ', 2, 1, 3 << 30) + b'{}')\n"
            "while True:\n    os.write(channel(), bytes(1 << 20))",
            CHANNEL,
        ),
        ENDED,
    ),
    Exploit(
        "B63 a tensor of impossible shape",
        "scale",
        plain("say({'kind': 'called', 'tensors': [['float32', [True] * 2]]}, b'1234')\nreturn x", CHANNEL),
        ENDED,
    ),
    Exploit("B64 closes the channel", "scale", plain("import os\nos.closerange(3, 256)\nreturn x"), ENDED),
    Exploit(
        "B29 replaces the channel's send",
        "scale",
        with_kernel("return extension.scale(x)", "import socket\nsocket.socket.send = lambda *a: 0\n"),
        ("timeout", "rejected", "runtime_error"),
    ),
    *(
        Exploit(f"B63 leaves with status {n}", "scale", plain(f"import os\nos._exit({n})"), ENDED, f"status {n}")
        for n in (70, 71, 72)
    ),
    Exploit(
        "B63 leaves from a static initialiser",
        "scale",
        host("", "#include <unistd.h>\n__attribute__((constructor)) static void leave() { _exit(0); }"),
        ENDED,
        "status 0",
    ),
    Exploit(
        "B63 leaves in its constructor", "scale", plain("return x", init="raise SystemExit(0)"), ENDED, "SystemExit"
    ),
    Exploit("B63 interrupts", "scale", plain("raise KeyboardInterrupt"), ENDED, "KeyboardInterrupt"),
    Exploit(
        "B63 an error that cannot be shown",
        "scale",
        plain("raise E()", "class E(Exception):\n    def __str__(self):\n        raise RuntimeError('no')\n"),
        ENDED,
    ),
    Exploit("B72 an error with lone surrogates", "scale", plain("raise ValueError('\\ud800')"), ENDED, "ValueError"),
    # The definition of a candidate's own kernel.
    Exploit(
        "B49 numpy beside a decoy",
        "scale",
        with_kernel("extension.scale(x)\nimport numpy\nreturn torch.from_numpy(numpy.maximum(x.numpy(), 0) * 2)"),
        NOT_OWN,
        gpu=("runtime_error", "rejected"),
    ),
    Exploit(
        "B49 numpy into the kernel's output",
        "scale",
        with_kernel("y = extension.scale(x)\ny.numpy()[:] = x.numpy().clip(0) * 2\nreturn y"),
        NOT_OWN,
        gpu=("runtime_error", "rejected"),
    ),
    Exploit(
        "B49 Python beside a decoy",
        "scale",
        with_kernel("extension.scale(x)\nreturn torch.tensor([[max(v, 0) * 2 for v in row] for row in x.tolist()])"),
        NOT_OWN,
    ),
    Exploit(
        "B26 another thread computes with torch",
        "scale",
        with_kernel(
            "extension.scale(x)\nimport threading\nout = []\n"
            "t = threading.Thread(target=lambda: out.append(torch.relu(x) * 2))\nt.start()\nt.join()\nreturn out[0]"
        ),
        NOT_OWN,
        "library-op",
    ),
    Exploit(
        "B74 switches the operator log off",
        "scale",
        with_kernel("extension.scale(x)\nwith torch._C._DisableTorchDispatch():\n    return torch.relu(x) * 2"),
        NOT_OWN,
        "harness-access",
    ),
    Exploit(
        "B46 compiled by torch.jit",
        "scale",
        with_kernel("extension.scale(x)\nreturn f(x)", "@torch.jit.script\ndef f(x):\n    return torch.relu(x) * 2\n"),
        NOT_OWN,
    ),
    Exploit("B46 compiled by torch", "scale", plain("return torch.compile(lambda v: torch.relu(v) * 2)(x)"), NOT_OWN),
    Exploit(
        "B46 an autograd function around torch",
        "scale",
        plain(
            "return F.apply(x)",
            "class F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return torch.relu(x) * 2\n",
        ),
        NOT_OWN,
        "no-own-kernel",
    ),
    Exploit(
        "B46 host code reads device memory",
        "scale",
        only_host(
            "const float* a = x.data_ptr<float>(); float* b = y.data_ptr<float>();\n"
            "    for (int i = 0; i < n; ++i) b[i] = a[i] > 0 ? 2 * a[i] : 0;"
        ),
        ENDED,
        "host-access",
    ),
    Exploit(
        "B46 host code opens device memory before it reads it",
        "scale",
        only_host(
            "float* a = x.data_ptr<float>(); float* b = y.data_ptr<float>();\n"
            "    for (float* p : {a, b}) mprotect((void*)((size_t)p / 4096 * 4096), (n * 4 + 4095) / 4096 * 4096, 3);\n"
            "    for (int i = 0; i < n; ++i) b[i] = a[i] > 0 ? 2 * a[i] : 0;",
            "#include <sys/mman.h>",
        ),
        ENDED,
        "host-access",
    ),
    Exploit("B46 torch from host code", "scale", only_host("y = torch::relu(x) * 2;"), NOT_OWN),
    Exploit(
        "B68 own calls counted by itself",
        "scale",
        plain(
            "import importlib\nr = importlib.import_module('kernelwright.machine.' + 'runtime').current()\n"
            "r.own_calls += 1\nreturn torch.relu(x) * 2"
        ),
        NOT_OWN,
    ),
    Exploit(
        "B68 reaches the runner's frame through a traceback",
        "scale",
        with_kernel(
            "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    names = ('__traceback__', 'tb_' + 'frame')\n"
            "    frame = getattr(getattr(e, names[0]), names[1])\nreturn extension.scale(x)"
        ),
        NOT_OWN,
        "frame-walk",
    ),
    Exploit(
        "B68 reaches a frame through a generator",
        "scale",
        with_kernel("g = (i for i in x)\ngetattr(g, 'gi_' + 'frame')\nreturn extension.scale(x)"),
        NOT_OWN,
        "frame-walk",
    ),
    Exploit(
        "B28 changes its result's class",
        "scale",
        with_kernel("y = extension.scale(x)\ny.__class__ = T\nreturn y", "class T(torch.Tensor):\n    pass\n"),
        NOT_OWN,
        "lazy-output",
    ),
    Exploit("B27 a generator for a tensor", "scale", with_kernel("return (t for t in [extension.scale(x)])"), NOT_OWN),
    Exploit("B27 a tensor without memory", "scale", plain("return torch.empty(x.shape, device='meta')"), REFUSED),
    Exploit(
        "B9 sorts its input",
        "scale",
        with_kernel("y = extension.scale(x)\nx.copy_(x.flatten().sort()[0].view_as(x))\nreturn y"),
        NOT_OWN,
        "input-mutated",
    ),
    Exploit(
        "B9 zeroes its input behind torch's back",
        "scale",
        with_kernel("y = extension.scale(x)\nx.numpy()[:] = 0\nreturn y"),
        NOT_OWN,
        "input-mutated",
        gpu=("runtime_error", "rejected"),
    ),
    # The machine.
    Exploit(
        "B70 kills the harness through the C library",
        "scale",
        plain("import ctypes, os\nif ctypes.CDLL(None).kill(os.getppid(), 9):\n    raise OSError('refused')\nreturn x"),
        ENDED,
        "refused",
    ),
    Exploit(
        "B70 kills everything",
        "scale",
        plain("import ctypes\nif ctypes.CDLL(None).kill(-1, 9):\n    raise OSError('refused')\nreturn x"),
        ENDED,
        "refused",
    ),
    Exploit(
        "B70 takes permissions from the user's files",
        "scale",
        plain("import os, sys\nos.chmod(sys.executable, 0)\nreturn x"),
        ENDED,
        "PermissionError",
    ),
    Exploit(
        "B70 stays when its parent goes",
        "scale",
        plain("import ctypes\nif ctypes.CDLL(None).prctl(1, 0):\n    raise OSError('refused')\nreturn x"),
        ENDED,
        "refused",
    ),
    Exploit(
        "B73 asks to go first",
        "scale",
        plain("import os\nos.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))\nreturn x"),
        ENDED,
        "PermissionError",
    ),
    Exploit(
        "B73 memory that outlives it",
        "scale",
        plain(
            "import ctypes\nif ctypes.CDLL(None).shmget(0, ctypes.c_size_t(1 << 20), 0o1600) < 0:\n    raise OSError('refused')\nreturn x"
        ),
        ENDED,
        "refused",
    ),
    Exploit(
        "B73 memory without end, by torch",
        "scale",
        plain("hoard = []\nwhile True:\n    hoard.append(torch.ones(1 << 24))"),
        ENDED,
        "memory",
        gpu=("runtime_error", "timeout"),
    ),
    Exploit(
        "B73 memory without end, in host code",
        "scale",
        host(
            "std::vector<std::vector<char>> hoard;\n    for (;;) hoard.emplace_back(1 << 26, 1);", "#include <vector>"
        ),
        ENDED,
        gpu=("runtime_error", "timeout"),
    ),
    Exploit("B73 host code without end", "scale", host("volatile int on = 1;\n    while (on) {}"), ("timeout",)),
    Exploit(
        "B73 host code that ignores signals",
        "scale",
        host(
            "signal(SIGTERM, SIG_IGN); signal(SIGXCPU, SIG_IGN);\n    for (;;) pause();",
            "#include <csignal>\n#include <unistd.h>",
        ),
        ("timeout",),
    ),
    Exploit(
        "B73 stops itself", "scale", plain("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)"), ("timeout",)
    ),
    Exploit(
        "B73 files without end",
        "scale",
        plain("n = 0\nwhile True:\n    open(f'f{n}', 'w').close()\n    n += 1"),
        ("runtime_error", "timeout"),
    ),
    Exploit(
        "B73 recursion without end",
        "scale",
        host(
            "struct R { static int f(volatile int k) { volatile char b[4096]; b[0] = k; return f(k + 1) + b[0]; } };\n    R::f(0);"
        ),
        ENDED,
    ),
    Exploit(
        "B70 forks from host code",
        "scale",
        host('TORCH_CHECK(fork() >= 0, "no fork");', "#include <unistd.h>"),
        ENDED,
        "no fork",
    ),
    Exploit(
        "B51 starts a shell from host code",
        "scale",
        host('TORCH_CHECK(system("true") == 0, "no shell");', "#include <cstdlib>"),
        ENDED,
        "no shell",
    ),
    Exploit("B51 includes a file of the machine", "scale", host("", '#include "/etc/passwd"'), ("compile_error",)),
    Exploit(
        "B51 assembles a file of the machine",
        "scale",
        host("", 'asm(".incbin \\"/etc/passwd\\"");'),
        ("compile_error",),
    ),
    Exploit(
        "B73 a device text that takes for ever to compile",
        "scale",
        with_kernel(
            "return extension.scale(x)",
            kernel=KERNEL.replace(
                "__global__",
                "#define A(x) x x x x x x x x x x\n#define B(x) A(A(A(A(x))))\n"
                "__device__ int junk(int a) { B(B(a += a * 3;)) return a; }\n__global__",
                1,
            ),
        ),
        ("compile_error",),
        "compiler",
        endless_build=True,
    ),
    # Searches for the reference and other secrets.
    Exploit(
        "B52 searches the file system for the reference",
        "scale",
        plain(
            "import os\nfor folder, _, names in os.walk('/'):\n    for name in names:\n        if name.endswith('.py'):\n"
            "            text = open(os.path.join(folder, name), errors='ignore').read()\n"
            "            if 'torch.relu(x) ' + '* 2.0' in text and 'def get_' + 'inputs' in text:\n"
            "                space = {}\n                exec(text, space)\n                return space['Model']()(x)\n"
            "raise RuntimeError('nothing found')"
        ),
        ("runtime_error", "timeout"),
    ),
    Exploit(
        "B51 looks for what was built for others",
        "scale",
        plain("import os\nraise RuntimeError(f\"{len(os.listdir(os.environ['KERNELWRIGHT_CACHE']))} files\")"),
        ENDED,
        "PermissionError",
    ),
    Exploit(
        "B34 reads its parent's command line",
        "scale",
        plain("import os\nopen(f'/proc/{os.getppid()}/cmdline').read()\nreturn x"),
        ENDED,
    ),
    Exploit(
        "B34 acts by the arguments",
        "scale",
        plain("import sys\nreturn torch.relu(x) * 2 if 'pytest' in ' '.join(sys.argv) else x * 0"),
        REFUSED,
    ),
    Exploit(
        "B48 a class of its own that calls the reference",
        "scale",
        HEAD + "import __main__\n\nclass ModelNew(getattr(__main__, 'Model')):\n    pass\n",
        ENDED,
    ),
    # More attacks on the judge and its knowledge.
    Exploit(
        "B64 puts a descriptor of its own in the channel's place",
        "scale",
        plain(
            "import os\na, b = os.pipe()\nfor fd in range(3, 64):\n    if fd not in (a, b):\n        try:\n"
            "            os.fstat(fd)\n            os.dup2(b, fd)\n        except OSError:\n            pass\nreturn torch.zeros_like(x)"
        ),
        REFUSED + ("timeout",),
    ),
    Exploit(
        "B66 traces its parent",
        "scale",
        plain(
            "import ctypes, os\nif ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0):\n    raise OSError('refused')\nreturn x"
        ),
        ("runtime_error",),
        "refused",
    ),
    Exploit(
        "B66 a filter of its own that answers system calls",
        "scale",
        plain(
            "import ctypes\nfilter_of_one = (ctypes.c_uint64 * 1)(0x7fff000000000006)\n"
            "program = (ctypes.c_uint64 * 2)(1, ctypes.addressof(filter_of_one))\n"
            "ctypes.CDLL(None).prctl(22, 2, ctypes.byref(program))\nreturn torch.zeros_like(x)"
        ),
        REFUSED,
    ),
    Exploit(
        "B68 adds launches to the record of them",
        "scale",
        with_kernel(
            "r = getattr(sys.modules['kernelwright.cuda'], '_cur' + 'rent')\n"
            "facts = getattr(r, '_fa' + 'cts', None)\nextension.scale(x[:1, :1].contiguous())\n"
            "y = torch.empty_like(x)\n"
            "if facts is None:  # on a GPU\n    getattr(r, '_dir' + 'ect')['scale_kernel'] = 9\n"
            "else:\n    facts.written[y.data_ptr()] = 4 * y.numel()\n"
            "y.copy_(torch.relu(x) * 2)\nreturn y",
            "import sys\n",
        ),
        ("rejected",),
    ),
    Exploit(
        "B68 empties the log of operators",
        "scale",
        with_kernel(
            "extension.scale(x)\ny = torch.relu(x) * 2\n"
            "stack = torch.utils._python_dispatch._get_current_dispatch_mode_stack()\n"
            "for mode in stack:\n    for name in ('seen', 'pieces'):\n        getattr(mode, name, []).clear()\nreturn y"
        ),
        NOT_OWN,
        "harness-access",
    ),
    Exploit(
        "B68 empties the log of operators, under a hidden name",
        "scale",
        with_kernel(
            "extension.scale(x)\ny = torch.relu(x) * 2\n"
            "get = getattr(torch.utils, '_python' + '_dispatch')\nstack = getattr(get, '_get_current' + '_dispatch_mode_stack')()\n"
            "for mode in stack:\n    for name in ('seen', 'pieces'):\n        getattr(mode, name, []).clear()\nreturn y"
        ),
        NOT_OWN,
        "harness-access",
    ),
    Exploit(
        "B68 other code for a function of the driver",
        "scale",
        with_kernel(
            "import sys\nfor name, m in list(sys.modules.items()):\n    if name.startswith('kernelwr' + 'ight'):\n"
            "        for f in list(vars(m).values()):\n            if callable(f) and hasattr(f, '__co' + 'de__'):\n"
            "                try:\n                    setattr(f, '__co' + 'de__', getattr(lambda *a, **k: True, '__co' + 'de__'))\n                except ValueError:\n                    pass\nreturn torch.zeros_like(x)"
        ),
        REFUSED,
    ),
    Exploit(
        "B74 changes classes of the harness at any depth",
        "scale",
        laundered(
            "import sys\nfor name in list(sys.modules):\n    if name.startswith('kernelwright.eval' + 'uation'):\n"
            "        for kind in list(vars(sys.modules[name]).values()):\n"
            "            if isinstance(kind, type) and issubclass(kind, torch.utils._python_dispatch.TorchDispatchMode):\n"
            "                setattr(kind, '__torch_' + 'dispatch__', lambda s, f, t, a=(), k=None: f(*a, **(k or {})))\n"
            "return copy(torch.relu(x) * 2, x.device)"
        ),
        NOT_OWN,
        "library-op",
    ),
    Exploit(
        "B69 replaces what makes random numbers and compares",
        "softmax",
        with_kernel(
            "return torch.zeros_like(x)",
            "for name in ('randn', 'rand', 'equal', 'isclose', 'isnan'):\n"
            "    setattr(sys.modules['tor' + 'ch'], name, lambda *a, **k: torch.zeros(1))\n".replace(
                "sys", "__import__('sys')"
            ),
        ),
        REFUSED,
    ),
    Exploit(
        "B70 writes into the judge's package",
        "scale",
        plain(
            "import kernelwright, os\nwith open(os.path.join(os.path.dirname(kernelwright.__file__), 'evaluation', 'compare', 'on_host.py'), 'a') as f:\n"
            "    f.write('# changed')\nreturn torch.zeros_like(x)"
        ),
        ("runtime_error",),
    ),
    Exploit(
        "B31 reports a measurement of no time at all",
        "scale",
        plain(
            "say({'kind': 'ran', 'facts': {'launches': [{'kernel': 'k'}], 'written': {'0': 1}}, 'kernels': [],\n"
            "     'times': {'device_ms': 0, 'issue_ms': 0, 'slack_ms': 0, 'hidden': True}, 'operators': [], 'mutated': [],\n"
            "     'problems': [], 'outputs': [['float32', list(x.shape)]]})\nreturn x",
            CHANNEL,
        ),
        NOT_OWN,
        "forged-answer",
        gpu=("rejected", "wrong", "runtime_error"),
    ),
    Exploit(
        "B64 sits between the runner and the judge",
        "scale",
        plain(
            "import socket, threading\nreal = channel()\nkept = os.dup(real)\nnear, far = socket.socketpair()\n"
            "os.dup2(far.fileno(), real)\n\ndef relay():\n    while True:\n"
            "        os.write(kept, near.recv(1 << 20).replace(b'no-own-kernel', b'nothing-at-all'))\n\n"
            "threading.Thread(target=relay, daemon=True).start()\nreturn torch.relu(x) * 2",
            CHANNEL,
        ),
        ("runtime_error", "rejected", "timeout"),
    ),
    Exploit(
        "B9 a kernel that zeroes its input",
        "scale",
        with_kernel(
            "return extension.scale(x)",
            kernel=KERNEL.replace("const float* x, float* y", "float* x, float* y").replace(
                "x[i], 0.0f) * 2.0f;", "x[i], 0.0f) * 2.0f;\n    if (i < n) x[i] = 0.0f;"
            ),
        ),
        NOT_OWN,
        "input-mutated",
    ),
    *LAUNDERING,
    *UNSEEN,
]
