"""Reference modules of our own, in many styles, at sizes too large to run, for the tests of workloads."""

from __future__ import annotations

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\nimport math\n"


def _module(body: str) -> str:
    return HEAD + body


CONV_CHAIN = _module("""
class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, bias_shape, groups):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=1)
        self.norm = nn.GroupNorm(groups, out_channels)
        self.bias = nn.Parameter(torch.randn(bias_shape))
    def forward(self, x):
        return F.mish(self.norm(self.conv(x)) + self.bias) * 0.5
batch_size = 64
in_channels = 8
out_channels = 32
height, width = 128, 128
kernel_size = 3
bias_shape = (out_channels, 1, 1)
groups = 8
def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]
def get_init_inputs():
    return [in_channels, out_channels, kernel_size, bias_shape, groups]
""")

LITERAL_BIAS = _module("""
class Model(nn.Module):
    def __init__(self, i, o, k, bias_shape):
        super().__init__()
        self.conv = nn.ConvTranspose2d(i, o, k, stride=2, padding=1, output_padding=1)
        self.bias = nn.Parameter(torch.zeros(bias_shape))
    def forward(self, x):
        return torch.tanh(self.conv(x) - self.bias)
batch_size = 16
in_channels = 16
out_channels = 16
kernel_size = 4
bias_shape = (16, 1, 1)
size = 256
def get_inputs():
    return [torch.randn(batch_size, in_channels, size, size)]
def get_init_inputs():
    return [in_channels, out_channels, kernel_size, bias_shape]
""")

LINEAR_CHAIN = _module("""
class Model(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor
    def forward(self, x):
        x = F.gelu(self.linear(x) / self.divisor)
        return torch.softmax(x, dim=1)
batch_size = 1024
in_features = 8192
out_features = 8192
divisor = 10.0
def get_inputs():
    return [torch.rand(batch_size, in_features)]
def get_init_inputs():
    return [in_features, out_features, divisor]
""")

LITERALS = _module("""
class Model(nn.Module):
    def forward(self, x, y):
        return torch.relu(x) + y
def get_inputs():
    return [torch.randn(16, 1048576), torch.randn(16, 1048576)]
def get_init_inputs():
    return []
""")

LITERALS_IN_BOTH = _module("""
class Model(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.a = nn.Linear(features, hidden)
        self.b = nn.Linear(hidden, features)
    def forward(self, x):
        return self.b(torch.relu(self.a(x))) + x
def get_inputs():
    return [torch.randn(4096, 2048)]
def get_init_inputs():
    return [2048, 8192]
""")

LOCAL_NAMES = _module("""
class Model(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
def get_inputs(batch=32, heads=16):
    length = 2048
    head_dim = 64
    q = torch.randn(batch, heads, length, head_dim)
    return [q, torch.randn_like(q), torch.randn_like(q)]
def get_init_inputs():
    return []
""")

DERIVED = _module("""
class Model(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim
    def forward(self, x):
        a, b = x.chunk(2, dim=-1)
        return torch.logsumexp(a * b, dim=self.dim)
B = 64
W: int = 4 * 1024
H = 2 * W
shape = (B, 8, H)
def get_inputs():
    return [torch.randn(*shape)]
def get_init_inputs():
    return [2]
""")

EMBEDDING = _module("""
class Model(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.table = nn.Embedding(vocab, dim)
    def forward(self, ids, mask):
        return (self.table(ids) * mask.unsqueeze(-1)).sum(dim=1)
batch_size = 256
length = 512
vocab = 1000
dim = 96
def get_inputs():
    return [torch.randint(0, vocab, (batch_size, length)), torch.rand(batch_size, length) > 0.3]
def get_init_inputs():
    return [vocab, dim]
""")

CROSS_ENTROPY = _module("""
class Model(nn.Module):
    def forward(self, predictions, targets):
        return F.cross_entropy(predictions, targets)
batch_size = 32768
num_classes = 4096
def get_inputs():
    return [torch.rand(batch_size, num_classes), torch.randint(0, num_classes, (batch_size,))]
def get_init_inputs():
    return []
""")

TOPK = _module("""
class Model(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k
    def forward(self, x):
        return torch.topk(x, self.k, dim=-1)
rows = 4096
cols = 4096
k = 5
def get_inputs():
    return [torch.randn(rows, cols)]
def get_init_inputs():
    return [k]
""")

ARGMAX = _module("""
class Model(nn.Module):
    def forward(self, x):
        return torch.argmax(x, dim=1)
batch_size = 128
d1 = 512
d2 = 300
def get_inputs():
    return [torch.randn(batch_size, d1, d2)]
def get_init_inputs():
    return []
""")

LSTM = _module("""
class Model(nn.Module):
    def __init__(self, input_size, hidden_size, num_layers):
        super().__init__()
        self.rnn = nn.LSTM(input_size, hidden_size, num_layers, batch_first=True)
    def forward(self, x):
        out, (h, c) = self.rnn(x)
        return out[:, -1], h
batch_size = 64
seq_length = 512
input_size = 128
hidden_size = 64
num_layers = 2
def get_inputs():
    return [torch.randn(batch_size, seq_length, input_size)]
def get_init_inputs():
    return [input_size, hidden_size, num_layers]
""")

LENET = _module("""
class Model(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, num_classes)
    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))
batch_size = 4096
num_classes = 20
def get_inputs():
    return [torch.rand(batch_size, 1, 32, 32)]
def get_init_inputs():
    return [num_classes]
""")

RESIDUAL_NET = _module("""
class Block(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.a = nn.Conv2d(i, o, 3, stride, 1, bias=False)
        self.na = nn.BatchNorm2d(o)
        self.b = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.nb = nn.BatchNorm2d(o)
        self.skip = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))
    def forward(self, x):
        return F.relu(self.nb(self.b(F.relu(self.na(self.a(x))))) + self.skip(x))
class Model(nn.Module):
    def __init__(self, layers, num_classes=1000):
        super().__init__()
        rates = [r.item() for r in torch.linspace(0, 0.1, len(layers))]
        self.stem = nn.Conv2d(3, layers[0], 7, 2, 3)
        self.blocks = nn.Sequential(*[Block(i, o, 2) for i, o in zip(layers, layers[1:])])
        self.fc = nn.Linear(layers[-1], num_classes)
        self.scale = 1.0 + sum(rates)
    def forward(self, x):
        return self.fc(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1)) * self.scale
batch_size = 10
layers = [16, 32, 64, 128]
num_classes = 1000
def get_inputs():
    return [torch.randn(batch_size, 3, 224, 224)]
def get_init_inputs():
    return [layers, num_classes]
""")

PATCHES = _module("""
class Model(nn.Module):
    def __init__(self, image_size, patch_size, dim, heads, depth):
        super().__init__()
        assert image_size % patch_size == 0
        self.p = patch_size
        count = (image_size // patch_size) ** 2
        self.embed = nn.Linear(3 * patch_size**2, dim)
        self.position = nn.Parameter(torch.randn(1, count, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth)
    def forward(self, x):
        p = self.p
        x = x.unfold(2, p, p).unfold(3, p, p).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
        return self.encoder(self.embed(x) + self.position).mean(1)
image_size = 224
patch_size = 16
dim = 128
heads = 4
depth = 2
def get_inputs():
    return [torch.randn(2, 3, image_size, image_size)]
def get_init_inputs():
    return [image_size, patch_size, dim, heads, depth]
""")

DICT_INIT = _module("""
class Model(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(num_features))
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + self.eps) * self.weight.view(1, -1, 1, 1)
CONFIG = {"batch": 112, "num_features": 64, "height": 512}
def get_inputs():
    return [torch.rand(CONFIG["batch"], CONFIG["num_features"], CONFIG["height"], CONFIG["height"])]
def get_init_inputs():
    return {"num_features": CONFIG["num_features"], "eps": 1e-6}
""")

SCALARS = _module("""
class Model(nn.Module):
    def forward(self, a, s, n, nothing, flag):
        assert nothing is None and flag is True
        return a * s + n
M, N = 16384, 4096
def get_inputs():
    return [torch.rand(M, N), 3.14, 2, None, True]
def get_init_inputs():
    return []
""")

LIST_INPUT = _module("""
class Model(nn.Module):
    def forward(self, parts, table):
        return {"sum": torch.stack(parts).sum(0), "scaled": [p * table["scale"] for p in parts]}
batch_size = 512
n = 8192
def get_inputs():
    return [[torch.randn(batch_size, n), torch.randn(batch_size, n)], {"scale": torch.tensor(2.0)}]
def get_init_inputs():
    return []
""")

SYMMETRIC = _module("""
class Model(nn.Module):
    def forward(self, A, B):
        return torch.triu(A @ B)
N = 4096
def get_inputs():
    A = torch.rand(N, N)
    B = torch.rand(N, N)
    return [(A + A.T) / 2, torch.triu(B)]
def get_init_inputs():
    return []
""")

DIAGONAL = _module("""
class Model(nn.Module):
    def forward(self, d, B):
        return torch.diag(d) @ B
M = 4096
N = 4096
def get_inputs():
    return [torch.rand(N), torch.rand(N, M)]
def get_init_inputs():
    return []
""")

TWO_NAMES = _module("""
class Model(nn.Module):
    def forward(self, a, b):
        return a * b
rows_a = 8192
rows_b = 8192
cols = 777
def get_inputs():
    return [torch.randn(rows_a, cols), torch.randn(rows_b, cols)]
def get_init_inputs():
    return []
""")

PIXEL_SHUFFLE = _module("""
class Model(nn.Module):
    def __init__(self, r):
        super().__init__()
        self.r = r
    def forward(self, x):
        return F.pixel_unshuffle(F.pixel_shuffle(x, self.r), 2 * self.r)
batch_size = 8
channels = 64
height = 256
width = 192
r = 4
def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]
def get_init_inputs():
    return [r]
""")

NUMPY_INPUTS = _module("""
import numpy as np
class Model(nn.Module):
    def forward(self, x):
        return x.cumsum(dim=1)
batch_size = 64
n = 3000
def get_inputs():
    return [torch.from_numpy(np.random.rand(batch_size, n).astype(np.float32))]
def get_init_inputs():
    return []
""")

DATA_DEPENDENT = _module("""
class Model(nn.Module):
    def forward(self, x):
        if x.sum().item() > 1e9:
            return x
        return x - x[x > 0].mean()
batch_size = 48
n = 4096
def get_inputs():
    return [torch.randn(batch_size, n)]
def get_init_inputs():
    return []
""")

CUDA_NAMED = _module("""
class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(n, device="cuda"))
    def forward(self, x):
        return (x * self.scale).to("cuda").float()
batch_size = 128
n = 4099
def get_inputs():
    return [torch.randn(batch_size, n, device="cuda").cuda()]
def get_init_inputs():
    return [n]
""")

HALF = _module("""
class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b).to(torch.float32).softmax(-1).to(torch.float16)
M = 4096
K = 2048
N = 1024
def get_inputs():
    return [torch.randn(M, K).half(), torch.randn(K, N, dtype=torch.float16)]
def get_init_inputs():
    return []
""")

FREE_AXIS = _module("""
class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
    def forward(self, x):
        return torch.flip(torch.cumprod(torch.sigmoid(x), dim=self.dim), [self.dim])
batch_size = 128
input_shape = (40, 1000)
dim = 2
def get_inputs():
    return [torch.randn(batch_size, *input_shape)]
def get_init_inputs():
    return [dim]
""")

DECORATED = _module(
    """
from dataclasses import dataclass
from __future__ import annotations
""".replace("from __future__ import annotations\n", "")
    + """
@dataclass
class Config:
    width: int = 64
    depth: int = 3
@torch.jit.script
def swish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)
class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(config.width, config.width) for _ in range(config.depth)])
    def forward(self, x):
        for layer in self.layers:
            x = swish(layer(x))
        return x
batch_size = 100000
config = Config()
def get_inputs():
    return [torch.randn(batch_size, config.width)]
def get_init_inputs():
    return [config]
"""
)

TINY = _module("""
class Model(nn.Module):
    def forward(self, x):
        return x.sum()
def get_inputs():
    return [torch.randn(5)]
""")

RUNS: dict[str, str] = {
    name.lower(): value
    for name, value in list(globals().items())
    if name.isupper() and isinstance(value, str) and name != "HEAD"
}
"""Every module above, by name: each of them runs at some size."""

_PLAIN = "def get_inputs():\n    return [torch.randn(64, 512)]\ndef get_init_inputs():\n    return []\n"
FAILS: dict[str, tuple[str, str]] = {
    "syntax": ("def broken(:\n", "not valid Python at line 1"),
    "no model": (HEAD + _PLAIN, "defines no Model"),
    "no inputs": (HEAD + "class Model(nn.Module):\n    pass\n", "defines no get_inputs"),
    "import": (HEAD + "import no_such_package_here\n" + _PLAIN, "ModuleNotFoundError"),
    "raises": (
        HEAD + "class Model(nn.Module):\n    def forward(self, x):\n        raise ValueError('on purpose')\n" + _PLAIN,
        "ValueError: on purpose",
    ),
    "exits": (
        HEAD + "class Model(nn.Module):\n    def forward(self, x):\n        raise SystemExit(0)\n" + _PLAIN,
        "SystemExit",
    ),
    "nothing": (
        HEAD + "class Model(nn.Module):\n    def forward(self, x):\n        pass\n" + _PLAIN,
        "returns nothing",
    ),
    "text": (
        HEAD + "class Model(nn.Module):\n    def forward(self, x):\n        return 'x'\n" + _PLAIN,
        "returns a str",
    ),
    "empty output": (
        HEAD + "class Model(nn.Module):\n    def forward(self, x):\n        return x[:0]\n" + _PLAIN,
        "outputs are empty",
    ),
    "dropout": (
        HEAD + "class Model(nn.Module):\n    def forward(self, x):\n        return F.dropout(x, 0.5)\n" + _PLAIN,
        "two runs on the same inputs and weights differ",
    ),
    "inputs not a list": (
        HEAD
        + "class Model(nn.Module):\n    def forward(self, x):\n        return x\ndef get_inputs():\n    return 5\n",
        "get_inputs returns",
    ),
    "constructor": (
        HEAD + "class Model(nn.Module):\n    def __init__(self, n):\n        super().__init__()\n" + _PLAIN,
        "missing 1 required positional argument",
    ),
}
"""Modules that cannot be judged, with words that the error must contain."""
