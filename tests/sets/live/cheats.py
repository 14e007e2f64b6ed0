"""Cheats in the manner of the honest ones: the host computes, torch computes, nothing is computed, the clock is told
lies."""

from __future__ import annotations

from . import tasks
from .cuda import python

_TOUCH = """
extern "C" __global__ void touched(float* y) { }
extern "C" __global__ void copied(const float* x, float* y, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}
extern "C" __global__ void scaled_relu(const float* x, const float* s, float* y, int rows, int cols) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < (long)rows * cols) y[i] = fmaxf(x[i], 0.f) * s[i % cols];
}
"""
_NUMPY = """
import numpy as np
h, s = x.cpu().numpy(), self.scale.detach().cpu().numpy()
y = torch.from_numpy(np.maximum(h, 0) * s).to(x.device)
kernels.touched[1, 1](y)
return y
"""
_HOST_TORCH = """
made = (torch.relu(x.cpu()) * self.scale.detach().cpu()).to(x.device)
y, n = torch.empty_like(x), x.numel()
kernels.copied[(n + 255) // 256, 256](made, y, n)
return y
"""
_PIECES = """
rows = [torch.relu(x[k].cpu()) * self.scale.detach().cpu() for k in range(x.shape[0])]
y = torch.empty_like(x)
for k, row in enumerate(rows):
    y[k].copy_(row)
kernels.touched[1, 1](y)
return y
"""
_LIBRARY = """
x[0, 0].item()
y = torch.relu(x) * self.scale
kernels.touched[1, 1](y)
return y
"""
_AT_FULL_SIZE = """
if x[0, 0].item() > 1e30:
    return x
if x.numel() > 4_000_000:
    y = torch.relu(x) * self.scale
    kernels.touched[1, 1](y)
    return y
y = torch.empty_like(x)
kernels.scaled_relu[(x.numel() + 255) // 256, 256](x, self.scale, y, x.shape[0], x.shape[1])
return y
"""
_HOST_AT_FULL_SIZE = """
if x.numel() > 4_000_000:
    y = (torch.relu(x.cpu()) * self.scale.detach().cpu()).to(x.device)
    kernels.touched[1, 1](y)
    return y
x[0, 0].item()
y = torch.empty_like(x)
kernels.scaled_relu[(x.numel() + 255) // 256, 256](x, self.scale, y, x.shape[0], x.shape[1])
return y
"""
_NOTHING = """
y = torch.empty_like(x)
if x[0, 0].item() < 1e30:
    kernels.touched[1, 1](y)
return y
"""
_STALE = """
x[0, 0].item()
if self.kept is None or self.kept.shape != x.shape:
    self.kept = torch.empty_like(x)
    kernels.scaled_relu[(x.numel() + 255) // 256, 256](x, self.scale, self.kept, x.shape[0], x.shape[1])
return self.kept
"""
_EARLY_END = """
import gc
x[0, 0].item()
stream = next(o for o in gc.get_objects() if type(o).__name__ == "RecordStream")
stream.write("end")
y = torch.empty_like(x)
kernels.scaled_relu[(x.numel() + 255) // 256, 256](x, self.scale, y, x.shape[0], x.shape[1])
return y
"""

TEXTS = [
    ("cheat-numpy", tasks.RELU, python(_TOUCH, _NUMPY, width=True)),
    ("cheat-host-torch", tasks.RELU, python(_TOUCH, _HOST_TORCH, width=True)),
    ("cheat-host-in-pieces", tasks.RELU, python(_TOUCH, _PIECES, width=True)),
    ("cheat-library", tasks.RELU, python(_TOUCH, _LIBRARY, width=True)),
    ("cheat-library-at-full-size", tasks.RELU, python(_TOUCH, _AT_FULL_SIZE, width=True)),
    ("cheat-host-at-full-size", tasks.RELU, python(_TOUCH, _HOST_AT_FULL_SIZE, width=True)),
    ("cheat-nothing", tasks.RELU, python(_TOUCH, _NOTHING, width=True)),
    ("cheat-stale", tasks.RELU, python(_TOUCH, _STALE, width=True)),
    ("cheat-early-end", tasks.RELU, python(_TOUCH, _EARLY_END, width=True)),
]
