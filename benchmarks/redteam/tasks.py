"""Tasks of our own on which attacks are made: small ones of many kinds, and one whose declared size is large."""

from __future__ import annotations

from redteam.pieces import AttackTask

INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"


def one_thread_each(arguments: str, body: str) -> str:
    """Returns a kernel `honest` with one thread for each of `n` items; `body` uses `i`."""
    return f'extern "C" __global__ void honest({arguments}, int n) {{\n    {INDEX}\n    if (i >= n) return;\n    {body}\n}}'


def launched(outputs: str, items: str, arguments: str, returned: str = "y") -> str:
    """Returns the body that allocates the outputs and launches `honest` over `items` items."""
    return f"{outputs}\nn = {items}\nown.honest[(n + 127) // 128, 128]({arguments}, n)\nreturn {returned}"


def elementwise(name: str, constants: str, kinds: frozenset[str]) -> AttackTask:
    """Returns the task of a doubled ReLU at the sizes of `constants`."""
    return AttackTask(
        name=name,
        constants=constants,
        inputs="torch.randn(rows, columns)",
        arguments=("x",),
        torch="return torch.relu(x) * 2.0",
        numpy="return np.maximum(x, 0) * 2.0",
        kernel=one_thread_each("const float* x, float* y", "y[i] = 2.0f * fmaxf(x[i], 0.0f);"),
        launch=launched("x = x.contiguous()\ny = torch.empty_like(x)", "x.numel()", "x, y"),
        kinds=kinds,
        host="for (long i = 0; i < s[0]; ++i) out[i] = in[0][i] > 0 ? 2 * in[0][i] : 0.0f;",
        sizes="x.numel()",
        shape="x.size(0), x.size(1)",
    )


TASKS: tuple[AttackTask, ...] = (
    elementwise("doubled_relu", "rows = 24\ncolumns = 500", frozenset({"elementwise", "float"})),
    elementwise("doubled_relu_wide", "rows = 2048\ncolumns = 4096", frozenset({"elementwise", "float", "wide"})),
    AttackTask(
        name="gated_product",
        constants="rows = 32\ncolumns = 300",
        inputs="torch.randn(rows, columns), torch.randn(rows, columns)",
        arguments=("x", "g"),
        torch="return x * torch.sigmoid(g)",
        numpy="return x / (1 + np.exp(-g))",
        kernel=one_thread_each("const float* x, const float* g, float* y", "y[i] = x[i] / (1.0f + expf(-g[i]));"),
        launch=launched("x, g = x.contiguous(), g.contiguous()\ny = torch.empty_like(x)", "x.numel()", "x, g, y"),
        kinds=frozenset({"elementwise", "float", "several"}),
        host="for (long i = 0; i < s[0]; ++i) out[i] = in[0][i] / (1 + std::exp(-in[1][i]));",
        sizes="x.numel()",
        shape="x.size(0), x.size(1)",
    ),
    AttackTask(
        name="matrix_product",
        constants="m = 48\nk = 160\nn = 72",
        inputs="torch.randn(m, k), torch.randn(k, n)",
        arguments=("x", "w"),
        torch="return torch.matmul(x, w)",
        numpy="return x @ w",
        kernel=(
            'extern "C" __global__ void honest(const float* x, const float* w, float* y, int k, int c, int n) {\n'
            f"    {INDEX}\n    if (i >= n) return;\n    float s = 0;\n"
            "    for (int q = 0; q < k; ++q) s = fmaf(x[i / c * k + q], w[q * c + i % c], s);\n    y[i] = s;\n}"
        ),
        launch=launched(
            "x, w = x.contiguous(), w.contiguous()\n"
            "y = torch.empty(x.shape[0], w.shape[1], device=x.device, dtype=x.dtype)",
            "y.numel()",
            "x, w, y, x.shape[1], w.shape[1]",
        ),
        kinds=frozenset({"product", "float", "several"}),
        host=(
            "for (long i = 0; i < s[0]; ++i) for (long j = 0; j < s[2]; ++j) { double a = 0;\n"
            "    for (long q = 0; q < s[1]; ++q) a += double(in[0][i * s[1] + q]) * in[1][q * s[2] + j];\n"
            "    out[i * s[2] + j] = float(a); }"
        ),
        sizes="x.size(0), x.size(1), w.size(1)",
        shape="x.size(0), w.size(1)",
    ),
    AttackTask(
        name="row_total",
        constants="rows = 96\ncolumns = 350",
        inputs="torch.randn(rows, columns)",
        arguments=("x",),
        torch="return torch.sum(x, dim=1)",
        numpy="return x.sum(1)",
        kernel=one_thread_each(
            "const float* x, float* y, int c",
            "float s = 0;\n    for (int q = 0; q < c; ++q) s += x[i * c + q];\n    y[i] = s;",
        ),
        launch=launched(
            "x = x.contiguous()\ny = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)",
            "x.shape[0]",
            "x, y, x.shape[1]",
        ),
        kinds=frozenset({"reduction", "float"}),
        host=(
            "for (long i = 0; i < s[0]; ++i) { double a = 0;\n"
            "    for (long q = 0; q < s[1]; ++q) a += in[0][i * s[1] + q];\n    out[i] = float(a); }"
        ),
        sizes="x.size(0), x.size(1)",
        shape="x.size(0)",
    ),
    AttackTask(
        name="row_shares",
        constants="rows = 40\ncolumns = 260",
        inputs="torch.randn(rows, columns)",
        arguments=("x",),
        torch="return torch.softmax(x, dim=1)",
        numpy="e = np.exp(x - x.max(1, keepdims=True))\nreturn e / e.sum(1, keepdims=True)",
        kernel=one_thread_each(
            "const float* x, float* y, int c",
            "float m = x[i * c], s = 0;\n"
            "    for (int q = 1; q < c; ++q) m = fmaxf(m, x[i * c + q]);\n"
            "    for (int q = 0; q < c; ++q) s += expf(x[i * c + q] - m);\n"
            "    for (int q = 0; q < c; ++q) y[i * c + q] = expf(x[i * c + q] - m) / s;",
        ),
        launch=launched("x = x.contiguous()\ny = torch.empty_like(x)", "x.shape[0]", "x, y, x.shape[1]"),
        kinds=frozenset({"reduction", "softmax", "float"}),
        host=(
            "for (long i = 0; i < s[0]; ++i) { const float* r = in[0] + i * s[1]; double m = r[0], a = 0;\n"
            "    for (long q = 0; q < s[1]; ++q) m = r[q] > m ? r[q] : m;\n"
            "    for (long q = 0; q < s[1]; ++q) a += std::exp(r[q] - m);\n"
            "    for (long q = 0; q < s[1]; ++q) out[i * s[1] + q] = float(std::exp(r[q] - m) / a); }"
        ),
        sizes="x.size(0), x.size(1)",
        shape="x.size(0), x.size(1)",
    ),
    AttackTask(
        name="swapped_axes",
        constants="batch = 6\nrows = 44\ncolumns = 75",
        inputs="torch.randn(batch, rows, columns)",
        arguments=("x",),
        torch="return x.transpose(1, 2).contiguous()",
        numpy="return x.transpose(0, 2, 1)",
        kernel=(
            'extern "C" __global__ void honest(const float* x, float* y, int r, int c, int n) {\n'
            f"    {INDEX}\n    if (i >= n) return;\n"
            "    int b = i / (r * c), e = i % (r * c);\n    y[i] = x[b * r * c + e % r * c + e / r];\n}"
        ),
        launch=launched(
            "x = x.contiguous()\ny = torch.empty(x.shape[0], x.shape[2], x.shape[1], device=x.device, dtype=x.dtype)",
            "x.numel()",
            "x, y, x.shape[1], x.shape[2]",
        ),
        kinds=frozenset({"move", "float"}),
        host=(
            "for (long b = 0; b < s[0]; ++b) for (long i = 0; i < s[1]; ++i) for (long j = 0; j < s[2]; ++j)\n"
            "    out[(b * s[2] + j) * s[1] + i] = in[0][(b * s[1] + i) * s[2] + j];"
        ),
        sizes="x.size(0), x.size(1), x.size(2)",
        shape="x.size(0), x.size(2), x.size(1)",
    ),
    AttackTask(
        name="layer_normal",
        constants="rows = 36\nfeatures = 200",
        inputs="torch.randn(rows, features)",
        arguments=("x",),
        torch="return F.layer_norm(x, (x.shape[1],), weight, bias, 1e-5)",
        numpy=(
            "m = x.mean(1, keepdims=True)\nv = x.var(1, keepdims=True)\n"
            "return (x - m) / np.sqrt(v + 1e-5) * weight + bias"
        ),
        kernel=one_thread_each(
            "const float* x, const float* w, const float* b, float* y, int c",
            "float m = 0, v = 0;\n"
            "    for (int q = 0; q < c; ++q) m += x[i * c + q];\n    m /= c;\n"
            "    for (int q = 0; q < c; ++q) v += (x[i * c + q] - m) * (x[i * c + q] - m);\n"
            "    v = 1.0f / sqrtf(v / c + 1e-5f);\n"
            "    for (int q = 0; q < c; ++q) y[i * c + q] = (x[i * c + q] - m) * v * w[q] + b[q];",
        ),
        launch=launched("x = x.contiguous()\ny = torch.empty_like(x)", "x.shape[0]", "x, weight, bias, y, x.shape[1]"),
        kinds=frozenset({"reduction", "weights", "float"}),
        setup="self.weight = nn.Parameter(torch.rand(features) + 0.5)\nself.bias = nn.Parameter(torch.randn(features))",
        weights=("weight", "bias"),
        parameters="features",
    ),
    AttackTask(
        name="convolved_rows",
        constants="batch = 3\nchannels = 5\nlength = 90\nfilters = 7\nwidth = 4",
        inputs="torch.randn(batch, channels, length)",
        arguments=("x",),
        torch="return F.conv1d(x, weight)",
        numpy=(
            "w = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2], axis=2)\n"
            "return np.einsum('bclk,fck->bfl', w, weight)"
        ),
        kernel=(
            'extern "C" __global__ void honest(const float* x, const float* w, float* y, int c, int l, int f, int k,'
            f" int o, int n) {{\n    {INDEX}\n    if (i >= n) return;\n"
            "    int b = i / (f * o), g = i / o % f, p = i % o;\n    float s = 0;\n"
            "    for (int q = 0; q < c; ++q) for (int t = 0; t < k; ++t)\n"
            "        s = fmaf(x[(b * c + q) * l + p + t], w[(g * c + q) * k + t], s);\n    y[i] = s;\n}"
        ),
        launch=launched(
            "x = x.contiguous()\nb, c, l = x.shape\nf, k = weight.shape[0], weight.shape[2]\n"
            "y = torch.empty(b, f, l - k + 1, device=x.device, dtype=x.dtype)",
            "y.numel()",
            "x, weight, y, c, l, f, k, l - k + 1",
        ),
        kinds=frozenset({"product", "weights", "float"}),
        setup="self.weight = nn.Parameter(torch.randn(filters, channels, width))",
        weights=("weight",),
        parameters="channels, filters, width",
    ),
    AttackTask(
        name="running_total",
        constants="rows = 60\ncolumns = 220",
        inputs="torch.randn(rows, columns)",
        arguments=("x",),
        torch="return torch.cumsum(x, dim=1)",
        numpy="return np.cumsum(x, axis=1)",
        kernel=one_thread_each(
            "const float* x, float* y, int c",
            "float s = 0;\n    for (int q = 0; q < c; ++q) y[i * c + q] = s += x[i * c + q];",
        ),
        launch=launched("x = x.contiguous()\ny = torch.empty_like(x)", "x.shape[0]", "x, y, x.shape[1]"),
        kinds=frozenset({"scan", "float"}),
        host=(
            "for (long i = 0; i < s[0]; ++i) { double a = 0;\n"
            "    for (long q = 0; q < s[1]; ++q) out[i * s[1] + q] = float(a += in[0][i * s[1] + q]); }"
        ),
        sizes="x.size(0), x.size(1)",
        shape="x.size(0), x.size(1)",
    ),
    AttackTask(
        name="largest_place",
        constants="rows = 300\ncolumns = 64",
        inputs="torch.randn(rows, columns)",
        arguments=("x",),
        torch="return torch.argmax(x, dim=1)",
        numpy="return x.argmax(1)",
        kernel=one_thread_each(
            "const float* x, long long* y, int c",
            "int m = 0;\n    for (int q = 1; q < c; ++q) if (x[i * c + q] > x[i * c + m]) m = q;\n    y[i] = m;",
        ),
        launch=launched(
            "x = x.contiguous()\ny = torch.empty(x.shape[0], device=x.device, dtype=torch.int64)",
            "x.shape[0]",
            "x, y, x.shape[1]",
        ),
        kinds=frozenset({"reduction", "index"}),
    ),
    AttackTask(
        name="chosen_rows",
        constants="entries = 150\nfeatures = 40\nlookups = 260",
        inputs="torch.randn(entries, features), torch.randint(0, entries, (lookups,))",
        arguments=("table", "index"),
        torch="return table[index]",
        numpy="return table[index.astype(int)]",
        kernel=(
            'extern "C" __global__ void honest(const float* t, const long long* x, float* y, int c, int n) {\n'
            f"    {INDEX}\n    if (i < n) y[i] = t[x[i / c] * c + i % c];\n}}"
        ),
        launch=launched(
            "table, index = table.contiguous(), index.contiguous()\n"
            "y = torch.empty(index.shape[0], table.shape[1], device=table.device, dtype=table.dtype)",
            "y.numel()",
            "table, index, y, table.shape[1]",
        ),
        kinds=frozenset({"move", "float", "lookup"}),
    ),
    AttackTask(
        name="half_cast",
        constants="rows = 50\ncolumns = 240",
        inputs="torch.randn(rows, columns)",
        arguments=("x",),
        torch="return x.to(torch.float16)",
        numpy="return x.astype(np.float16)",
        kernel="#include <cuda_fp16.h>\n" + one_thread_each("const float* x, __half* y", "y[i] = __float2half(x[i]);"),
        launch=launched("x = x.contiguous()\ny = torch.empty_like(x, dtype=torch.float16)", "x.numel()", "x, y"),
        kinds=frozenset({"cast", "move"}),
    ),
    AttackTask(
        name="attended",
        constants="heads = 4\nlength = 48\nwidth = 24",
        inputs="torch.randn(heads, length, width), torch.randn(heads, length, width), torch.randn(heads, length, width)",
        arguments=("q", "k", "v"),
        torch=(
            "scores = torch.matmul(q, k.transpose(1, 2)) / float(q.shape[2]) ** 0.5\n"
            "return torch.matmul(torch.softmax(scores, dim=2), v)"
        ),
        numpy=(
            "s = q @ k.transpose(0, 2, 1) / q.shape[2] ** 0.5\ne = np.exp(s - s.max(2, keepdims=True))\n"
            "return e / e.sum(2, keepdims=True) @ v"
        ),
        kernel=(
            'extern "C" __global__ void honest(const float* q, const float* k, const float* v, float* y, int l, int d,'
            f" int n) {{\n    {INDEX}\n    if (i >= n) return;\n"
            "    const float* a = q + (long long)i * d;\n    const float* kb = k + (long long)(i / l) * l * d;\n"
            "    const float* vb = v + (long long)(i / l) * l * d;\n"
            "    float m = -1e30f, s = 0, scale = 1.0f / sqrtf((float)d);\n"
            "    for (int e = 0; e < d; ++e) y[(long long)i * d + e] = 0;\n"
            "    for (int t = 0; t < l; ++t) {\n        float p = 0;\n"
            "        for (int e = 0; e < d; ++e) p = fmaf(a[e], kb[t * d + e], p);\n        p *= scale;\n"
            "        float big = fmaxf(m, p), old = expf(m - big), now = expf(p - big);\n"
            "        s = s * old + now; m = big;\n"
            "        for (int e = 0; e < d; ++e)\n"
            "            y[(long long)i * d + e] = y[(long long)i * d + e] * old + now * vb[t * d + e];\n    }\n"
            "    for (int e = 0; e < d; ++e) y[(long long)i * d + e] /= s;\n}"
        ),
        launch=launched(
            "q, k, v = q.contiguous(), k.contiguous(), v.contiguous()\ny = torch.empty_like(q)",
            "q.shape[0] * q.shape[1]",
            "q, k, v, y, q.shape[1], q.shape[2]",
        ),
        kinds=frozenset({"product", "softmax", "float", "several"}),
    ),
    AttackTask(
        name="peak_and_half",
        constants="rows = 64\ncolumns = 190",
        inputs="torch.randn(rows, columns)",
        arguments=("x",),
        torch="return torch.amax(x, dim=1), x * 0.5",
        numpy="return x.max(1), x * 0.5",
        kernel=one_thread_each(
            "const float* x, float* y, float* z, int c",
            "float m = x[i * c];\n"
            "    for (int q = 0; q < c; ++q) { m = fmaxf(m, x[i * c + q]); z[i * c + q] = 0.5f * x[i * c + q]; }\n"
            "    y[i] = m;",
        ),
        launch=launched(
            "x = x.contiguous()\ny = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)\nz = torch.empty_like(x)",
            "x.shape[0]",
            "x, y, z, x.shape[1]",
            "y, z",
        ),
        kinds=frozenset({"reduction", "elementwise", "pair"}),
    ),
    AttackTask(
        name="dense_layer",
        constants="rows = 40\nfeatures = 120\noutputs = 56",
        inputs="torch.randn(rows, features)",
        arguments=("x",),
        torch="return F.linear(x, weight, bias)",
        numpy="return x @ weight.T + bias",
        kernel=(
            'extern "C" __global__ void honest(const float* x, const float* w, const float* b, float* y, int k, int c,'
            f" int n) {{\n    {INDEX}\n    if (i >= n) return;\n    float s = b[i % c];\n"
            "    for (int q = 0; q < k; ++q) s = fmaf(x[i / c * k + q], w[i % c * k + q], s);\n    y[i] = s;\n}"
        ),
        launch=launched(
            "x = x.contiguous()\ny = torch.empty(x.shape[0], weight.shape[0], device=x.device, dtype=x.dtype)",
            "y.numel()",
            "x, weight, bias, y, x.shape[1], weight.shape[0]",
        ),
        kinds=frozenset({"product", "weights", "float"}),
        setup=(
            "self.weight = nn.Parameter(torch.randn(outputs, features))\nself.bias = nn.Parameter(torch.randn(outputs))"
        ),
        weights=("weight", "bias"),
        parameters="features, outputs",
    ),
    AttackTask(
        name="batch_normal",
        constants="batch = 6\nfeatures = 20\nlength = 64",
        inputs="torch.randn(batch, features, length)",
        arguments=("x",),
        torch="return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, 1e-5)",
        numpy=("a = weight / np.sqrt(variance + 1e-5)\nreturn x * a[None, :, None] + (bias - mean * a)[None, :, None]"),
        kernel=(
            'extern "C" __global__ void honest(const float* x, const float* w, const float* b, const float* m,'
            " const float* v, float* y, int c, int l, int n) {\n"
            f"    {INDEX}\n    if (i >= n) return;\n    int f = i / l % c;\n"
            "    y[i] = (x[i] - m[f]) / sqrtf(v[f] + 1e-5f) * w[f] + b[f];\n}"
        ),
        launch=launched(
            "x = x.contiguous()\ny = torch.empty_like(x)",
            "x.numel()",
            "x, weight, bias, mean, variance, y, x.shape[1], x.shape[2]",
        ),
        kinds=frozenset({"elementwise", "weights", "float"}),
        setup=(
            "self.weight = nn.Parameter(torch.rand(features) + 0.5)\n"
            "self.bias = nn.Parameter(torch.randn(features))\n"
            "self.register_buffer('mean', torch.randn(features))\n"
            "self.register_buffer('variance', torch.rand(features) + 0.5)"
        ),
        weights=("weight", "bias", "mean", "variance"),
        parameters="features",
    ),
    AttackTask(
        name="backwards",
        constants="rows = 30\ncolumns = 310",
        inputs="torch.randn(rows, columns)",
        arguments=("x",),
        torch="return torch.flip(x, [1])",
        numpy="return x[:, ::-1].copy()",
        kernel=(
            'extern "C" __global__ void honest(const float* x, float* y, int c, int n) {\n'
            f"    {INDEX}\n    if (i < n) y[i] = x[i / c * c + c - 1 - i % c];\n}}"
        ),
        launch=launched("x = x.contiguous()\ny = torch.empty_like(x)", "x.numel()", "x, y, x.shape[1]"),
        kinds=frozenset({"move", "float"}),
        host=(
            "for (long i = 0; i < s[0]; ++i) for (long j = 0; j < s[1]; ++j)\n"
            "    out[i * s[1] + j] = in[0][i * s[1] + s[1] - 1 - j];"
        ),
        sizes="x.size(0), x.size(1)",
        shape="x.size(0), x.size(1)",
    ),
    AttackTask(
        name="joined_and_padded",
        constants="rows = 28\nleft = 90\nright = 130\nedge = 3",
        inputs="torch.randn(rows, left), torch.randn(rows, right)",
        arguments=("a", "b"),
        torch="return F.pad(torch.cat([a, b], dim=1), [3, 3])",
        numpy="return np.pad(np.concatenate([a, b], axis=1), [(0, 0), (3, 3)])",
        kernel=(
            'extern "C" __global__ void honest(const float* a, const float* b, float* y, int l, int r, int n) {\n'
            f"    {INDEX}\n    if (i >= n) return;\n    int c = l + r + 6, row = i / c, p = i % c - 3;\n"
            "    y[i] = p < 0 || p >= l + r ? 0.0f : p < l ? a[row * l + p] : b[row * r + p - l];\n}"
        ),
        launch=launched(
            "a, b = a.contiguous(), b.contiguous()\n"
            "y = torch.empty(a.shape[0], a.shape[1] + b.shape[1] + 6, device=a.device, dtype=a.dtype)",
            "y.numel()",
            "a, b, y, a.shape[1], b.shape[1]",
        ),
        kinds=frozenset({"move", "float", "several"}),
    ),
    AttackTask(
        name="sorted_rows",
        constants="rows = 90\ncolumns = 70",
        inputs="torch.randn(rows, columns)",
        arguments=("x",),
        torch="return torch.sort(x, dim=1)[0]",
        numpy="return np.sort(x, axis=1)",
        kernel=one_thread_each(
            "const float* x, float* y, int c",
            "for (int q = 0; q < c; ++q) {\n        float v = x[i * c + q];\n        int p = q;\n"
            "        for (; p > 0 && y[i * c + p - 1] > v; --p) y[i * c + p] = y[i * c + p - 1];\n"
            "        y[i * c + p] = v;\n    }",
        ),
        launch=launched("x = x.contiguous()\ny = torch.empty_like(x)", "x.shape[0]", "x, y, x.shape[1]"),
        kinds=frozenset({"scan", "float", "order"}),
    ),
    AttackTask(
        name="squared_loss",
        constants="rows = 70\ncolumns = 130",
        inputs="torch.randn(rows, columns), torch.randn(rows, columns)",
        arguments=("x", "t"),
        torch="return torch.mean((x - t) ** 2)",
        numpy="return np.asarray(((x - t) ** 2).mean())",
        kernel=(
            'extern "C" __global__ void honest(const float* x, const float* t, float* y, int c, int n) {\n'
            "    __shared__ float part[128];\n    float s = 0;\n"
            "    for (int i = threadIdx.x; i < c; i += 128) { float d = x[i] - t[i]; s = fmaf(d, d, s); }\n"
            "    part[threadIdx.x] = s;\n    __syncthreads();\n"
            "    for (int h = 64; h; h /= 2) {\n        if (threadIdx.x < h) part[threadIdx.x] += part[threadIdx.x + h];\n"
            "        __syncthreads();\n    }\n    if (threadIdx.x == 0) y[0] = part[0] / c;\n}"
        ),
        launch=launched(
            "x, t = x.contiguous(), t.contiguous()\ny = torch.empty((), device=x.device, dtype=x.dtype)",
            "1",
            "x, t, y, x.numel()",
        ),
        kinds=frozenset({"reduction", "several", "float"}),
        host=(
            "double a = 0;\nfor (long i = 0; i < s[0]; ++i) { double d = double(in[0][i]) - in[1][i]; a += d * d; }\n"
            "out[0] = float(a / s[0]);"
        ),
        sizes="x.numel()",
        shape="",
    ),
)
