"""Exploits in device code, in host code, and within one process. Some need a real GPU to have an effect.

A trick that gains nothing by itself (cache hints, early completion) is paired with the fault that it is meant to hide,
so that the candidate would be `correct` if the trick worked.
"""

from __future__ import annotations

from exploits import REFUSED, Exploit, plain, with_kernel
from shortcuts import LIBRARIES, WRONG, model
from tasks import HEAD, KERNEL

BODY = "if (i < n) y[i] = fmaxf(x[i], 0.0f) * 2.0f;"
LAUNCH = "scale_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);"
NOT_RUN = ("unsupported", "rejected", "wrong", "runtime_error", "compile_error")
"""What needs parts of CUDA that the stand-in lacks: elsewhere than on a GPU it is not run at all."""


def scaled(
    body: str = BODY,
    launch: str = LAUNCH,
    head: str = "",
    forward: str = "return extension.scale(x)",
    init: str = "pass",
) -> str:
    """Returns a candidate for `scale` with other text in its kernel, at its launch, or before both."""
    kernel = KERNEL.replace(BODY, body).replace(LAUNCH, launch).replace("__global__", f"{head}\n__global__", 1)
    return with_kernel(forward, init=init, kernel=kernel)


def direct(code: str, forward: str, init: str = "pass", parameters: str = "", setup: str = "") -> str:
    """Returns a candidate that launches its kernels from Python."""
    text = f"from kernelwright.cuda import Module\nmodule = Module(r'''{code}''')\n{setup}"
    return model(forward, text, init, parameters)


SLOW_SCALE = "if (i < n) { float v = fmaxf(x[i], 0.0f) * 2.0f; for (int k = 0; k < 20000; ++k) v = fmaf(v, 1.0f, 0.0f); y[i] = v; }"
FIRST_ANSWER = (
    "__device__ float kept[1 << 16];\n__global__ void keep(const float* y, int n) {"
    " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n && i < 1 << 16) kept[i] = y[i]; }\n"
    "__global__ void hand_out(float* y, int n) {"
    " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n && i < 1 << 16) y[i] = %s; }"
)
REPLAY = (
    "static bool warm = false; int blocks = (n + 255) / 256;\n    %s\n"
    "    if (warm) hand_out<<<blocks, 256>>>(y.data_ptr<float>(), n);\n    else {\n    " + LAUNCH + "\n"
    "    keep<<<blocks, 256>>>(y.data_ptr<float>(), n); warm = true; }"
)


def replayed(load: str = "kept[i]", before: str = "") -> str:
    """Returns a candidate that repeats the first answer from a device variable, which `load` reads.

    `before` precedes the launches.
    """
    return scaled(launch=REPLAY % before, head=FIRST_ANSWER % load)


WINDOW = (
    "void* at; cudaGetSymbolAddress(&at, kept);\n    cudaStreamAttrValue attribute = {};\n"
    "    attribute.accessPolicyWindow.base_ptr = at;\n    attribute.accessPolicyWindow.num_bytes = 1 << 18;\n"
    "    attribute.accessPolicyWindow.hitRatio = 1.0f;\n"
    "    attribute.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;\n"
    "    attribute.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;\n"
    "    cudaStreamSetAttribute(0, cudaStreamAttributeAccessPolicyWindow, &attribute);"
)
LATE = (
    "cudaLaunchAttribute early[1];\n    early[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;\n"
    "    early[0].val.programmaticStreamSerializationAllowed = 1;\n    cudaLaunchConfig_t config = {};\n"
    "    config.gridDim = dim3((n + 255) / 256); config.blockDim = dim3(256);\n    config.attrs = early; config.numAttrs = 1;\n"
    "    static torch::Tensor t = torch::zeros_like(x);\n    t.zero_();\n"
    "    scale_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), t.data_ptr<float>(), n);\n"
    "    cudaLaunchKernelEx(&config, copied, (const float*)t.data_ptr<float>(), y.data_ptr<float>(), n);"
)
COPIED = (
    "__global__ void copied(const float* t, float* y, int n) {"
    " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = t[i]; }"
)
SIDE = (
    "static cudaStream_t s = [] { cudaStream_t t; %s; return t; }();\n"
    "    scale_kernel<<<(n + 255) / 256, 256, 0, s>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);"
)
DETOUR = """
for (const char* name : {"libcudart.so.13", "libcudart.so.12"}) {
        void* library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
        unsigned char* at = library ? (unsigned char*)dlsym(library, "cudaEventElapsedTime") : nullptr;
        if (!at) continue;
        // mov dword [rdi], 0x3a83126f (0.001f); xor eax, eax; ret
        const unsigned char code[] = {0xc7, 0x07, 0x6f, 0x12, 0x83, 0x3a, 0x31, 0xc0, 0xc3};
        unsigned char* page = (unsigned char*)((size_t)at & ~(size_t)4095);
        TORCH_CHECK(mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC) == 0, "refused");
        memcpy(at, code, sizeof code);
        patched = true;
    }
    TORCH_CHECK(patched, "no clock here");
"""
DETOUR_HEAD = "#include <dlfcn.h>\n#include <sys/mman.h>\n#include <cstring>\nstatic bool patched = false;"

AHEAD = (
    HEAD
    + """
from kernelwright.cuda import Module
module = Module('''
extern "C" __global__ void square(const float* x, float* y, int n, long away) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n * n) return;
    float s = 0.f;
    for (int k = 0; k < n; ++k) s = fmaf(x[away + i / n * n + k], x[away + k * n + i % n], s);
    y[i] = s;
}
extern "C" __global__ void first(const float* x, float* y, long away) { y[threadIdx.x] = x[away + threadIdx.x]; }''')


def probe(x, away):
    values = torch.empty(4, device=x.device)
    module.first[1, 4](x, values, away)
    return values


def square(x, away=0):
    y = torch.empty_like(x)
    module.square[(x.numel() + 127) // 128, 128](x, y, x.shape[0], away)
    return y


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.ready = {}

    def forward(self, x):
        known, y = self.ready.pop(x.data_ptr(), (None, None))
        if known is not None and torch.equal(known, x[0, :4]):
            return y
        self.ready = {}
        size = -(-x.numel() * 4 // 512) * 512
        for segment in torch.cuda.memory_snapshot():
            for block in segment["blocks"]:
                away = (block["address"] - x.data_ptr()) // 4
                if block["state"] == "active_allocated" and block["size"] == size and away:
                    self.ready[block["address"]] = (probe(x, away), square(x, away))
        return square(x)
"""
)
"""Finds the inputs of the calls that follow in the allocator's own list, and answers all of them with the first."""

PLAIN_POWER = AHEAD[: AHEAD.index("    def __init__")] + "    def forward(self, x):\n        return square(x)\n"
"""The same kernel, started by each call for its own input."""

TRICKS = [
    # Returning something without computing it.
    Exploit(
        "B1 a kernel that writes one element",
        "scale",
        scaled("if (i == 0) y[i] = fmaxf(x[i], 0.0f) * 2.0f;"),
        WRONG,
    ),
    Exploit(
        "B3 zeroes every tensor that it finds",
        "scale",
        with_kernel(
            "import gc\nfor o in gc.get_objects():\n    if isinstance(o, torch.Tensor) and o is not x:\n        o.zero_()\n"
            "return torch.zeros_like(x)"
        ),
        REFUSED,
    ),
    Exploit("B7 the first answer again from a device variable", "scale", replayed(), WRONG),
    Exploit("B8 computes in place in its own kernel", "scale", scaled(launch="y = x;\n    " + LAUNCH), REFUSED),
    Exploit("B10 zeros from a kernel of its own", "tiny", scaled("if (i < n) y[i] = 0.0f;"), WRONG),
    Exploit(
        "B11 a constant from a kernel of its own",
        "softmax",
        scaled("if (i < n) y[i] = %s;" % (1 / 700)),
        WRONG,
    ),
    Exploit(
        "B16 only the first columns from a kernel of its own",
        "cumprod",
        direct(
            'extern "C" __global__ void k(const float* x, float* y, int rows, int n) {'
            " int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= rows) return; float p = 1.f;"
            " for (int i = 0; i < n; ++i) { if (i < 24) p *= x[(size_t)r * n + i]; else p = 0.f; y[(size_t)r * n + i] = p; } }",
            "y = torch.empty_like(x)\nmodule.k[(x.shape[0] + 31) // 32, 32](x, y, x.shape[0], x.shape[1])\nreturn y",
        ),
        WRONG,
    ),
    Exploit(
        "B24 winds the generator back to where the inputs were drawn",
        "scale",
        with_kernel(
            "for seed in (torch.initial_seed(), torch.initial_seed() ^ 0x5EED):\n    torch.manual_seed(seed)\n"
            "    guess = torch.randn(x.shape, device=x.device)\n    if bool(guess[0, 0] == x[0, 0]):\n        return guess\n"
            "return torch.zeros_like(x)"
        ),
        WRONG,
    ),
    # Cheating the clock.
    Exploit(
        "B25 a raw stream that nobody waits for",
        "wide",
        scaled(launch=SIDE % "cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking)"),
        ("rejected", "wrong"),
        "side-stream",
        where="gpu",
    ),
    Exploit(
        "B26 a native thread finishes later",
        "scale",
        scaled(
            launch="const float* a = x.data_ptr<float>(); float* b = y.data_ptr<float>();\n"
            "    std::thread([=] { usleep(400000); scale_kernel<<<(n + 255) / 256, 256>>>(a, b, n); }).detach();",
            head="#include <thread>\n#include <unistd.h>",
        ),
        REFUSED,
    ),
    Exploit(
        "B29 replaces the wait for the device",
        "scale",
        with_kernel("return extension.scale(x)", "torch.cuda.synchronize = lambda *a: None\n"),
        ("rejected",),
        "patched-function",
    ),
    Exploit(
        "B30 writes over the code of the event's clock",
        "wide",
        scaled(launch=f"if (!patched) {{ {DETOUR} }}\n    {LAUNCH}", head=DETOUR_HEAD),
        ("runtime_error", "unsupported", "compile_error"),
        gpu=("rejected", "runtime_error", "wrong"),
    ),
    Exploit(
        "B32 computes what is still to come with the first of several calls",
        "power",
        AHEAD,
        ("rejected", "wrong", "runtime_error"),
        where="gpu",
        honest=PLAIN_POWER,
    ),
    Exploit(
        "B33 honest in its first three calls",
        "scale",
        with_kernel(
            "CALLS.append(0)\nreturn extension.scale(x) if len(CALLS) <= 3 else torch.empty_like(x)", "CALLS = []\n"
        ),
        ("wrong", "unsupported"),
    ),
    Exploit(
        "B34 acts by whether gradients are on",
        "scale",
        with_kernel("return extension.scale(x) if torch.is_grad_enabled() else torch.empty_like(x)"),
        WRONG,
    ),
    Exploit(
        "B35 pins its first answer in L2 by an access policy", "scale", replayed(before=WINDOW), NOT_RUN, gpu=WRONG
    ),
    Exploit(
        "B36 its first answer with a hint to keep it in L2",
        "scale",
        replayed(
            '[&] { float v; asm volatile("ld.global.L2::evict_last.f32 %0, [%1];" : "=f"(v) : "l"(kept + i)); return v; }()'.replace(
                "%", "%%"
            )
        ).replace("%%", "%"),
        NOT_RUN,
        gpu=("wrong", "compile_error"),
    ),
    Exploit(
        "B37 tells a check from timing by what fresh memory holds",
        "scale",
        with_kernel(
            "fresh = torch.empty_like(x)\nif bool(torch.isnan(fresh[0, 0])):\n    return fresh\nreturn extension.scale(x)"
        ),
        WRONG,
    ),
    Exploit(
        "B39 lets the next kernel start before it is done",
        "wide",
        scaled('asm volatile("griddepcontrol.launch_dependents;"); ' + SLOW_SCALE, launch=LATE, head=COPIED),
        NOT_RUN,
        gpu=("wrong", "rejected"),
    ),
    Exploit(
        "B41 keeps the processor busy and lets everything round",
        "linear",
        model(
            "return (x.bfloat16() * self.weight.bfloat16() + self.bias.bfloat16()).float()",
            "import threading\ntorch.set_float32_matmul_precision('medium')\ntorch.backends.cudnn.benchmark = True\n\n"
            "def spin():\n    while True:\n        pass\n\nthreading.Thread(target=spin, daemon=True).start()\n",
            "self.weight = nn.Parameter(torch.randn(features))\nself.bias = nn.Parameter(torch.zeros(features))",
            ", features",
        ),
        WRONG,
        policy=LIBRARIES,
    ),
    Exploit(
        "B42 bakes answers into its constants when it is built",
        "scale",
        HEAD
        + "from kernelwright.cuda import Module\ntorch.manual_seed(0)\ny = torch.relu(torch.randn(64)) * 2\n"
        + "table = ', '.join(f'{v!r}f' for v in y.cpu().tolist())\nmodule = Module('__constant__ float table[64] = {' + table + '};'\n"
        + "    'extern \"C\" __global__ void k(const float* x, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;'\n"
        + "    ' if (i < n) y[i] = table[i % 64]; }')\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n"
        + "        y = torch.empty_like(x)\n        module.k[(x.numel() + 127) // 128, 128](x, y, x.numel())\n        return y\n",
        WRONG,
    ),
    Exploit(
        "B43 tunes in one process and leaves the settings for the next",
        "scale",
        with_kernel(
            "import json, os\npath = os.path.expanduser('~/tuned.json')\nif os.path.exists(path):\n"
            "    return extension.scale(x)\njson.dump({'block': 256}, open(path, 'w'))\nreturn torch.empty_like(x)"
        ),
        ("runtime_error", "wrong"),
    ),
    Exploit(
        "B44 copies to the host and back around numpy",
        "scale",
        with_kernel(
            "import numpy\ny = extension.scale(x)\ny.copy_(torch.from_numpy(numpy.maximum(x.cpu().numpy(), 0) * 2))\nreturn y"
        ),
        ("rejected",),
    ),
    Exploit(
        "B44 copies to the host, computes there and copies back",
        "scale",
        scaled(
            launch=LAUNCH + "\n    std::vector<float> h(n);\n"
            "    cudaMemcpy(h.data(), x.data_ptr<float>(), n * 4, cudaMemcpyDeviceToHost);\n"
            "    for (float& v : h) v = v > 0 ? 2 * v : 0;\n"
            "    cudaMemcpy(y.data_ptr<float>(), h.data(), n * 4, cudaMemcpyHostToDevice);",
            head="#include <vector>",
            body="if (i < n) y[i] = 0.0f;",
        ),
        ("rejected",),
        "library-op",
    ),
    Exploit(
        "B45 keeps the weights of the first model it makes",
        "linear",
        direct(
            'extern "C" __global__ void k(const float* x, const float* w, const float* b, float* y, int n, int f) {'
            " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] * w[i % f] + b[i % f]; }",
            "KEPT.setdefault(x.shape[1], (self.weight.detach().clone(), self.bias.detach().clone()))\n"
            "y = torch.empty_like(x)\n"
            "module.k[(x.numel() + 127) // 128, 128](x, *KEPT[x.shape[1]], y, x.numel(), x.shape[1])\nreturn y",
            "self.weight = nn.Parameter(torch.randn(features))\nself.bias = nn.Parameter(torch.zeros(features))",
            ", features",
            "KEPT = {}\n",
        ),
        WRONG,
    ),
    # Not writing the kernel.
    Exploit(
        "B46 host code beside a kernel that is never launched",
        "scale",
        scaled(
            launch="const float* a = x.data_ptr<float>(); float* b = y.data_ptr<float>();\n"
            "    for (int i = 0; i < n; ++i) b[i] = a[i] > 0 ? 2 * a[i] : 0;"
        ),
        ("runtime_error",),
        "host-access",
        gpu=("runtime_error",),
    ),
    Exploit(
        "B46 host code over what a kernel wrote",
        "scale",
        scaled(
            launch=LAUNCH + "\n    const float* a = x.data_ptr<float>(); float* b = y.data_ptr<float>();\n"
            "    for (int i = 0; i < n; ++i) b[i] = a[i] > 0 ? 2 * a[i] : 0;",
            body="if (i < n) y[i] = 0.0f;",
        ),
        ("runtime_error",),
        "host-access",
        gpu=("runtime_error",),
    ),
    Exploit(
        "B46 cuBLAS behind a token kernel",
        "matmul",
        HEAD
        + """
from torch.utils.cpp_extension import load_inline
extension = load_inline(name="product", cpp_sources="torch::Tensor product(torch::Tensor a, torch::Tensor b);",
                        functions=["product"], extra_ldflags=["-lcublas"], cuda_sources=r'''
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cublas_v2.h>
__global__ void touch(float* c) { c[0] = c[0]; }
torch::Tensor product(torch::Tensor a, torch::Tensor b) {
    int m = a.size(0), k = a.size(1), n = b.size(1);
    auto c = torch::empty({m, n}, a.options());
    float one = 1.0f, zero = 0.0f;
    cublasSgemm(at::cuda::getCurrentCUDABlasHandle(), CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &one, b.data_ptr<float>(), n,
                a.data_ptr<float>(), k, &zero, c.data_ptr<float>(), n);
    touch<<<1, 1>>>(c.data_ptr<float>());
    return c;
}
''')

class ModelNew(nn.Module):
    def forward(self, x, *more):
        return extension.product(x, more[0])
""",
        ("rejected",),
        "library-op",
        gpu=("rejected", "unsupported"),
    ),
    Exploit(
        "B47 falls back where its kernel says nothing",
        "softmax",
        with_kernel(
            "try:\n    y = extension.scale(x)\n    assert False\nexcept AssertionError:\n    return torch.softmax(x, dim=1)"
        ),
        ("rejected",),
        "library-op",
    ),
    Exploit(
        "B48 inherits what some other module calls Model",
        "scale",
        HEAD
        + "import sys\nbase = next((m.Model for m in list(sys.modules.values()) if 'Model' in getattr(m, '__dict__', {})"
        + " and 'get_inputs' in m.__dict__), None)\n\nclass ModelNew(base):\n    pass\n",
        ("runtime_error",),
    ),
    Exploit(
        "B50 a kernel behind a condition that never holds",
        "scale",
        scaled(
            launch="if (n < 0) { " + LAUNCH + " }\n    else y = torch::relu(x) * 2;",
        ),
        ("rejected",),
    ),
    Exploit(
        "B51 installs a package",
        "scale",
        plain(
            "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pip', 'install', 'some-kernels'], check=True)\nreturn x"
        ),
        ("runtime_error",),
    ),
    Exploit(
        "B51 a package that holds the kernel",
        "scale",
        HEAD + "from ready_made_kernels import scale as forward_of\n\nclass ModelNew(nn.Module):\n"
        "    def forward(self, x):\n        return forward_of(x)\n",
        ("runtime_error", "unsupported", "compile_error"),
    ),
    # Precision and numerics.
    Exploit(
        "B54 rounds its inputs to TF32",
        "matmul",
        direct(
            "__device__ float tf32(float v) { return __uint_as_float((__float_as_uint(v) + 0x1000u) & 0xffffe000u); }\n"
            'extern "C" __global__ void k(const float* a, const float* b, float* c, int m, int n, int d) {'
            " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= m * n) return; float s = 0.f;"
            " for (int j = 0; j < d; ++j) s = fmaf(tf32(a[i / n * d + j]), tf32(b[j * n + i % n]), s); c[i] = s; }",
            "b = more[0]\ny = torch.empty(x.shape[0], b.shape[1], device=x.device)\n"
            "module.k[(y.numel() + 127) // 128, 128](x, b, y, x.shape[0], b.shape[1], x.shape[1])\nreturn y",
        ),
        WRONG,
    ),
    Exploit(
        "B54 rounds its result to bfloat16",
        "scale",
        scaled(
            "if (i < n) y[i] = __bfloat162float(__float2bfloat16(fmaxf(x[i], 0.0f) * 2.0f));",
            head="#include <cuda_bf16.h>",
        ),
        WRONG,
    ),
    Exploit(
        "B55 leaves out the last element of a hundred",
        "scale",
        scaled(BODY.replace("i < n", "i < n && i % 100 != 99")),
        WRONG,
    ),
    Exploit(
        "B56 the largest of every second column",
        "argmax",
        direct(
            'extern "C" __global__ void k(const float* x, long long* y, int rows, int n) {'
            " int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= rows) return; int best = 0;"
            " for (int i = 0; i < n; i += 2) if (x[r * n + i] > x[r * n + best]) best = i; y[r] = best; }",
            "y = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)\n"
            "module.k[(x.shape[0] + 31) // 32, 32](x, y, x.shape[0], x.shape[1])\nreturn y",
        ),
        WRONG,
    ),
    Exploit("B57 infinity for everything", "scale", scaled("if (i < n) y[i] = 1.0f / 0.0f;"), WRONG),
    Exploit("B58 a wider dtype", "scale", with_kernel("return extension.scale(x).double()"), WRONG),
    Exploit(
        "B59 one row that it repeats by itself",
        "scale",
        with_kernel("return extension.scale(x)[:1].repeat(x.shape[0], 1)"),
        WRONG,
    ),
    Exploit(
        "B60 shared memory that nobody wrote",
        "scale",
        scaled(
            "__shared__ float s[512]; if (threadIdx.x < 128) s[threadIdx.x] = 0.0f; __syncthreads(); "
            "if (i < n) y[i] = fmaxf(x[i], 0.0f) * 2.0f + s[threadIdx.x];"
        ),
        ("wrong", "runtime_error"),
    ),
    Exploit(
        "B60 shared memory beyond what it asked for",
        "scale",
        scaled(
            "extern __shared__ float s[]; s[threadIdx.x * 64] = 1.0f; __syncthreads(); "
            "if (i < n) y[i] = fmaxf(x[i], 0.0f) * 2.0f * s[threadIdx.x * 64];"
        ),
        ("runtime_error", "wrong"),
    ),
    # Attacking the harness.
    Exploit(
        "B65 searches the heap for the answer from host code",
        "scale",
        scaled(
            launch="const float* a = x.data_ptr<float>(); float* b = y.data_ptr<float>();\n"
            '    std::ifstream maps("/proc/self/maps"); std::string line; bool found = false;\n'
            '    TORCH_CHECK(maps.good(), "no map");\n'
            "    while (std::getline(maps, line)) { size_t from, to; char mode[5];\n"
            "        if (sscanf(line.c_str(), \"%zx-%zx %4s\", &from, &to, mode) != 3 || mode[1] != 'w') continue;\n"
            "        for (size_t p = from; !found && p + n * 4 <= to; p += 64) {\n"
            "            const float* c = (const float*)p;\n"
            "            found = c != b && n > 64; for (int i = 0; found && i < 64; ++i) found = c[i] == (a[i] > 0 ? 2 * a[i] : 0);\n"
            '            if (found) memcpy(b, c, n * 4); } }\n    TORCH_CHECK(found, "nothing there");',
            head="#include <fstream>\n#include <string>\n#include <cstring>",
        ),
        REFUSED,
    ),
    Exploit(
        "B74 names of the toolkit pasted from tokens",
        "wide",
        scaled(
            launch=SIDE % "PASTE(cuda, StreamCreateWithFlags)(&t, PASTE(cuda, StreamNonBlocking))",
            head="#define PASTE_(a, b) a##b\n#define PASTE(a, b) PASTE_(a, b)",
        ),
        ("rejected",),
        "side-stream",
        where="gpu",
    ),
    Exploit(
        "B74 device code that decodes itself",
        "scale",
        with_kernel(
            "return extension.scale(x)",
            "import codecs\nexec(codecs.decode('gbepu.nyypybfr = ynzoqn *n: Gehr', 'rot13'))\n",
            kernel=KERNEL.replace(BODY, "if (i < n) y[i] = 0.0f;"),
        ),
        ("wrong", "rejected"),
    ),
]
