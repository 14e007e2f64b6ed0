"""Texture and surface objects against numpy: address modes, filters, read modes, layers, cubes and bounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from machine_launch import launch, program

from kernelwright.machine import MachineFault
from kernelwright.machine.texture import Texture

SOURCE = r"""
typedef cudaTextureObject_t T;
typedef cudaSurfaceObject_t S;
#define AT int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return
extern "C" __global__ void fetch(T t, const int* x, float* y, int n) { AT; y[i] = tex1Dfetch<float>(t, x[i]); }
extern "C" __global__ void line(T t, const float* x, float* y, int n) { AT; y[i] = tex1D<float>(t, x[i]); }
extern "C" __global__ void plane(T t, const float2* x, float* y, int n) { AT; y[i] = tex2D<float>(t, x[i].x, x[i].y); }
extern "C" __global__ void solid(T t, const float4* x, float* y, int n) {
  AT;
  y[i] = tex3D<float>(t, x[i].x, x[i].y, x[i].z);
}
extern "C" __global__ void layers(T t, const float2* x, float* y, int n) {
  AT;
  y[i] = tex2DLayered<float>(t, x[i].x, x[i].y, i % 7);
}
extern "C" __global__ void cube(T t, const float4* x, float* y, int n) {
  AT;
  y[i] = texCubemap<float>(t, x[i].x, x[i].y, x[i].z);
}
extern "C" __global__ void gather(T t, const float2* x, float4* y, int n) {
  AT;
  y[i] = tex2Dgather<float4>(t, x[i].x, x[i].y, 0);
}
extern "C" __global__ void bytes(T t, const float2* x, uchar4* y, int n) {
  AT;
  y[i] = tex2D<uchar4>(t, x[i].x, x[i].y);
}
extern "C" __global__ void units(T t, const float2* x, float4* y, int n) {
  AT;
  y[i] = tex2D<float4>(t, x[i].x, x[i].y);
}
extern "C" __global__ void levels(T t, const float2* x, float* y, int n) {
  AT;
  y[i] = tex2DLod<float>(t, x[i].x, x[i].y, 0.0f) +
         tex2DGrad<float>(t, x[i].x, x[i].y, make_float2(1, 0), make_float2(0, 1));
}
extern "C" __global__ void copy(S from, S to, int w, int h, int dx) {
  int x = threadIdx.x, y = blockIdx.x;
  if (x >= w || y >= h) return;
  float v;
  surf2Dread(&v, from, (x + dx) * 4, y, cudaBoundaryModeZero);
  surf2Dwrite(v * 2, to, x * 4, y);
}
extern "C" __global__ void clamp(S from, float* out, int x, int y) {
  surf2Dread(out, from, x * 4, y, cudaBoundaryModeClamp);
}
extern "C" __global__ void past(S to, int x) { surf2Dwrite(1.0f, to, x, 0); }
extern "C" __global__ void wide(S s) {
  ushort4 v = surf3Dread<ushort4>(s, threadIdx.x * 8, blockIdx.x, blockIdx.y);
  v.x += 1; v.w = v.y;
  surf3Dwrite(v, s, threadIdx.x * 8, blockIdx.x, blockIdx.y);
}
"""

HANDLE = 77


def texture(array: np.ndarray, **options: Any) -> Texture:
    return Texture(HANDLE, array.ctypes.data, **options)


def run(kernel: str, t: Texture, x: np.ndarray, out: np.ndarray) -> np.ndarray:
    n = len(x)
    launch(program(SOURCE), kernel, (n + 63) // 64, 64, [HANDLE, x, out, n], textures=[t])
    return out


def place(i: int, n: int, mode: str) -> int | None:
    """Returns the texel that an index names, None for the border."""
    if mode == "wrap":
        return i % n
    if mode == "mirror":
        return i % (2 * n) if i % (2 * n) < n else 2 * n - 1 - i % (2 * n)
    if mode == "border":
        return i if 0 <= i < n else None
    return min(max(i, 0), n - 1)


def texel(array: np.ndarray, index: tuple[int, ...], modes: tuple[str, ...]) -> float:
    """Returns array[..., y, x] for index (x, y, ...), 0.25 beyond the border."""
    at = [place(i, n, mode) for i, n, mode in zip(index, array.shape[::-1], modes, strict=True)]
    return 0.25 if None in at else float(array[tuple(reversed(at))])  # type: ignore[arg-type]


def sampled(array: np.ndarray, at: np.ndarray, modes: tuple[str, ...], normalized: bool, linear: bool) -> float:
    """Evaluates the programming guide's formulas for one coordinate vector (x, y, ...)."""
    sizes = array.shape[::-1]
    x = [float(a) * n if normalized else float(a) for a, n in zip(at, sizes, strict=True)]
    if not linear:
        return texel(array, tuple(math.floor(v) for v in x), modes)
    base = [math.floor(v - 0.5) for v in x]
    weight = [math.floor((v - 0.5 - b) * 256 + 0.5) / 256 for v, b in zip(x, base, strict=True)]
    total = 0.0
    for corner in range(1 << len(sizes)):
        upper = [corner >> a & 1 for a in range(len(sizes))]
        share = math.prod(w if u else 1 - w for w, u in zip(weight, upper, strict=True))
        total += share * texel(array, tuple(b + u for b, u in zip(base, upper, strict=True)), modes)
    return total


MODES = [("clamp", False), ("border", False), ("clamp", True), ("border", True), ("wrap", True), ("mirror", True)]


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize(("mode", "normalized"), MODES)
def test_address_modes_and_filters(mode: str, normalized: bool, linear: bool) -> None:
    rng = np.random.default_rng(4)
    options = {
        "address_modes": (mode,) * 3,
        "normalized_coords": normalized,
        "linear_filter": linear,
        "border": (0.25, 0, 0, 0),
    }
    for kernel, shape, size in (("line", "1d", (13,)), ("plane", "2d", (5, 9)), ("solid", "3d", (3, 4, 6))):
        array = rng.random(size, np.float32)
        axes = len(size)
        x = np.zeros((100, {1: 1, 2: 2, 3: 4}[axes]), np.float32)
        spread = 1 if normalized else np.array(size[::-1], np.float32)
        x[:, :axes] = rng.uniform(-1.5, 2.5, (100, axes)) * spread
        sizes = dict(zip(("width", "height", "depth"), size[::-1], strict=False))
        out = run(kernel, texture(array, shape=shape, **sizes, **options), x, np.zeros(100, np.float32))
        expected = [sampled(array, row[:axes], (mode,) * axes, normalized, linear) for row in x]
        np.testing.assert_allclose(out, expected, rtol=2e-6, atol=1e-6)


def test_linear_memory_gives_zero_outside_and_checks_its_bounds() -> None:
    array, x = np.arange(10, dtype=np.float32), np.array([0, 9, 10, -1, 5], np.int32)
    t = texture(array, width=10, kind="linear", shape="1d")
    with pytest.raises(MachineFault, match="not allocated"):
        run("fetch", t, x, np.zeros(5, np.float32))
    out = np.zeros(5, np.float32)
    memory = np.arange(10, dtype=np.int32)  # the launch lists it, as cudaMalloc'ed memory would be
    memory[:] = array.view(np.int32)
    t = texture(memory, width=10, kind="linear", shape="1d")
    source = program(SOURCE.replace("fetch(T t, ", "fetch(T t, const int* unused, "))
    launch(source, "fetch", 1, 32, [HANDLE, memory, x, out, 5], textures=[t])
    assert out.tolist() == [0, 9, 0, 0, 5]


def test_pitch_layers_cube_gather_and_levels() -> None:
    rng = np.random.default_rng(5)
    stack = rng.random((4, 6, 16), np.float32)
    x = rng.uniform(0, 6, (60, 2)).astype(np.float32)
    t = texture(stack, width=11, height=6, layers=4, shape="2d_layered", pitch=64, slice=6 * 64, linear_filter=True)
    out = run("layers", t, x, np.zeros(60, np.float32))
    expected = [sampled(stack[min(i % 7, 3), :, :11], x[i], ("clamp",) * 2, False, True) for i in range(60)]
    np.testing.assert_allclose(out, expected, rtol=2e-6)

    plane = stack[0]
    t = texture(plane, width=11, height=6, pitch=64)
    gathered = run("gather", t, x, np.zeros((60, 4), np.float32))
    for i in range(60):
        a, b = (math.floor(v - 0.5) for v in x[i].tolist())
        corners = [(a, b + 1), (a + 1, b + 1), (a + 1, b), (a, b)]
        assert gathered[i].tolist() == [texel(plane[:, :11], c, ("clamp",) * 2) for c in corners]
    out = run("levels", t, x, np.zeros(60, np.float32))
    assert out.tolist() == [2 * sampled(plane[:, :11], row, ("clamp",) * 2, False, False) for row in x]

    faces = np.arange(6, dtype=np.float32).reshape(6, 1, 1) + np.zeros((6, 8, 8), np.float32)
    directions = np.zeros((6, 4), np.float32)
    directions[:, :3] = [[1, 0.2, 0.1], [-1, 0.5, -0.3], [0.4, 1, 0.1], [0, -1, 0.2], [0.1, 0.2, 1], [0.3, 0.1, -1]]
    t = texture(faces, width=8, height=8, layers=6, shape="cube", normalized_coords=True)
    assert run("cube", t, directions, np.zeros(6, np.float32)).tolist() == [0, 1, 2, 3, 4, 5]


def test_read_modes_of_integers_and_halves() -> None:
    rng = np.random.default_rng(6)
    bytes_ = rng.integers(0, 256, (4, 5, 4), dtype=np.uint8)
    x = np.stack(np.meshgrid(np.arange(5), np.arange(4)), -1).reshape(-1, 2).astype(np.float32)
    options: dict[str, Any] = {"width": 5, "height": 4, "channel": "unsigned", "channel_bits": (8, 8, 8, 8)}
    out = run("bytes", texture(bytes_, **options), x, np.zeros((20, 4), np.uint8))
    assert np.array_equal(out.reshape(4, 5, 4), bytes_)
    out = run("units", texture(bytes_, normalized_float=True, **options), x, np.zeros((20, 4), np.float32))
    np.testing.assert_allclose(out.reshape(4, 5, 4), bytes_ / 255.0, rtol=1e-7)
    shorts = rng.integers(-32768, 32768, (4, 5, 2), dtype=np.int16)
    options = {"width": 5, "height": 4, "channel": "signed", "channel_bits": (16, 16, 0, 0), "normalized_float": True}
    out = run("units", texture(shorts, **options), x, np.zeros((20, 4), np.float32)).reshape(4, 5, 4)
    np.testing.assert_allclose(out[..., :2], np.maximum(shorts / 32767.0, -1), rtol=1e-6)
    assert np.all(out[..., 2] == 0) and np.all(out[..., 3] == 1)
    halves = rng.random((4, 5)).astype(np.float16)
    out = run("plane", texture(halves, width=5, height=4, channel_bits=(16, 0, 0, 0)), x, np.zeros(20, np.float32))
    assert np.array_equal(out.reshape(4, 5), halves.astype(np.float32))
    with pytest.raises(MachineFault, match="fetched as float"):
        run("units", texture(bytes_, width=5, height=4, channel="unsigned", channel_bits=(8,) * 4), x, out)
    with pytest.raises(MachineFault, match="no texture or surface"):
        launch(program(SOURCE), "plane", 1, 32, [HANDLE, x, out, 20])
    with pytest.raises(MachineFault, match="2D object is used as a 3D"):
        run("solid", texture(halves, width=5, height=4), np.zeros((5, 4), np.float32), out)


def test_surfaces() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.random((6, 10), np.float32), np.zeros((6, 10), np.float32)
    objects = [Texture(1, a.ctypes.data, 10, 6, surface=True), Texture(2, b.ctypes.data, 10, 6, surface=True)]
    loaded = program(SOURCE)
    launch(loaded, "copy", 6, 32, [1, 2, 10, 6, 3], textures=objects)
    assert np.array_equal(b[:, :7], 2 * a[:, 3:]) and np.all(b[:, 7:] == 0)
    out = np.zeros(1, np.float32)
    launch(loaded, "clamp", 1, 1, [1, out, 99, -5], textures=objects)
    assert out[0] == a[0, 9]
    for x, kind in ((40, "out-of-bounds-write"), (-4, "out-of-bounds-write"), (2, "misaligned-access")):
        with pytest.raises(MachineFault) as caught:
            launch(loaded, "past", 1, 1, [2, x], textures=objects)
        assert caught.value.fault.kind == kind
    cubes = rng.integers(0, 60000, (2, 3, 4, 4), dtype=np.uint16)
    expected = cubes.copy()
    expected[..., 0] += 1
    expected[..., 3] = expected[..., 1]
    options: dict[str, Any] = {"channel": "unsigned", "channel_bits": (16,) * 4, "surface": True}
    launch(loaded, "wide", (3, 2), 4, [3], textures=[Texture(3, cubes.ctypes.data, 4, 3, 2, shape="3d", **options)])
    assert np.array_equal(cubes, expected)
