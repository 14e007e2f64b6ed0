"""Small tasks of the shaped families, by name."""

from __future__ import annotations

HEAD = "import math\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


def task(forward: str, values: str, inputs: str = "x", init: str = "pass") -> str:
    """Returns a task's source, with lines of `forward` and `init` indented."""
    body, made = ("\n        ".join(text.split("\n")) for text in (forward, init))
    return f"""{HEAD}

class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()
        {made}

    def forward(self, {inputs}):
        {body}


def get_inputs():
    return [{values}]


def get_init_inputs():
    return []
"""


def pair(forward: str, a: str, b: str) -> str:
    """Returns a task of two random tensors A and B."""
    return task(f"return {forward}", f"torch.randn({a}), torch.randn({b})", "A, B")


def heads(forward: str) -> str:
    """Returns a task of queries, keys and values of several heads."""
    return task(forward, "torch.randn(2, 3, 20, 8), torch.randn(2, 3, 20, 8), torch.randn(2, 3, 20, 8)", "Q, K, V")


IMAGE = "torch.randn(3, 6, 13, 14)"
SIGNAL = "torch.randn(3, 6, 40)"
VOLUME = "torch.randn(2, 6, 7, 8, 9)"
SMALL_LINEAR = "self.fc = nn.Linear(70, 33)"
PRODUCTS = {
    "both transposed": pair("torch.matmul(A.T, B.t())", "50, 70", "33, 50"),
    "batched": pair("torch.bmm(A, B.transpose(1, 2))", "5, 17, 31", "5, 9, 31"),
    "broadcast batch": pair("A @ B", "17, 31", "2, 5, 31, 9"),
    "4d times 2d": pair("torch.einsum('bijl,lk->bijk', A, B)", "2, 5, 6, 31", "31, 9"),
    "einsum that is a sum": pair("torch.einsum('bi,bi->b', A, B)", "4, 20", "4, 20"),
    "vector": pair("torch.mv(A, B)", "70, 500", "500"),
    "outer": pair("torch.outer(A, B)", "40", "50"),
    "diagonal": pair("torch.diag(A) @ B", "40", "40, 50"),
    "triangular": pair("torch.tril(torch.matmul(A, B))", "40, 40", "40, 40"),
    "epilogue": pair("torch.relu(A @ B * 2.0 + 1.0) + A", "50, 50", "50, 50"),
    "linear chain": task("return self.b(F.gelu(self.fc(x)))", "torch.randn(20, 70)",
                         init=f"{SMALL_LINEAR}\nself.b = nn.Linear(33, 21, bias=False)"),
    "half": task("return torch.matmul(A, B)", "torch.randn(70, 50).half(), torch.randn(50, 33).half()", "A, B"),
    "attention by hand": heads(
        "s = torch.matmul(Q, K.transpose(-2, -1)) / math.sqrt(Q.size(-1))\n"
        "return torch.matmul(F.softmax(s, dim=-1), V)"
    ),
    "causal attention": heads("return F.scaled_dot_product_attention(Q, K, V, is_causal=True)"),
    "bilinear": task("return self.b(x, z)", "torch.randn(5, 10), torch.randn(5, 12)", "x, z",
                     "self.b = nn.Bilinear(10, 12, 7)"),
}  # fmt: skip
CONVOLUTIONS = {
    "conv1d same": task("return self.c(x)", SIGNAL, init="self.c = nn.Conv1d(6, 8, 3, padding='same')"),
    "conv2d grouped": task("return self.c(x)", IMAGE,
                           init="self.c = nn.Conv2d(6, 8, (3, 2), stride=2, padding=1, dilation=2, groups=2)"),
    "conv2d function": task("return F.conv2d(x, self.w, stride=2)", IMAGE,
                            init="self.w = nn.Parameter(torch.randn(4, 6, 3, 3))"),
    "separable": task("return self.p(self.d(x))", IMAGE,
                      init="self.d = nn.Conv2d(6, 6, 3, groups=6)\nself.p = nn.Conv2d(6, 9, 1)"),
    "conv3d": task("return self.c(x)", VOLUME, init="self.c = nn.Conv3d(6, 4, 3, padding=1, bias=False)"),
    "transposed 2d": task("return self.c(x)", IMAGE,
                          init="self.c = nn.ConvTranspose2d(6, 8, 3, 2, 1, output_padding=1, groups=2, dilation=2)"),
    "transposed 3d": task("return self.c(x)", "torch.randn(2, 3, 4, 5, 6)",
                          init="self.c = nn.ConvTranspose3d(3, 4, 3, stride=2)"),
    "chain": task("x = F.relu(self.c(x)) + self.bias\nreturn self.p(torch.sigmoid(x * 2.0))", IMAGE,
                  init="self.c = nn.Conv2d(6, 8, 3)\nself.bias = nn.Parameter(torch.randn(8, 1, 1))\n"
                       "self.p = nn.MaxPool2d(2)"),
}  # fmt: skip
OTHERS = {
    "max pool 3d": task("return self.p(x)", VOLUME, init="self.p = nn.MaxPool3d(3, 2, padding=1, dilation=2)"),
    "max pool ceil": task("return self.p(x)", SIGNAL, init="self.p = nn.MaxPool1d(3, stride=2, ceil_mode=True)"),
    "avg pool": task("return F.avg_pool2d(x, 3, stride=2, padding=1)", IMAGE),
    "avg pool without padding": task("return self.p(x)", IMAGE,
                                     init="self.p = nn.AvgPool2d(3, 2, 1, count_include_pad=False)"),
    "adaptive": task("return self.p(x) * 2.0", IMAGE, init="self.p = nn.AdaptiveAvgPool2d((5, 6))"),
    "lp pool": task("return self.p(x)", IMAGE, init="self.p = nn.LPPool2d(2, 3, stride=2)"),
    "embedding": task("return self.e(x) + self.w", "torch.randint(0, 50, (4, 9))",
                      init="self.e = nn.Embedding(50, 24)\nself.w = nn.Parameter(torch.randn(9, 24))"),
    "nearest": task("return self.u(x)", IMAGE, init="self.u = nn.Upsample(scale_factor=2)"),
    "bilinear resize": task("return F.interpolate(x, size=(31, 29), mode='bilinear', align_corners=True)", IMAGE),
    "pixel shuffle": task("return F.pixel_shuffle(x, 2)", "torch.randn(2, 12, 5, 7)"),
    "pool without a stride": task(
        "return F.max_pool2d(x, self.window, stride=self.stride)", IMAGE, init="self.window, self.stride = 3, None"
    ),
    "rows of a weight by a matrix of numbers": task(
        "return self.table[ids]", "torch.randint(0, 9, (4, 7))", "ids", "self.table = nn.Parameter(torch.rand(9, 5))"
    ),
    "repeated half": task("return torch.repeat_interleave(x, 3, dim=1)", "torch.randn(4, 6, dtype=torch.bfloat16)"),
}  # fmt: skip
EVERY = {**PRODUCTS, **CONVOLUTIONS, **OTHERS}
