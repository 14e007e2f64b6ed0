"""Moves and small arithmetic: transposes, quantisation by groups, bags of embeddings, rotations, normalisations."""

from __future__ import annotations

from sets.planted.case import BOUNDS, RACE, UNINITIALISED, Original, reference
from sets.planted_blind.edits import MASK, VALUE, edit

SWAP = Original(
    "channels-last",
    reference("x | x.permute(0, 2, 1).contiguous()", "n = 3\nc = 45\nt = 70", "torch.randn(n, c, t)"),
    """
__global__ void swap(const float* x, float* y, int c, int t) {
    __shared__ float tile[32][33];
    const float* from = x + (size_t)blockIdx.z * c * t;
    float* to = y + (size_t)blockIdx.z * c * t;
    int q = blockIdx.x * 32 + threadIdx.x, r0 = blockIdx.y * 32;
    for (int k = threadIdx.y; k < 32; k += 8)
        if (r0 + k < c && q < t)
            tile[k][threadIdx.x] = from[(r0 + k) * t + q];
    __syncthreads();
    int r = r0 + threadIdx.x;
    for (int k = threadIdx.y; k < 32; k += 8)
        if (blockIdx.x * 32 + k < t && r < c)
            to[(blockIdx.x * 32 + k) * c + r] = tile[threadIdx.x][k];
}
""",
    """
n, c, t = x.shape
y = torch.empty(n, t, c, device=x.device)
module.swap[((t + 31) // 32, (c + 31) // 32, n), (32, 8)](x, y, c, t)
return y
""",
    "x",
    (
        edit(
            "no-barrier",
            "dropped barrier",
            RACE,
            "+ q];\n    __syncthreads();\n",
            "+ q];\n",
            "tile[k][threadIdx.x] =",
            "= tile[threadIdx.x][k]",
        ),
        edit(
            "rows-by-sixteen",
            "uninitialised",
            UNINITIALISED,
            "for (int k = threadIdx.y; k < 32; k += 8)\n        if (r0",
            "for (int k = threadIdx.y; k < 32; k += 16)\n        if (r0",
            "= tile[threadIdx.x][k]",
        ),
        edit(
            "output-stride-of-the-input",
            "wrong stride",
            (*RACE, *BOUNDS, "unwritten-output"),
            "to[(blockIdx.x * 32 + k) * c + r]",
            "to[(blockIdx.x * 32 + k) * t + r]",
            "to[(blockIdx.x",
        ),
        edit(
            "guard-with-swapped-sizes",
            "missing guard",
            (*BOUNDS, *UNINITIALISED),
            "if (blockIdx.x * 32 + k < t && r < c)",
            "if (blockIdx.x * 32 + k < c && r < t)",
            "to[(blockIdx.x",
        ),
        edit(
            "batch-in-32-columns",
            "wrong stride",
            (*RACE, *BOUNDS),
            "float* to = y + (size_t)blockIdx.z * c * t;",
            "float* to = y + (size_t)blockIdx.z * c * 32;",
            "to[(blockIdx.x",
        ),
    ),
)

QUANTISE = Original(
    "quantise-groups",
    reference(
        "x | (x.view(-1, 32) / (x.view(-1, 32).abs().amax(1, keepdim=True) / 127).clamp(min=1e-8)).round()"
        ".clamp(-127, 127).view(x.shape) * (x.view(-1, 32).abs().amax(1, keepdim=True) / 127).clamp(min=1e-8)"
        ".expand(-1, 32).reshape(x.shape)",
        "rows = 9\nwidth = 96",
        "torch.randn(rows, width)",
    ),
    """
__global__ void quantise(const float* x, signed char* q, float* scales, int groups) {
    int group = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    if (group >= groups)
        return;
    float v = x[group * 32 + lane], top = fabsf(v);
    for (int m = 16; m; m >>= 1)
        top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, m));
    float scale = fmaxf(top / 127.f, 1e-8f);
    q[group * 32 + lane] = (signed char)fminf(fmaxf(rintf(v / scale), -127.f), 127.f);
    if (lane == 0)
        scales[group] = scale;
}

__global__ void restore(const signed char* q, const float* scales, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = q[i] * scales[i / 32];
}
""",
    """
n = x.numel()
q = torch.empty(n, dtype=torch.int8, device=x.device)
scales = torch.empty(n // 32, device=x.device)
y = torch.empty_like(x)
module.quantise[(n + 127) // 128, 128](x, q, scales, n // 32)
module.restore[(n + 255) // 256, 256](q, scales, y, n)
return y
""",
    "x",
    (
        edit("maximum-of-half", "wrong value", VALUE, "for (int m = 16; m; m >>= 1)", "for (int m = 8; m; m >>= 1)"),
        edit(
            "scale-of-the-wrong-group",
            "off by one",
            UNINITIALISED,
            "        scales[group] = scale;",
            "        scales[group & ~1] = scale;",
            "y[i] = q[i]",
        ),
        edit(
            "no-guard-for-groups",
            "missing guard",
            BOUNDS,
            "    if (group >= groups)\n        return;\n",
            "",
            "float v = x[",
            "q[group * 32",
        ),
        edit(
            "unsigned-bytes",
            "wrong type",
            VALUE,
            "const signed char* q, const float* scales",
            "const unsigned char* q, const float* scales",
        ),
        edit("scales-by-64", "wrong stride", VALUE, "scales[i / 32];", "scales[i / 64];"),
    ),
)

BAG = Original(
    "embedding-bag",
    reference(
        "table, ids | table[ids].mean(dim=1)",
        "words = 60\nwidth = 40\nbags = 12\nlength = 7",
        "torch.randn(words, width), torch.randint(0, words, (bags, length))",
    ),
    """
__global__ void bag(const float* table, const long long* ids, float* y, int width, int length) {
    extern __shared__ int rows[];
    if (threadIdx.x < length)
        rows[threadIdx.x] = (int)ids[blockIdx.x * length + threadIdx.x];
    __syncthreads();
    for (int c = threadIdx.x; c < width; c += blockDim.x) {
        float sum = 0.f;
        for (int k = 0; k < length; ++k)
            sum += table[(size_t)rows[k] * width + c];
        y[blockIdx.x * width + c] = sum / length;
    }
}
""",
    """
bags, length = ids.shape
y = torch.empty(bags, table.shape[1], device=table.device)
module.bag[bags, 64 if length <= 64 else 1024, length * 4](table, ids, y, table.shape[1], length)
return y
""",
    "table, ids",
    (
        edit(
            "no-barrier",
            "dropped barrier",
            RACE,
            "+ threadIdx.x];\n    __syncthreads();\n",
            "+ threadIdx.x];\n",
            "rows[threadIdx.x] =",
            "sum += table",
        ),
        edit(
            "one-id-missing",
            "uninitialised",
            UNINITIALISED,
            "if (threadIdx.x < length)",
            "if (threadIdx.x < length - 1)",
            "sum += table",
        ),
        edit(
            "length-plus-one",
            "off by one",
            (*BOUNDS, *UNINITIALISED),
            "k < length; ++k)",
            "k <= length; ++k)",
            "sum += table",
        ),
        edit(
            "stride-of-ids",
            "wrong stride",
            (*BOUNDS, *VALUE),
            "ids[blockIdx.x * length + threadIdx.x]",
            "ids[blockIdx.x * width + threadIdx.x]",
            "rows[threadIdx.x] =",
        ),
        edit("divided-by-blocks", "wrong value", VALUE, "sum / length;", "sum / gridDim.x;"),
    ),
)

ROTATE = Original(
    "rotary",
    reference(
        "x, c, s | torch.cat([x[..., : x.shape[-1] // 2] * c - x[..., x.shape[-1] // 2 :] * s, "
        "x[..., x.shape[-1] // 2 :] * c + x[..., : x.shape[-1] // 2] * s], dim=-1)",
        "heads = 6\ntokens = 11\nwidth = 32",
        "torch.randn(heads, tokens, width), torch.randn(tokens, width // 2), torch.randn(tokens, width // 2)",
    ),
    """
__global__ void rotate(const float2* x, const float* c, const float* s, float* y, int tokens, int half) {
    extern __shared__ float row[];
    int token = blockIdx.x, head = blockIdx.y, t = threadIdx.x;
    const float2* from = x + ((size_t)head * tokens + token) * half;
    if (t < half) {
        float2 pair = from[t];
        row[2 * t] = pair.x;
        row[2 * t + 1] = pair.y;
    }
    __syncthreads();
    if (t >= half)
        return;
    float a = row[t], b = row[t + half], cosine = c[token * half + t], sine = s[token * half + t];
    float* to = y + ((size_t)head * tokens + token) * 2 * half;
    to[t] = a * cosine - b * sine;
    to[t + half] = b * cosine + a * sine;
}
""",
    """
heads, tokens, width = x.shape
y = torch.empty_like(x)
half = width // 2
module.rotate[(tokens, heads), (half + 31) // 32 * 32, width * 4](x, c, s, y, tokens, half)
return y
""",
    "x, c, s",
    (
        edit(
            "no-barrier",
            "dropped barrier",
            RACE,
            "    }\n    __syncthreads();\n    if (t >= half)",
            "    }\n    if (t >= half)",
            "row[2 * t",
            "float a = row[t]",
        ),
        edit("one-sign", "wrong value", VALUE, "b * cosine + a * sine", "b * cosine - a * sine"),
        edit(
            "head-and-token-swapped",
            "wrong stride",
            (*RACE, *BOUNDS),
            "float* to = y + ((size_t)head * tokens + token)",
            "float* to = y + ((size_t)token * tokens + head)",
            "to[t] =",
            "to[t + half] =",
        ),
        edit(
            "row-of-half-the-width",
            "overflow of an array",
            BOUNDS,
            "32 * 32, width * 4]",
            "32 * 32, half * 4]",
            "row[2 * t",
            "float a = row[t]",
        ),
        edit(
            "second-half-from-the-pair",
            "off by one",
            (*UNINITIALISED, *BOUNDS),
            "row[t + half], cosine",
            "row[t + half + 1], cosine",
            "float a = row[t]",
        ),
    ),
)

RMS = Original(
    "rms-norm",
    reference(
        "x, w | x * torch.rsqrt((x * x).view(x.shape[0], -1, 4).mean((1, 2)).unsqueeze(1) + 1e-6) * w",
        "rows = 10\nwidth = 260",
        "torch.randn(rows, width), torch.randn(width)",
    ),
    """
__device__ float block_sum(float v, float* box) {
    for (int m = 16; m; m /= 2)
        v += __shfl_xor_sync(0xffffffff, v, m);
    if (threadIdx.x % 32 == 0)
        box[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / 32 ? box[threadIdx.x] : 0.f;
    if (threadIdx.x < 32) {
        for (int m = 16; m; m /= 2)
            v += __shfl_xor_sync(0xffffffff, v, m);
        if (threadIdx.x == 0)
            box[0] = v;
    }
    __syncthreads();
    return box[0];
}

__global__ void normalise(const float* x, const float* w, float* y, int width) {
    __shared__ float box[32];
    const float4* row = (const float4*)(x + (size_t)blockIdx.x * width);
    float sum = 0.f;
    for (int i = threadIdx.x; i < width / 4; i += blockDim.x) {
        float4 v = row[i];
        sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    for (int i = width / 4 * 4 + threadIdx.x; i < width; i += blockDim.x)
        sum += x[(size_t)blockIdx.x * width + i] * x[(size_t)blockIdx.x * width + i];
    float scale = rsqrtf(block_sum(sum, box) / width + 1e-6f);
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        y[(size_t)blockIdx.x * width + i] = x[(size_t)blockIdx.x * width + i] * scale * w[i];
}
""",
    """
rows, width = x.shape
y = torch.empty_like(x)
module.normalise[rows, 128](x, w, y, width)
return y
""",
    "x, w",
    (
        edit(
            "sum-read-too-early",
            "dropped barrier",
            RACE,
            "    }\n    __syncthreads();\n    return box[0];",
            "    }\n    return box[0];",
            "box[0] = v",
            "return box[0]",
            "box[threadIdx.x]",
            "float scale =",
        ),
        edit(
            "warps-of-a-full-block",
            "uninitialised",
            UNINITIALISED,
            "threadIdx.x < blockDim.x / 32 ? box",
            "threadIdx.x < 32 ? box",
            "? box[threadIdx.x]",
        ),
        edit(
            "first-warp-by-half-mask",
            "wrong mask",
            MASK,
            "    if (threadIdx.x < 32) {\n        for",
            "    if (threadIdx.x < 16) {\n        for",
            "__shfl_xor_sync",
        ),
        edit(
            "vectors-over-the-end",
            "off by one",
            BOUNDS,
            "i < width / 4; i += blockDim.x)",
            "i < (width + 8) / 4; i += blockDim.x)",
            "float4 v = row[i]",
        ),
        edit(
            "one-barrier-for-partials",
            "dropped barrier",
            RACE,
            "box[threadIdx.x / 32] = v;\n    __syncthreads();\n",
            "box[threadIdx.x / 32] = v;\n",
            "box[threadIdx.x / 32] = v",
            "? box[threadIdx.x]",
            "box[0] = v",
        ),
    ),
)

CASES = (SWAP, QUANTISE, BAG, ROTATE, RMS)
