"""Runs a decoding step of a small decoder on the CPU in compiled code: `csrc/step.cpp`, built with g++ on first use.

Torch computes a step as some 250 operators; matrix products of few rows are slow there, and their rounding may depend
on the number of rows. The compiled step takes less than half of the time (`benchmarks/starter_cpu.py`), and a row's
result does not depend on other rows. Torch does the step where the code cannot be built, or does not support the
checkpoint's shape.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernelwright.config import cache_dir
from kernelwright.errors import ConfigError

if TYPE_CHECKING:
    from kernelwright.inference.decoder import Cache, Decoder

SOURCE = Path(__file__).resolve().parent / "csrc" / "step.cpp"
FLAGS = ("-std=c++20", "-O3", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-w")
LANES, PANEL = 8, 16
ROWS_A_THREAD = 2
"""The least number of rows per thread: each thread reads all weights."""

_pointer = ctypes.c_void_p


class _Layer(ctypes.Structure):
    """Mirrors `Layer` of step.cpp."""

    _fields_ = [(n, _pointer) for n in ("norm", "qkv", "bias", "out", "norm_after", "gate_up", "down")]


class _CompiledModel(ctypes.Structure):
    """Mirrors `Model` of step.cpp."""

    _fields_ = [
        *(
            (n, ctypes.c_int64)
            for n in ("vocabulary", "hidden", "layers", "heads", "kv_heads", "width", "feed_forward")
        ),
        ("epsilon", ctypes.c_double),
        *((n, _pointer) for n in ("embedding", "norm", "head", "cosines", "sines", "layer")),
    ]


class _Cache(ctypes.Structure):
    """Mirrors `Cache` of step.cpp."""

    _fields_ = [("keys", _pointer), ("values", _pointer), ("rows", ctypes.c_int64), ("capacity", ctypes.c_int64)]


class CompiledStep:
    """Computes `Decoder.step` for a float32 decoder on the CPU whose weights are exactly bfloat16 values."""

    def __init__(self, decoder: Decoder, threads: int) -> None:
        """Builds the code and packs the weights. Raises `ConfigError` with the reason for an unsupported decoder."""
        _check(decoder)
        self._function = _library().kw_step
        self._vocabulary = decoder.config.vocabulary
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._held: list[object] = [decoder]
        self._model = self._fill(decoder)

    def __call__(self, tokens: Tensor, positions: Tensor, cache: Cache) -> Tensor:
        """Returns logits (rows, vocabulary) after one more token for the first rows of a cache.

        `tokens` and `positions` are int64 of shape (rows,).
        """
        rows = tokens.shape[0]
        tokens, positions = tokens.contiguous(), positions.contiguous()
        logits = torch.empty(rows, self._vocabulary)
        held = _Cache(cache.keys.data_ptr(), cache.values.data_ptr(), cache.keys.shape[1], cache.capacity)

        def some(first: int, last: int) -> None:
            pointers = (tokens.data_ptr(), positions.data_ptr())
            self._function(
                ctypes.byref(self._model), *pointers, first, last - first, ctypes.byref(held), logits.data_ptr()
            )

        parts = max(1, min(self._threads, rows // ROWS_A_THREAD))
        bounds = [rows * n // parts for n in range(parts + 1)]
        if self._pool is None or parts == 1:
            some(0, rows)
        else:
            list(self._pool.map(some, bounds[:-1], bounds[1:]))
        return logits

    def _fill(self, decoder: Decoder) -> _CompiledModel:
        layers = (_Layer * decoder.config.layers)()
        for layer, weights in zip(layers, decoder.layers, strict=True):
            layer.norm, layer.norm_after = self._plain(weights.norm), self._plain(weights.norm_after)
            layer.bias = None if weights.bias is None else self._plain(weights.bias)
            for name in ("qkv", "out", "gate_up", "down"):
                setattr(layer, name, self._panels(getattr(weights, name)))
        self._held.append(layers)
        c = decoder.config
        feed_forward = decoder.layers[0].down.shape[1]
        sizes = (c.vocabulary, c.hidden, c.layers, c.heads, c.kv_heads, c.head_width, feed_forward)
        plain = [self._plain(t) for t in (decoder.embedding, decoder.norm)]
        angles = [self._plain(t) for t in (decoder.cos, decoder.sin)]
        return _CompiledModel(*sizes, c.epsilon, *plain, self._panels(decoder.head), *angles, ctypes.addressof(layers))

    def _plain(self, tensor: Tensor) -> int:
        """Returns the address of a float32 tensor's values and keeps the tensor alive."""
        self._held.append(tensor)
        return tensor.data_ptr()

    def _panels(self, matrix: Tensor) -> int:
        """Packs a matrix (outputs, inputs) as zero-padded bfloat16 panels (outputs / 16, inputs, 16).

        Returns the address of the panels.
        """
        outputs, inputs = matrix.shape
        padded = torch.zeros(-(-outputs // PANEL) * PANEL, inputs, dtype=torch.bfloat16)
        padded[:outputs] = matrix.bfloat16()
        panels = padded.view(-1, PANEL, inputs).transpose(1, 2).contiguous()
        self._held.append(panels)
        return panels.data_ptr()


def _check(decoder: Decoder) -> None:
    c = decoder.config
    widths = (c.hidden, c.head_width, decoder.layers[0].down.shape[1])
    if decoder.device.type != "cpu" or decoder.dtype != torch.float32:
        raise ConfigError("the compiled step is for float32 on the processor")
    if any(width % LANES for width in widths):
        raise ConfigError(f"the compiled step needs widths that are multiples of {LANES}, not {widths}")
    matrices = [m for layer in decoder.layers for m in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    if not all(torch.equal(m.bfloat16().float(), m) for m in [*matrices, decoder.head]):
        raise ConfigError("the compiled step needs weights that are bfloat16")


@cache
def _library() -> ctypes.CDLL:
    """Builds the code, or takes it from the cache. Raises `ConfigError` without a compiler, or where it fails."""
    compiler = shutil.which(os.environ.get("CXX") or "g++")
    if compiler is None:
        raise ConfigError("there is no C++ compiler for the compiled step", hint="install g++")
    command = [compiler, *FLAGS, *_instructions()]
    digest = hashlib.sha256(SOURCE.read_bytes() + repr(command).encode()).hexdigest()[:16]
    target = cache_dir() / f"step-{digest}.so"
    try:
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                built = Path(folder) / target.name
                subprocess.run([*command, str(SOURCE), "-o", str(built)], check=True, capture_output=True, timeout=300)
                os.replace(built, target)
        library = ctypes.CDLL(str(target))
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"the compiled step cannot be built: {error}") from error
    library.kw_step.restype = None
    library.kw_step.argtypes = [_pointer, _pointer, _pointer, ctypes.c_int64, ctypes.c_int64, _pointer, _pointer]
    return library


def _instructions() -> tuple[str, ...]:
    """Returns the compiler flags for vector instructions, where the CPU has those of x86-64-v3."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ()
    words = next((line for line in text.splitlines() if line.startswith("flags")), "").split()
    return ("-march=x86-64-v3",) if {"avx2", "fma", "bmi2", "f16c", "movbe"} <= set(words) else ()
