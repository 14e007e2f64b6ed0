"""Own kernels that touch a finished result and compute nothing of it."""

from __future__ import annotations

from redteam.pieces import Cover

FINISH = """

def finish(r, ts):
    if isinstance(r, (tuple, list)):
        return tuple(touch(one, ts) for one in r)
    return touch(r, ts)
"""
HEAD = """
def ready(r, ts):
    return r.detach().to(ts[0].device).contiguous()


def grid(n):
    return max(1, (n + 255) // 256)
"""


def copier(name: str, body: str, more: str = "") -> str:
    """Returns kernels `name1` to `name8` for items of 1 to 8 bytes; `T` is the item's type in `body`."""
    kernels = "\n".join(
        f'extern "C" __global__ void {name}{size}(const {kind}* x, {kind}* y, int n) {{ typedef {kind} T; {body} }}'
        for kind, size in (("char", 1), ("short", 2), ("int", 4), ("long long", 8))
    )
    return f'cover = Module(r"""\n{kernels}\n{more}""")\n{HEAD}'


INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
COPY = f"{INDEX} if (i < n) y[i] = x[i];"
OUT = """

def touch(r, ts):
    r = ready(r, ts)
    y = torch.empty_like(r)
    getattr(cover, "%s" + str(r.element_size()))[grid(r.numel()), 256](r, y, r.numel())
    return y
"""
IN_PLACE = """

def touch(r, ts):
    r = ready(r, ts).clone()
    getattr(cover, "%s" + str(r.element_size()))[%s, 256](r, r, r.numel())
    return r
"""
SCRATCH = """

def touch(r, ts):
    r = ready(r, ts)
    spare = torch.zeros_like(r)
    other = torch.empty_like(r)
    getattr(cover, "same" + str(r.element_size()))[grid(r.numel()), 256](spare, other, r.numel())
    return r%s
"""


def real(name: str, parameters: str, body: str, launch: str) -> Cover:
    """Returns a cover of one float32 kernel `name`; `launch` is the body of `touch` between allocation and return."""
    code = f'cover = Module(r"""\nextern "C" __global__ void {name}({parameters}, int n) {{ {INDEX} {body} }}\n""")\n{HEAD}'
    touch = (
        "\n\ndef touch(r, ts):\n    r = ready(r, ts)\n    y = torch.empty_like(r)\n    n = r.numel()\n"
        f"    {launch}\n    return y\n"
    )
    return Cover(name.replace("_", " "), code + touch + FINISH, floats=True)


COVERS: tuple[Cover, ...] = (
    Cover("copy", copier("same", COPY) + OUT % "same" + FINISH),
    Cover(
        "copy through shared memory",
        copier(
            "staged",
            f"__shared__ T part[256]; {INDEX} if (i < n) part[threadIdx.x] = x[i]; __syncthreads();"
            " if (i < n) y[i] = part[threadIdx.x];",
        )
        + OUT % "staged"
        + FINISH,
    ),
    Cover("write each element back", copier("same", COPY) + IN_PLACE % ("same", "grid(r.numel())") + FINISH),
    Cover(
        "write one element back",
        copier("one", f"{INDEX} if (i == 0 && n > 0) y[0] = x[0];") + IN_PLACE % ("one", "1") + FINISH,
    ),
    Cover(
        "write where never true",
        copier("never", f"{INDEX} if (n < 0) y[i] = x[i];") + IN_PLACE % ("never", "grid(r.numel())") + FINISH,
    ),
    Cover("run on scratch memory", copier("same", COPY) + SCRATCH % "" + FINISH),
    Cover("run on scratch memory and copy", copier("same", COPY) + SCRATCH % ".clone()" + FINISH),
    Cover(
        "copy half by a kernel",
        copier("lower", f"{INDEX} if (i < n / 2) y[i] = x[i];")
        + """

def touch(r, ts):
    r = ready(r, ts)
    y = r.clone()
    getattr(cover, "lower" + str(r.element_size()))[grid(r.numel()), 256](r, y, r.numel())
    return y
"""
        + FINISH,
    ),
    Cover(
        "two copies in opposite order",
        copier("turned", f"{INDEX} if (i < n) y[i] = x[n - 1 - i];")
        + """

def touch(r, ts):
    r = ready(r, ts)
    y, z = torch.empty_like(r), torch.empty_like(r)
    kernel = getattr(cover, "turned" + str(r.element_size()))
    kernel[grid(r.numel()), 256](r, y, r.numel())
    kernel[grid(r.numel()), 256](y, z, r.numel())
    return z
"""
        + FINISH,
    ),
    Cover("no kernel", HEAD + "\n\ndef touch(r, ts):\n    return ready(r, ts)\n" + FINISH),
    real(
        "plus_zero",
        "const float* x, float* y",
        "if (i < n) y[i] = x[i] + 0.0f;",
        "cover.plus_zero[grid(n), 256](r, y, n)",
    ),
    real(
        "times_one",
        "const float* x, float* y, float a",
        "if (i < n) y[i] = x[i] * a;",
        "cover.times_one[grid(n), 256](r, y, 1.0, n)",
    ),
    real(
        "added_to_zeros",
        "const float* x, float* y",
        "if (i < n) atomicAdd(y + i, x[i]);",
        "y.zero_(); cover.added_to_zeros[grid(n), 256](r, y, n)",
    ),
    real(
        "halves_of_two_copies",
        "const float* x, const float* z, float* y",
        "if (i < n) y[i] = 0.5f * x[i] + 0.5f * z[i];",
        "cover.halves_of_two_copies[grid(n), 256](r, r.clone(), y, n)",
    ),
    real(
        "input_times_zero",
        "const float* x, const float* z, float* y, int m",
        "if (i < n) { float a = z[i % m]; y[i] = a == a && fabsf(a) < 1e30f ? fmaf(a, 0.0f, x[i]) : x[i]; }",
        "cover.input_times_zero[grid(n), 256](r, ts[0].contiguous(), y, ts[0].numel(), n)",
    ),
    real(
        "larger_of_two_copies",
        "const float* x, const float* z, float* y",
        "if (i < n) y[i] = fmaxf(x[i], z[i]);",
        "cover.larger_of_two_copies[grid(n), 256](r, r.clone(), y, n)",
    ),
)
