"""Elementwise chains and reductions along one dimension, of any nesting: activations, softmax, norms, losses, sums.

An expression is lowered to elementwise operators and reductions that all run along the same dimension. Without
reductions it becomes one flat kernel; with them, a kernel whose block (or thread) owns one row and takes one pass a
reduction. Computes in float32.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelwright.solutions.reading import Node, Reference, Unreadable
from kernelwright.solutions.schedule import Schedule

# Elementwise operators in CUDA; {0}, {1}, … are operands, {name} options.
_ELEMENTWISE = {
    "add": "({0} + {1})",
    "sub": "({0} - {1})",
    "mul": "({0} * {1})",
    "div": "({0} / {1})",
    "pow": "powf({0}, {1})",
    "neg": "(-{0})",
    "minimum": "fminf({0}, {1})",
    "maximum": "fmaxf({0}, {1})",
    "gt": "({0} > {1} ? 1.0f : 0.0f)",
    "ge": "({0} >= {1} ? 1.0f : 0.0f)",
    "lt": "({0} < {1} ? 1.0f : 0.0f)",
    "le": "({0} <= {1} ? 1.0f : 0.0f)",
    "where": "({0} != 0.0f ? {1} : {2})",
    "relu": "fmaxf({0}, 0.0f)",
    "relu6": "fminf(fmaxf({0}, 0.0f), 6.0f)",
    "sigmoid": "(1.0f / (1.0f + expf(-{0})))",
    "tanh": "tanhf({0})",
    "exp": "expf({0})",
    "log": "logf({0})",
    "sqrt": "sqrtf({0})",
    "rsqrt": "rsqrtf({0})",
    "abs": "fabsf({0})",
    "erf": "erff({0})",
    "sin": "sinf({0})",
    "cos": "cosf({0})",
    "square": "kw_square({0})",
    "reciprocal": "(1.0f / {0})",
    "floor": "floorf({0})",
    "ceil": "ceilf({0})",
    "sign": "kw_sign({0})",
    "log1p": "log1pf({0})",
    "expm1": "expm1f({0})",
    "silu": "kw_silu({0})",
    "selu": "kw_selu({0})",
    "mish": "kw_mish({0})",
    "softsign": "kw_softsign({0})",
    "hardsigmoid": "kw_hardsigmoid({0})",
    "hardswish": "kw_hardswish({0})",
    "logsigmoid": "kw_logsigmoid({0})",
    "tanhshrink": "kw_tanhshrink({0})",
    "gelu": "kw_gelu({0})",
    "gelu_tanh": "kw_gelu_tanh({0})",
    "elu": "kw_elu({0}, {alpha})",
    "celu": "kw_celu({0}, {alpha})",
    "leaky_relu": "kw_leaky_relu({0}, {negative_slope})",
    "hardtanh": "fminf(fmaxf({0}, {min_val}), {max_val})",
    "softplus": "kw_softplus({0}, {beta}, {threshold})",
}
_DEFAULTS = {
    "alpha": "1.0",
    "negative_slope": "0.01",
    "min_val": "-1.0",
    "max_val": "1.0",
    "beta": "1.0",
    "threshold": "20.0",
}
_HELPERS = {
    "kw_square": "return x * x;",
    "kw_sign": "return x > 0.0f ? 1.0f : (x < 0.0f ? -1.0f : 0.0f);",
    "kw_silu": "return x / (1.0f + expf(-x));",
    "kw_selu": "return 1.0507009873554805f * (x > 0.0f ? x : 1.6732632423543772f * expm1f(x));",
    "kw_mish": "return x * tanhf(x > 20.0f ? x : log1pf(expf(x)));",
    "kw_softsign": "return x / (1.0f + fabsf(x));",
    "kw_hardsigmoid": "return fminf(fmaxf(x / 6.0f + 0.5f, 0.0f), 1.0f);",
    "kw_hardswish": "return x * fminf(fmaxf(x + 3.0f, 0.0f), 6.0f) / 6.0f;",
    "kw_logsigmoid": "return fminf(x, 0.0f) - log1pf(expf(-fabsf(x)));",
    "kw_tanhshrink": "return x - tanhf(x);",
    "kw_gelu": "return 0.5f * x * (1.0f + erff(x * 0.7071067811865475f));",
    "kw_gelu_tanh": "return 0.5f * x * (1.0f + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));",
    "kw_elu": "return x > 0.0f ? x : a * expm1f(x);",
    "kw_celu": "return x > 0.0f ? x : a * expm1f(x / a);",
    "kw_leaky_relu": "return x > 0.0f ? x : a * x;",
    "kw_softplus": "return x * a > b ? x : log1pf(expf(x * a)) / a;",
}
_REDUCTIONS = {
    "sum": ("0.0f", "a + b"),
    "mean": ("0.0f", "a + b"),
    "prod": ("1.0f", "a * b"),
    "max": ("-INFINITY", "fmaxf(a, b)"),
    "min": ("INFINITY", "fminf(a, b)"),
}


@dataclass
class Program:
    """An expression on its way to a kernel: its tensors, its numbers, and its reductions in the order of need."""

    tensors: list[str] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    reductions: list[tuple[str, str]] = field(default_factory=list)
    """Kind and the CUDA text of what is reduced, for r0, r1, …"""
    dim: str | None = None
    keepdim: str = "False"
    helpers: set[str] = field(default_factory=set)
    known: dict[Node, str] = field(default_factory=dict)

    def number(self, text: str) -> str:
        if text in ("True", "False", "None") or text.startswith(("'", '"')):
            raise Unreadable(f"{text} where a number is needed")
        if text not in self.numbers:
            self.numbers.append(text)
        return f"s{self.numbers.index(text)}"

    def tensor(self, text: str) -> str:
        if text not in self.tensors:
            self.tensors.append(text)
        return f"x{self.tensors.index(text)}[at]"


def lower(node: Node) -> Node:
    """Composite operators in terms of elementwise ones and `reduce`."""
    args = tuple(lower(a) for a in node.args)
    options = dict(node.options)
    x = args[0] if args else node
    if node.op in ("amax", "amin"):
        return _reduce(node.op[1:], x, options)
    if node.op in _REDUCTIONS:
        return _reduce(node.op, x, options)
    if node.op in ("softmax", "log_softmax", "softmin"):
        return _softmax(node.op, x, options)
    if node.op == "logsumexp":
        peak = _reduce("max", x, options)
        return _bin("add", peak, Node("log", (_reduce("sum", Node("exp", (_bin("sub", x, peak),)), options),)))
    if node.op in ("norm", "normalize"):
        return _norm(node.op, x, options)
    if node.op in ("var", "std"):
        return _variance(node.op, x, options)
    if node.op in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        return _loss(node.op, args, options)
    if node.op == "clamp":
        return _clamp(x, options)
    if node.op == "gelu" and "tanh" in options.get("approximate", ""):
        return Node("gelu_tanh", (x,))
    if node.op == "gelu":
        return Node("gelu", (x,))
    return Node(node.op, args, node.text, node.options)


def _bin(op: str, a: Node, b: Node) -> Node:
    return Node(op, (a, b))


def _number(text: str) -> Node:
    return Node("number", text=text)


def _reduce(kind: str, x: Node, options: dict[str, str]) -> Node:
    kept = {k: options[k] for k in ("dim", "keepdim") if k in options}
    return Node("reduce", (x,), kind, tuple(sorted(kept.items())))


def _softmax(op: str, x: Node, options: dict[str, str]) -> Node:
    if op == "softmin":
        x = Node("neg", (x,))
    along = {"dim": options.get("dim", "-1"), "keepdim": "True"}
    shifted = _bin("sub", x, _reduce("max", x, along))
    total = _reduce("sum", Node("exp", (shifted,)), along)
    if op == "log_softmax":
        return _bin("sub", shifted, Node("log", (total,)))
    return _bin("div", Node("exp", (shifted,)), total)


def _norm(op: str, x: Node, options: dict[str, str]) -> Node:
    p = options.get("p", "2").strip("'\"")
    if op == "normalize":
        options = {"dim": options.get("dim", "1"), "keepdim": "True", "eps": options.get("eps", "1e-12")}
    if p in ("2", "2.0", "fro"):
        size = Node("sqrt", (_reduce("sum", Node("square", (x,)), options),))
    elif p in ("1", "1.0"):
        size = _reduce("sum", Node("abs", (x,)), options)
    else:
        raise Unreadable(f"no template for the norm of order {p}")
    return size if op == "norm" else _bin("div", x, _bin("maximum", size, _number(options["eps"])))


def _variance(op: str, x: Node, options: dict[str, str]) -> Node:
    if "correction" in options or options.get("unbiased") not in (None, "True", "False"):
        raise Unreadable(f"no template for {op} with these options")
    along = {"keepdim": "True", **({"dim": options["dim"]} if "dim" in options else {})}
    squares = Node("square", (_bin("sub", x, _reduce("mean", x, along)),))
    mean = _reduce("mean", squares, options)
    if options.get("unbiased") != "False":
        mean = _bin("mul", mean, Node("bessel"))
    return mean if op == "var" else Node("sqrt", (mean,))


def _loss(op: str, args: tuple[Node, ...], options: dict[str, str]) -> Node:
    reduction = options.get("reduction", "'mean'").strip("'\"")
    if reduction.startswith("self."):
        reduction = "mean"
    difference = _bin("sub", args[0], args[1])
    size = Node("abs", (difference,))
    if op == "mse_loss":
        value = Node("square", (difference,))
    elif op == "l1_loss":
        value = size
    else:
        edge = _number(options.get("beta" if op == "smooth_l1_loss" else "delta", "1.0"))
        half = _number("0.5")
        inner = _bin("mul", half, Node("square", (size,)))
        outer = _bin("sub", size, _bin("mul", half, edge))
        if op == "smooth_l1_loss":
            inner = _bin("div", inner, edge)
        else:
            outer = _bin("mul", edge, outer)
        value = Node("where", (_bin("lt", size, edge), inner, outer))
    if reduction == "none":
        return value
    if reduction not in ("mean", "sum"):
        raise Unreadable(f"no template for reduction={reduction}")
    return _reduce(reduction, value, {})


def _clamp(x: Node, options: dict[str, str]) -> Node:
    if options.get("min", "None") != "None":
        x = _bin("maximum", x, _number(options["min"]))
    if options.get("max", "None") != "None":
        x = _bin("minimum", x, _number(options["max"]))
    return x


def text_of(node: Node, program: Program) -> str:
    """The CUDA text of a lowered expression at one element; fills the program. Raises `Unreadable`."""
    if node.op in ("input", "tensor"):
        return program.tensor(node.text)
    if node.op == "number":
        return program.number(node.text)
    if node.op == "bessel":
        return "((float)n / (float)(n - 1))"
    if node.op == "reduce":
        return _reduction_text(node, program)
    template = _ELEMENTWISE.get(node.op)
    if template is None:
        raise Unreadable(f"no template for {node.op} within an expression")
    operands = [text_of(a, program) for a in node.args]
    named = {k: program.number(node.option(k) or v) for k, v in _DEFAULTS.items() if "{" + k + "}" in template}
    name = template.split("(")[0]
    if name in _HELPERS:
        program.helpers.add(name)
    return template.format(*operands, **named)


def _reduction_text(node: Node, program: Program) -> str:
    if node in program.known:
        return program.known[node]
    inner = text_of(node.args[0], program)
    dim = node.option("dim", "None")
    if program.dim not in (None, dim):
        raise Unreadable(f"reductions along different dimensions ({program.dim} and {dim})")
    program.dim = dim
    if node.option("keepdim", "False") != "False":
        program.keepdim = node.option("keepdim")
    program.reductions.append((node.text, inner))
    name = f"r{len(program.reductions) - 1}"
    program.known[node] = name
    return name


def per_element(node: Node) -> bool:
    """Whether a lowered expression has a value for each element of a row, rather than one a row."""
    if node.op in ("input", "tensor"):
        return True
    return node.op != "reduce" and any(per_element(a) for a in node.args)


def helper_text(program: Program) -> str:
    """Device functions of the operators in use."""
    lines = []
    for name in sorted(program.helpers):
        more = ", float a" if " a" in _HELPERS[name] or "* a" in _HELPERS[name] else ""
        more += ", float b" if "> b" in _HELPERS[name] else ""
        lines.append(f"__device__ __forceinline__ float {name}(float x{more}) {{ {_HELPERS[name]} }}")
    return "\n".join(lines)


def flat_kernel(text: str, program: Program, plan: Schedule) -> tuple[str, str, str]:
    """CUDA text, host declaration and Python body for an expression without reductions."""
    tensors, numbers = range(len(program.tensors)), range(len(program.numbers))
    pointers = "".join(f"const float* __restrict__ x{i}, " for i in tensors)
    scalars = "".join(f", float s{i}" for i in numbers)
    host = "".join(f"torch::Tensor x{i}, " for i in tensors) + "torch::Tensor y"
    host += "".join(f", double s{i}" for i in numbers)
    passed = "".join(f"x{i}.data_ptr<float>(), " for i in tensors) + "y.data_ptr<float>(), n"
    passed += "".join(f", (float)s{i}" for i in numbers)
    cuda = f"""
{helper_text(program)}
__global__ void elementwise_kernel({pointers}float* __restrict__ y, int64_t n{scalars}) {{
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < n; at += stride) {{
        y[at] = {text};
    }}
}}

void elementwise({host}) {{
    int64_t n = y.numel();
    if (n == 0) return;
    int64_t blocks = (n + {plan.block * plan.per_thread} - 1) / {plan.block * plan.per_thread};
    elementwise_kernel<<<(unsigned)blocks, {plan.block}>>>({passed});
}}
"""
    given = "".join(f"float({n}), " for n in program.numbers)
    body = f"""
{operands(program)}
y = torch.empty(xs[0].shape, dtype=torch.float32, device=xs[0].device)
extension.elementwise(*xs, y, {given})
return y.to(dtype)
"""
    return cuda, f"void elementwise({host});", body


def operands(program: Program) -> str:
    """Python lines that bring the tensors to one shape, to float32 and to row-major order."""
    names = ", ".join(program.tensors)
    several = len(program.tensors) > 1
    listed = f"torch.broadcast_tensors({names})" if several else f"[{names}]"
    first = f"{program.tensors[0]}.dtype"
    lines = [f"dtype = {first} if {first}.is_floating_point else torch.float32"]
    return "\n".join([*lines, f"xs = [x.to(torch.float32).contiguous() for x in {listed}]"])


def row_kernel(root: Node, text: str, program: Program, plan: Schedule) -> tuple[str, str, str]:
    """CUDA text, host declaration and Python body for an expression with reductions."""
    tensors, numbers = range(len(program.tensors)), range(len(program.numbers))
    pointers = "".join(f"const float* __restrict__ x{i}, " for i in tensors)
    scalars = "".join(f", float s{i}" for i in numbers)
    each = per_element(root)
    passes = "\n".join(_pass(i, kind, inner) for i, (kind, inner) in enumerate(program.reductions))
    if each:
        last = f"""    for (int64_t j = first; j < n; j += step) {{
        int64_t at = base + j * inner;
        y[at] = {text};
    }}"""
    else:
        last = f"    if (!BLOCK || threadIdx.x == 0) y[row] = {text};"
    combines = "\n".join(_combine(kind) for kind in dict.fromkeys(_family(k) for k, _ in program.reductions))
    host = (
        "".join(f"torch::Tensor x{i}, " for i in tensors) + "torch::Tensor y, int64_t outer, int64_t n, int64_t inner"
    )
    host += "".join(f", double s{i}" for i in numbers)
    passed = "".join(f"x{i}.data_ptr<float>(), " for i in tensors) + "y.data_ptr<float>(), rows, n, inner"
    passed += "".join(f", (float)s{i}" for i in numbers)
    threaded = f"""    if (inner >= 32) {{
        rowwise_kernel<false><<<(unsigned)((rows + {plan.block} - 1) / {plan.block}), {plan.block}>>>({passed});
        return;
    }}
"""
    cuda = f"""
{helper_text(program)}
{combines}
// A row is what is reduced: n elements, `inner` apart. BLOCK: a block owns a row; else a thread does, and neighbouring
// threads read neighbouring addresses.
template <bool BLOCK>
__global__ void rowwise_kernel({pointers}float* __restrict__ y, int64_t rows, int64_t n, int64_t inner{scalars}) {{
    __shared__ float part[32];
    int64_t row = BLOCK ? (int64_t)blockIdx.x : (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    int64_t base = (row / inner) * n * inner + row % inner;
    int64_t first = BLOCK ? threadIdx.x : 0, step = BLOCK ? blockDim.x : 1;
{passes}
{last}
}}

void rowwise({host}) {{
    int64_t rows = outer * inner;
    if (rows == 0) return;
{threaded if plan.thread_rows else ""}    rowwise_kernel<true><<<(unsigned)rows, {plan.block}>>>({passed});
}}
"""
    return cuda, f"void rowwise({host});", _row_body(program, each)


def _family(kind: str) -> str:
    return "sum" if kind == "mean" else kind


def _pass(index: int, kind: str, inner: str) -> str:
    family = _family(kind)
    initial, combine = _REDUCTIONS[kind]
    step = combine.replace("a ", f"r{index} ").replace(" b", " v").replace("(a,", f"(r{index},").replace(" b)", " v)")
    lines = [
        f"    float r{index} = {initial};",
        "    for (int64_t j = first; j < n; j += step) {",
        "        int64_t at = base + j * inner;",
        f"        float v = {inner};",
        f"        r{index} = {step};",
        "    }",
        f"    if (BLOCK) r{index} = block_{family}(r{index}, part);",
    ]
    if kind == "mean":
        lines.append(f"    r{index} /= (float)n;")
    return "\n".join(lines)


def _combine(family: str) -> str:
    """Reduction over a block: shuffles within warps, shared memory between them; every thread gets the result."""
    initial, combine = _REDUCTIONS[family]
    return f"""
__device__ __forceinline__ float block_{family}(float a, float* part) {{
    for (int offset = 16; offset > 0; offset >>= 1) {{
        float b = __shfl_xor_sync(0xffffffffu, a, offset);
        a = {combine};
    }}
    __syncthreads();
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = a;
    __syncthreads();
    a = {initial};
    for (int warp = 0; warp < (int)(blockDim.x >> 5); ++warp) {{
        float b = part[warp];
        a = {combine};
    }}
    return a;
}}"""


def _row_body(program: Program, each: bool) -> str:
    dim = program.dim or "None"
    whole = dim == "None"
    given = "".join(f"float({n}), " for n in program.numbers)
    lines = [operands(program), "shape = list(xs[0].shape)"]
    if whole:
        lines.append("outer, n, inner = 1, xs[0].numel(), 1")
    else:
        lines += [
            f"dim = {dim}",
            "dims = sorted(d % len(shape) for d in (dim if isinstance(dim, (tuple, list)) else [dim]))",
            "low, high = dims[0], dims[-1] + 1",
            "assert dims == list(range(low, high)), 'the reduced dimensions must lie side by side'",
            "outer, n, inner = (int(torch.Size(s).numel()) for s in (shape[:low], shape[low:high], shape[high:]))",
        ]
    if each:
        lines.append("y = torch.empty(shape, dtype=torch.float32, device=xs[0].device)")
    elif whole:
        kept = "[1] * len(shape)" if program.keepdim == "True" else "[]"
        lines.append(f"y = torch.empty({kept}, dtype=torch.float32, device=xs[0].device)")
    else:
        lines.append(f"middle = [1] * len(dims) if {program.keepdim} else []")
        size = "shape[:low] + middle + shape[high:]"
        lines.append(f"y = torch.empty({size}, dtype=torch.float32, device=xs[0].device)")
    lines += [f"extension.rowwise(*xs, y, outer, n, inner, {given})", "return y.to(dtype)"]
    return "\n".join(lines)


def generate(reference: Reference, node: Node, plan: Schedule) -> tuple[str, str, str]:
    """CUDA text, host declaration and Python body of an expression. Raises `Unreadable`."""
    root = lower(node)
    program = Program()
    text = text_of(root, program)
    if not program.tensors:
        raise Unreadable("forward does not use its inputs")
    if not program.reductions:
        return flat_kernel(text, program, plan)
    if per_element(root) and program.dim != "None" and program.keepdim == "False":
        raise Unreadable("a reduction without keepdim within an expression")
    return row_kernel(root, text, program, plan)
