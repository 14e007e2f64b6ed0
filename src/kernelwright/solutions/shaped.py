"""Operators with a structure of their own: products, convolutions, pooling, scans, normalisation, arg-reductions.

Each function takes the node that is the whole of forward and returns CUDA text, the host function's declaration and the
Python body, or raises `Unreadable`. Convolution and pooling are written once in three dimensions; one and two are
three with extents of one. All compute in float32.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.solutions import rows
from kernelwright.solutions.reading import Node, Reference, Unreadable
from kernelwright.solutions.schedule import Schedule

Generated = tuple[str, str, str]


def matmul(reference: Reference, node: Node, plan: Schedule) -> Generated:
    """A product of matrices, batched by broadcasting; operands may be transposed; optional bias for linear layers."""
    if node.op == "linear_module":
        left, right, bias = _plain(node.args[0]), f"{node.text}.weight.transpose(-1, -2)", f"{node.text}.bias"
    elif node.op == "linear":
        left, right = _plain(node.args[0]), f"{_plain(node.args[1])}.transpose(-1, -2)"
        bias = _plain(node.args[2]) if len(node.args) > 2 else "None"
    else:
        left, right, bias = _operand(node.args[0]), _operand(node.args[1]), "None"
    tile = plan.tile
    cuda = f"""
#define TILE {tile}
__global__ void matmul_kernel(const float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ bias,
                              float* __restrict__ y, int64_t m, int64_t n, int64_t k) {{
    __shared__ float left[TILE][TILE + 1], right[TILE][TILE + 1];
    int64_t row = (int64_t)blockIdx.y * TILE + threadIdx.y, column = (int64_t)blockIdx.x * TILE + threadIdx.x;
    a += (int64_t)blockIdx.z * m * k;
    b += (int64_t)blockIdx.z * k * n;
    float sum = 0.0f;
    for (int64_t start = 0; start < k; start += TILE) {{
        int64_t ka = start + threadIdx.x, kb = start + threadIdx.y;
        left[threadIdx.y][threadIdx.x] = row < m && ka < k ? a[row * k + ka] : 0.0f;
        right[threadIdx.y][threadIdx.x] = kb < k && column < n ? b[kb * n + column] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; ++i) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }}
    if (row < m && column < n) y[(int64_t)blockIdx.z * m * n + row * n + column] = sum + (bias ? bias[column] : 0.0f);
}}

void matmul(torch::Tensor a, torch::Tensor b, torch::Tensor bias, torch::Tensor y) {{
    int64_t batch = a.size(0), m = a.size(1), k = a.size(2), n = b.size(2);
    if (y.numel() == 0) return;
    dim3 grid((unsigned)((n + TILE - 1) / TILE), (unsigned)((m + TILE - 1) / TILE), (unsigned)batch);
    matmul_kernel<<<grid, dim3(TILE, TILE)>>>(a.data_ptr<float>(), b.data_ptr<float>(),
        bias.numel() ? bias.data_ptr<float>() : nullptr, y.data_ptr<float>(), m, n, k);
}}
"""
    body = f"""
a, b, bias = {left}, {right}, {bias}
dtype = a.dtype
shape = list(a.shape[:-1]) if a.dim() > 1 else []
if b.dim() > 1:
    shape.append(b.shape[-1])
a = a.unsqueeze(0) if a.dim() == 1 else a
b = b.unsqueeze(-1) if b.dim() == 1 else b
if b.dim() == 2:
    a, b = a.reshape(1, -1, a.shape[-1]), b.unsqueeze(0)
else:
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = list(batch) + shape[-2:] if len(shape) > 1 else shape
    a = a.expand(*batch, *a.shape[-2:]).reshape(-1, *a.shape[-2:])
    b = b.expand(*batch, *b.shape[-2:]).reshape(-1, *b.shape[-2:])
a, b = a.to(torch.float32).contiguous(), b.to(torch.float32).contiguous()
bias = torch.empty(0, device=a.device) if bias is None else bias.to(torch.float32).contiguous()
y = torch.empty(a.shape[0], a.shape[1], b.shape[2], dtype=torch.float32, device=a.device)
extension.matmul(a, b, bias, y)
return y.reshape(shape).to(dtype)
"""
    return cuda, "void matmul(torch::Tensor a, torch::Tensor b, torch::Tensor bias, torch::Tensor y);", body


def _plain(node: Node) -> str:
    if node.op not in ("input", "tensor"):
        raise Unreadable(f"no template for {node.op} before a structured operator")
    return node.text


def _operand(node: Node) -> str:
    if node.op == "transpose":
        return f"{_plain(node.args[0])}.transpose(-1, -2)"
    return _plain(node)


_GEOMETRY = """
def three(value, rank, fill):
    value = [value] * rank if isinstance(value, int) else list(value)
    return [fill] * (3 - rank) + value
"""


def convolution(reference: Reference, node: Node, plan: Schedule) -> Generated:
    """nn.Conv1d to nn.Conv3d with stride, padding, dilation, groups and bias: one thread an output."""
    cuda = _conv_cuda(
        plan,
        "convolution",
        """
        for (int c = 0; c < group_in; ++c)
            for (int kd = 0; kd < k0; ++kd) {
                int d = od * stride0 - pad0 + kd * dil0;
                if (d < 0 || d >= d0) continue;
                for (int kh = 0; kh < k1; ++kh) {
                    int h = oh * stride1 - pad1 + kh * dil1;
                    if (h < 0 || h >= d1) continue;
                    for (int kw = 0; kw < k2; ++kw) {
                        int q = ow * stride2 - pad2 + kw * dil2;
                        if (q < 0 || q >= d2) continue;
                        sum += x[(((batch * channels + group * group_in + c) * d0 + d) * d1 + h) * d2 + q] *
                               w[(((out * group_in + c) * k0 + kd) * k1 + kh) * k2 + kw];
                    }
                }
            }""",
    )
    body = _conv_body(
        node,
        "extents = zip(x.shape[2:], pad, dil, w.shape[2:], stride)\n"
        "size = [(i + 2 * p - l * (k - 1) - 1) // s + 1 for i, p, l, k, s in extents]",
        "w.shape[0]",
        "convolution",
    )
    return cuda, _conv_declaration("convolution"), body


def transposed(reference: Reference, node: Node, plan: Schedule) -> Generated:
    """nn.ConvTranspose1d to nn.ConvTranspose3d: each output gathers the inputs that reach it."""
    cuda = _conv_cuda(
        plan,
        "transposed",
        """
        for (int kd = 0; kd < k0; ++kd) {
            int d = od + pad0 - kd * dil0;
            if (d < 0 || d % stride0 || (d /= stride0) >= d0) continue;
            for (int kh = 0; kh < k1; ++kh) {
                int h = oh + pad1 - kh * dil1;
                if (h < 0 || h % stride1 || (h /= stride1) >= d1) continue;
                for (int kw = 0; kw < k2; ++kw) {
                    int q = ow + pad2 - kw * dil2;
                    if (q < 0 || q % stride2 || (q /= stride2) >= d2) continue;
                    for (int c = 0; c < group_in; ++c)
                        sum += x[(((batch * channels + group * group_in + c) * d0 + d) * d1 + h) * d2 + q] *
                               w[((((group * group_in + c) * group_out + out % group_out) * k0 + kd) * k1 + kh) * k2 +
                                 kw];
                }
            }
        }""",
    )
    body = _conv_body(
        node,
        "more = three(layer.output_padding, rank, 0)\n"
        "size = [(i - 1) * s - 2 * p + l * (k - 1) + o + 1"
        " for i, s, p, l, k, o in zip(x.shape[2:], stride, pad, dil, w.shape[2:], more)]",
        "w.shape[1] * layer.groups",
        "transposed",
    )
    return cuda, _conv_declaration("transposed"), body


def _conv_declaration(name: str) -> str:
    sizes = ", ".join(f"int {n}{i}" for n in ("stride", "pad", "dil") for i in range(3))
    return f"void {name}(torch::Tensor x, torch::Tensor w, torch::Tensor bias, torch::Tensor y, int groups, {sizes});"


def _conv_cuda(plan: Schedule, name: str, loops: str) -> str:
    sizes = ", ".join(f"int {n}{i}" for n in ("stride", "pad", "dil") for i in range(3))
    extents = ", ".join(f"int {n}{i}" for n in ("d", "k", "o") for i in range(3))
    passed = ", ".join(f"{n}{i}" for n in ("stride", "pad", "dil") for i in range(3))
    shapes = ", ".join(f"(int){t}.size({i + 2})" for t in ("x", "w", "y") for i in range(3))
    return f"""
__global__ void {name}_kernel(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias,
                              float* __restrict__ y, int64_t total, int channels, int outputs, int groups,
                              {extents}, {sizes}) {{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= total) return;
    int64_t rest = at;
    int ow = rest % o2; rest /= o2;
    int oh = rest % o1; rest /= o1;
    int od = rest % o0; rest /= o0;
    int out = rest % outputs;
    int64_t batch = rest / outputs;
    int group_out = outputs / groups, group_in = channels / groups, group = out / group_out;
    float sum = bias ? bias[out] : 0.0f;
{loops}
    y[at] = sum;
}}

void {name}(torch::Tensor x, torch::Tensor w, torch::Tensor bias, torch::Tensor y, int groups, {sizes}) {{
    int64_t total = y.numel();
    if (total == 0) return;
    {name}_kernel<<<(unsigned)((total + {plan.block} - 1) / {plan.block}), {plan.block}>>>(
        x.data_ptr<float>(), w.data_ptr<float>(), bias.numel() ? bias.data_ptr<float>() : nullptr, y.data_ptr<float>(),
        total, (int)x.size(1), (int)y.size(1), groups, {shapes}, {passed});
}}
"""


def _conv_body(node: Node, size: str, outputs: str, name: str) -> str:
    return f"""
{_GEOMETRY}
x, layer = {_plain(node.args[0])}, {node.text}
assert layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
dtype, rank = x.dtype, layer.weight.dim() - 2
batched = x.dim() == rank + 2
x = x if batched else x.unsqueeze(0)
w = layer.weight
x = x.reshape(*x.shape[:2], *[1] * (3 - rank), *x.shape[2:]).to(torch.float32).contiguous()
w = w.reshape(*w.shape[:2], *[1] * (3 - rank), *w.shape[2:]).to(torch.float32).contiguous()
bias = torch.empty(0, device=x.device) if layer.bias is None else layer.bias.to(torch.float32).contiguous()
stride, pad, dil = three(layer.stride, rank, 1), three(layer.padding, rank, 0), three(layer.dilation, rank, 1)
{size}
y = torch.empty(x.shape[0], {outputs}, *size, dtype=torch.float32, device=x.device)
extension.{name}(x, w, bias, y, layer.groups, *stride, *pad, *dil)
y = y.reshape(y.shape[0], y.shape[1], *y.shape[5 - rank:]).to(dtype)
return y if batched else y.squeeze(0)
"""


def pooling(reference: Reference, node: Node, plan: Schedule) -> Generated:
    """nn.MaxPool and nn.AvgPool in one to three dimensions: one thread an output."""
    largest = node.op == "maxpool"
    start, step = ("-INFINITY", "acc = fmaxf(acc, v) + (v != v ? v : 0.0f);") if largest else ("0.0f", "acc += v;")
    sizes = ", ".join(f"int {n}{i}" for n in ("k", "stride", "pad", "dil") for i in range(3))
    passed = ", ".join(f"{n}{i}" for n in ("k", "stride", "pad", "dil") for i in range(3))
    end = "acc" if largest else "acc / (divisor > 0 ? divisor : (whole ? window : inside))"
    cuda = f"""
__global__ void pool_kernel(const float* __restrict__ x, float* __restrict__ y, int64_t total, int d0, int d1, int d2,
                            int o0, int o1, int o2, int whole, int divisor, {sizes}) {{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= total) return;
    int64_t rest = at;
    int ow = rest % o2; rest /= o2;
    int oh = rest % o1; rest /= o1;
    int od = rest % o0; rest /= o0;
    const float* plane = x + rest * d0 * d1 * d2;
    float acc = {start};
    int inside = 0, window = 0;
    for (int a = 0; a < k0; ++a)
        for (int b = 0; b < k1; ++b)
            for (int c = 0; c < k2; ++c) {{
                int d = od * stride0 - pad0 + a * dil0, h = oh * stride1 - pad1 + b * dil1;
                int q = ow * stride2 - pad2 + c * dil2;
                // An average that counts padding does not count what lies beyond it (ceil_mode).
                if (d < d0 + pad0 && h < d1 + pad1 && q < d2 + pad2) ++window;
                if (d < 0 || d >= d0 || h < 0 || h >= d1 || q < 0 || q >= d2) continue;
                float v = plane[((int64_t)d * d1 + h) * d2 + q];
                ++inside;
                {step}
            }}
    y[at] = {end};
}}

void pool(torch::Tensor x, torch::Tensor y, int whole, int divisor, {sizes}) {{
    int64_t total = y.numel();
    if (total == 0) return;
    pool_kernel<<<(unsigned)((total + {plan.block} - 1) / {plan.block}), {plan.block}>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), total, (int)x.size(1), (int)x.size(2), (int)x.size(3),
        (int)y.size(1), (int)y.size(2), (int)y.size(3), whole, divisor, {passed});
}}
"""
    kind = reference.modules[node.text.removeprefix("self.")][0]
    rank = int(kind[-2])
    body = f"""
{_GEOMETRY}
x, layer, rank = {_plain(node.args[0])}, {node.text}, {rank}
assert not getattr(layer, "return_indices", False)
dtype, lead = x.dtype, x.shape[:-rank]
whole, divisor = int(getattr(layer, "count_include_pad", True)), getattr(layer, "divisor_override", None) or 0
ks = three(layer.kernel_size, rank, 1)
stride = three(layer.kernel_size if layer.stride is None else layer.stride, rank, 1)
pad, dil = three(layer.padding, rank, 0), three(getattr(layer, "dilation", 1), rank, 1)
x = x.reshape(-1, *[1] * (3 - rank), *x.shape[-rank:]).to(torch.float32).contiguous()
size = []
for i, p, l, k, s in zip(x.shape[1:], pad, dil, ks, stride):
    reach = i + 2 * p - l * (k - 1) - 1
    o = (reach + (s - 1 if layer.ceil_mode else 0)) // s + 1
    size.append(o - 1 if layer.ceil_mode and (o - 1) * s >= i + p else o)
y = torch.empty(x.shape[0], *size, dtype=torch.float32, device=x.device)
extension.pool(x, y, whole, divisor, *ks, *stride, *pad, *dil)
return y.reshape(*lead, *size[3 - rank:]).to(dtype)
"""
    return cuda, f"void pool(torch::Tensor x, torch::Tensor y, int whole, int divisor, {sizes});", body


def scan(reference: Reference, node: Node, plan: Schedule) -> Generated:
    """cumsum and cumprod along a dimension, also from the end (flip, scan, flip), of an elementwise expression."""
    reverse = False
    if node.op == "flip":
        inner = node.args[0]
        if inner.op not in ("cumsum", "cumprod") or inner.args[0].op != "flip":
            raise Unreadable("no template for flip")
        reverse, node = True, Node(inner.op, inner.args[0].args, options=inner.options)
    program = rows.Program()
    text = rows.text_of(rows.lower(node.args[0]), program)
    if program.reductions:
        raise Unreadable("no template for a scan of a reduction")
    start, op = ("0.0f", "+") if node.op == "cumsum" else ("1.0f", "*")
    pointers = "".join(f"const float* __restrict__ x{i}, " for i in range(len(program.tensors)))
    scalars = "".join(f", float s{i}" for i in range(len(program.numbers)))
    host = "".join(f"torch::Tensor x{i}, " for i in range(len(program.tensors)))
    host += "torch::Tensor y, int64_t outer, int64_t n, int64_t inner"
    host += "".join(f", double s{i}" for i in range(len(program.numbers)))
    passed = "".join(f"x{i}.data_ptr<float>(), " for i in range(len(program.tensors)))
    passed += "y.data_ptr<float>(), n, inner" + "".join(f", (float)s{i}" for i in range(len(program.numbers)))
    place = "(n - 1 - j)" if reverse else "j"
    cuda = f"""
{rows.helper_text(program)}
// A block owns a row and goes along it in pieces of its own width: a scan of the piece by shuffles, then of the warps'
// totals, on top of what came before.
__global__ void scan_kernel({pointers}float* __restrict__ y, int64_t n, int64_t inner{scalars}) {{
    __shared__ float totals[32];
    int64_t row = blockIdx.x, base = (row / inner) * n * inner + row % inner;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    float before = {start};
    for (int64_t piece = 0; piece < n; piece += blockDim.x) {{
        int64_t j = piece + threadIdx.x;
        int64_t at = base + {place} * inner;
        float v = {start};
        if (j < n) v = {text};
        for (int offset = 1; offset < 32; offset <<= 1) {{
            float other = __shfl_up_sync(0xffffffffu, v, offset);
            if (lane >= offset) v = other {op} v;
        }}
        if (lane == 31) totals[warp] = v;
        __syncthreads();
        float carry = before, all = before;
        for (int i = 0; i < warps; ++i) {{
            if (i < warp) carry = carry {op} totals[i];
            all = all {op} totals[i];
        }}
        if (j < n) y[at] = carry {op} v;
        before = all;
        __syncthreads();
    }}
}}

void scan({host}) {{
    int64_t rows = outer * inner;
    if (rows == 0 || n == 0) return;
    scan_kernel<<<(unsigned)rows, {plan.block}>>>({passed});
}}
"""
    given = "".join(f"float({n}), " for n in program.numbers)
    body = f"""
{rows.operands(program)}
shape = list(xs[0].shape)
dim = ({node.option("dim", "0")})
dim = (dim[0] if isinstance(dim, (tuple, list)) else dim) % len(shape)
outer, inner = int(torch.Size(shape[:dim]).numel()), int(torch.Size(shape[dim + 1:]).numel())
y = torch.empty(shape, dtype=torch.float32, device=xs[0].device)
extension.scan(*xs, y, outer, shape[dim], inner, {given})
return y.to(dtype)
"""
    return cuda, f"void scan({host});", body


def argument(reference: Reference, node: Node, plan: Schedule) -> Generated:
    """argmax and argmin along a dimension, the first of equal values winning."""
    better = ">" if node.op == "argmax" else "<"
    cuda = f"""
__global__ void argument_kernel(const float* __restrict__ x, int64_t* __restrict__ y, int64_t n, int64_t inner) {{
    __shared__ float values[{plan.block}];
    __shared__ int64_t places[{plan.block}];
    int64_t row = blockIdx.x, base = (row / inner) * n * inner + row % inner;
    float best = 0.0f;
    int64_t place = -1;
    for (int64_t j = threadIdx.x; j < n; j += blockDim.x) {{
        float v = x[base + j * inner];
        if (place < 0 || v {better} best || (v != v && best == best)) {{ best = v; place = j; }}
    }}
    values[threadIdx.x] = best;
    places[threadIdx.x] = place;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half >>= 1) {{
        if (threadIdx.x < half) {{
            float v = values[threadIdx.x + half], w = values[threadIdx.x];
            int64_t p = places[threadIdx.x + half], q = places[threadIdx.x];
            bool nan = v != v, known = w != w;
            bool equal = v == w || (nan && known);
            bool wins = p >= 0 && (q < 0 || (nan && !known) || (!known && v {better} w) || (equal && p < q));
            if (wins) {{ values[threadIdx.x] = v; places[threadIdx.x] = p; }}
        }}
        __syncthreads();
    }}
    if (threadIdx.x == 0) y[row] = places[0];
}}

void argument(torch::Tensor x, torch::Tensor y, int64_t outer, int64_t n, int64_t inner) {{
    if (outer * inner == 0) return;
    argument_kernel<<<(unsigned)(outer * inner), {plan.block}>>>(x.data_ptr<float>(), y.data_ptr<int64_t>(), n, inner);
}}
"""
    dim = node.option("dim", "None")
    body = f"""
a, dim, keep = {_plain(node.args[0])}, {dim}, {node.option("keepdim", "False")}
shape = list(a.shape)
a = a.to(torch.float32).contiguous()
low, high = (0, len(shape)) if dim is None else (dim % len(shape), dim % len(shape) + 1)
outer, n, inner = (int(torch.Size(s).numel()) for s in (shape[:low], shape[low:high], shape[high:]))
y = torch.empty(shape[:low] + [1] * (high - low if keep else 0) + shape[high:], dtype=torch.int64, device=a.device)
extension.argument(a, y, outer, n, inner)
return y
"""
    return cuda, "void argument(torch::Tensor x, torch::Tensor y, int64_t outer, int64_t n, int64_t inner);", body


def _norm_cuda(plan: Schedule) -> str:
    return f"""
__device__ __forceinline__ float block_total(float a, float* part) {{
    for (int offset = 16; offset > 0; offset >>= 1) a += __shfl_xor_sync(0xffffffffu, a, offset);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = a;
    __syncthreads();
    a = 0.0f;
    for (int warp = 0; warp < (int)(blockDim.x >> 5); ++warp) a += part[warp];
    return a;
}}

// Channel of element j of a row: (row % groups) * channels + j / spatial. Two passes: mean, then squares around it.
__global__ void normalise_kernel(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ b,
                                 const float* __restrict__ given, float* __restrict__ y, int64_t n, int groups,
                                 int channels, int64_t spatial, int centre, float eps) {{
    __shared__ float part[32];
    const float* in = x + (int64_t)blockIdx.x * n;
    float mean = 0.0f, scale;
    int row = blockIdx.x % groups;
    if (given) {{
        mean = given[row];
        scale = rsqrtf(given[groups + row] + eps);
    }} else {{
        float sum = 0.0f;
        if (centre) {{
            for (int64_t j = threadIdx.x; j < n; j += blockDim.x) sum += in[j];
            mean = block_total(sum, part) / (float)n;
        }}
        sum = 0.0f;
        for (int64_t j = threadIdx.x; j < n; j += blockDim.x) {{
            float v = in[j] - mean;
            sum += v * v;
        }}
        scale = rsqrtf(block_total(sum, part) / (float)n + eps);
    }}
    for (int64_t j = threadIdx.x; j < n; j += blockDim.x) {{
        int64_t c = (int64_t)row * channels + j / spatial;
        float v = (in[j] - mean) * scale;
        y[(int64_t)blockIdx.x * n + j] = v * (w ? w[c] : 1.0f) + (b ? b[c] : 0.0f);
    }}
}}

void normalise(torch::Tensor x, torch::Tensor w, torch::Tensor b, torch::Tensor given, torch::Tensor y, int64_t rows,
               int groups, int channels, int64_t spatial, int centre, double eps) {{
    if (x.numel() == 0) return;
    normalise_kernel<<<(unsigned)rows, {plan.block}>>>(x.data_ptr<float>(), w.numel() ? w.data_ptr<float>() : nullptr,
        b.numel() ? b.data_ptr<float>() : nullptr, given.numel() ? given.data_ptr<float>() : nullptr,
        y.data_ptr<float>(), x.numel() / rows, groups, channels, spatial, centre, (float)eps);
}}
"""


# How rows are brought together, by layer: `rows` of equal length, and the channel of each element (see the kernel).
_NORM_WAYS = {
    "batchnorm": """
spatial = a.numel() // (a.shape[0] * a.shape[1])
moved = a.transpose(0, 1).contiguous()
rows, groups, channels, per = a.shape[1], a.shape[1], 1, a.shape[0] * spatial
if not layer.training and layer.running_mean is not None:
    given = torch.cat([layer.running_mean, layer.running_var]).to(torch.float32).contiguous()
""",
    "instancenorm": """
assert layer.training or not layer.track_running_stats
rows, groups, channels, per = a.shape[0] * a.shape[1], a.shape[1], 1, a.numel() // (a.shape[0] * a.shape[1])
""",
    "groupnorm": """
groups, channels = layer.num_groups, a.shape[1] // layer.num_groups
rows, per = a.shape[0] * groups, a.numel() // (a.shape[0] * a.shape[1])
""",
    "layernorm": """
width = int(torch.Size(layer.normalized_shape).numel())
rows, groups, channels, per = a.numel() // width, 1, width, 1
""",
}


def normalisation(reference: Reference, node: Node, plan: Schedule) -> Generated:
    """BatchNorm, InstanceNorm, GroupNorm, LayerNorm and RMSNorm layers: rows are brought together, then normalised."""
    cuda = _norm_cuda(plan)
    declaration = (
        "void normalise(torch::Tensor x, torch::Tensor w, torch::Tensor b, torch::Tensor given, torch::Tensor y, "
        "int64_t rows, int groups, int channels, int64_t spatial, int centre, double eps);"
    )
    way = _NORM_WAYS["layernorm" if node.op == "rmsnorm" else node.op]
    centre = "0" if node.op == "rmsnorm" else "1"
    eps = "layer.eps if layer.eps is not None else torch.finfo(a.dtype).eps"
    back = ".reshape(moved.shape).transpose(0, 1).contiguous()" if node.op == "batchnorm" else ""
    body = f"""
a, layer = {_plain(node.args[0])}, {node.text}
dtype, eps = a.dtype, {eps}
a = a.to(torch.float32).contiguous()
empty = torch.empty(0, device=a.device)
w, b = getattr(layer, "weight", None), getattr(layer, "bias", None)
w = empty if w is None else w.to(torch.float32).reshape(-1).contiguous()
b = empty if b is None else b.to(torch.float32).reshape(-1).contiguous()
moved, given = a, empty
{way.strip()}
y = torch.empty(moved.shape, dtype=torch.float32, device=a.device)
extension.normalise(moved, w, b, given, y, rows, groups, channels, per, {centre}, eps)
return y{back}.to(dtype)
"""
    return cuda, declaration, body


SHAPED: dict[str, Callable[[Reference, Node, Schedule], Generated]] = {
    "matmul": matmul,
    "mm": matmul,
    "bmm": matmul,
    "linear": matmul,
    "linear_module": matmul,
    "conv": convolution,
    "convtranspose": transposed,
    "maxpool": pooling,
    "avgpool": pooling,
    "cumsum": scan,
    "cumprod": scan,
    "flip": scan,
    "argmax": argument,
    "argmin": argument,
    **dict.fromkeys(("batchnorm", "instancenorm", "groupnorm", "layernorm", "rmsnorm"), normalisation),
}
"""Templates for a forward that is one of these operators, by the operator's name."""
