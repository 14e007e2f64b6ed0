"""The comparison: exact rules, tolerances calibrated on honest and dishonest implementations, and helpful reasons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.evaluation.compare.on_host import Array, Comparison, OutputSpec, bound, compare
from kernelwright.evaluation.tensor_bytes import TensorBytes
from kernelwright.evaluation.trials import noise
from kernelwright.tasks import distributions, metric, reference_runs
from kernelwright.tasks import inputs as task_inputs

f = np.float32
Candidate = Callable[..., list[np.ndarray]]


class Reference(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def judge(
    function: Callable[..., Any],
    shapes: list[tuple[int, ...]],
    candidate: Candidate,
    kind: str,
    unit: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Comparison:
    """Compares a reference's runs with a numpy candidate as the judge does, second look included."""
    draw = torch.rand if unit else torch.randn
    namespace = {"get_inputs": lambda: [draw(*s).to(dtype) for s in shapes]}
    values = task_inputs.make_inputs(namespace, kind, seed=5)  # type: ignore[arg-type]
    model = Reference(function)
    exact = reference_runs.reference_outputs(model, values, torch.float64)
    honest = reference_runs.reference_outputs(model, values)
    honest = reference_runs.widen_honest(model, {}, values, exact, honest)
    low = reference_runs.low_precision_error(model, {}, values, exact)
    name = str(dtype).removeprefix("torch.")
    with np.errstate(all="ignore"):
        results = candidate(*(v.float().numpy() for v in values))
    given_outputs = [Array(narrow(np.asarray(r), name), name) for r in results]
    spec = [OutputSpec(str(h.dtype).removeprefix("torch."), tuple(h.shape)) for h in honest]

    def nearby(run: int) -> list[np.ndarray] | None:
        moved = reference_runs.nearby_outputs(model, {}, values, 0, *noise(5, run))
        return None if moved is None else [t.numpy() for t in moved]

    own = [h.double().numpy() for h in honest]
    return compare(given_outputs, [e.numpy() for e in exact], own, spec, low_error=low, nearby=nearby)


def narrow(array: np.ndarray, dtype: str) -> np.ndarray:
    """Returns a candidate's float32 result after it was stored in a narrower dtype."""
    if dtype == "bfloat16":
        return torch.from_numpy(np.ascontiguousarray(array)).bfloat16().float().numpy()
    return array.astype(dtype)


# Honest implementations, as kernels of different style would do it: float32 throughout


def running_sum(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """Sums with one accumulator per output, first to last."""
    return np.add.accumulate(np.moveaxis(x, axis, 0), axis=0, dtype=f)[-1]


def kahan_sum(x: np.ndarray) -> np.ndarray:
    total, lost = np.zeros(x.shape[:-1], f), np.zeros(x.shape[:-1], f)
    for j in range(x.shape[-1]):
        y = x[..., j] - lost
        t = total + y
        total, lost = t, (t - total) - y
    return total


def fast(x: np.ndarray) -> np.ndarray:
    """Moves every value by up to two units in the last place."""
    noise = np.random.default_rng(0).uniform(-2, 2, x.shape)
    return (x * (1 + noise * 2.0**-23)).astype(f)


def naive_matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    total = np.zeros((a.shape[0], b.shape[1]), f)
    for k in range(a.shape[1]):
        total += a[:, k : k + 1] * b[k : k + 1]
    return total


def online_softmax(x: np.ndarray) -> np.ndarray:
    peak, total = np.full(x.shape[0], -np.inf, f), np.zeros(x.shape[0], f)
    for j in range(x.shape[1]):
        higher = np.maximum(peak, x[:, j])
        total = total * np.exp(peak - higher) + np.exp(x[:, j] - higher)
        peak = higher
    return fast(np.exp(x - peak[:, None]) / total[:, None])


def normalise(x: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return ((x - mean[:, None]) / np.sqrt(np.maximum(variance, 0) + f(1e-5))[:, None]).astype(f)


def two_pass_norm(x: np.ndarray) -> np.ndarray:
    mean = running_sum(x) / f(x.shape[1])
    return normalise(x, mean, running_sum((x - mean[:, None]) ** 2) / f(x.shape[1]))


def one_pass_norm(x: np.ndarray) -> np.ndarray:
    mean = running_sum(x) / f(x.shape[1])
    return normalise(x, mean, running_sum(x * x) / f(x.shape[1]) - mean * mean)


def welford_norm(x: np.ndarray) -> np.ndarray:
    mean, m2 = np.zeros(x.shape[0], f), np.zeros(x.shape[0], f)
    for j in range(x.shape[1]):
        delta = x[:, j] - mean
        mean = mean + delta / f(j + 1)
        m2 = m2 + delta * (x[:, j] - mean)
    return normalise(x, mean, m2 / f(x.shape[1]))


def naive_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    return naive_matmul(online_softmax(naive_matmul(q, np.ascontiguousarray(k.T)) / f(8)), v)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.T / 8, -1) @ v


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


def mse(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return ((a - b) ** 2).mean()


def layer_norm(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:])


def row_sum(x: torch.Tensor) -> torch.Tensor:
    return x.sum(1)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, 1)


def cumprod(x: torch.Tensor) -> torch.Tensor:
    return x.cumprod(1)


def frobenius(x: torch.Tensor) -> torch.Tensor:
    return x / torch.norm(x)


ROWS = [(8, 4096)]
MM = [(9, 4096), (4096, 17)]
QKV = [(33, 64), (65, 64), (65, 32)]
HONEST: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], Candidate]] = {
    "running sum": (row_sum, [(8, 16384)], lambda x: [running_sum(x)]),
    "kahan sum": (row_sum, [(8, 16384)], lambda x: [kahan_sum(x)]),
    "mean over rows": (lambda x: x.mean(1), [(2, 4096, 16)], lambda x: [running_sum(x, 1) / f(4096)]),
    "naive matmul": (matmul, MM, lambda a, b: [naive_matmul(a, b)]),
    "online softmax": (softmax, ROWS, lambda x: [online_softmax(x)]),
    "two-pass norm": (layer_norm, ROWS, lambda x: [two_pass_norm(x)]),
    "one-pass norm": (layer_norm, ROWS, lambda x: [one_pass_norm(x)]),
    "welford norm": (layer_norm, ROWS, lambda x: [welford_norm(x)]),
    "fast sigmoid": (torch.sigmoid, ROWS, lambda x: [fast(1 / (1 + np.exp(-x)))]),
    "softplus by log of 1 + exp": (
        F.softplus,
        ROWS,
        lambda x: [np.where(x > 20, x, np.log(1 + np.exp(np.minimum(x, 20)))).astype(f)],
    ),
    "elu by exp - 1": (F.elu, ROWS, lambda x: [np.where(x > 0, x, np.exp(np.minimum(x, 0)) - f(1)).astype(f)]),
    "running cumsum": (lambda x: x.cumsum(1), [(8, 4000)], lambda x: [np.add.accumulate(x, 1, dtype=f)]),
    "running cumprod": (cumprod, [(8, 4000)], lambda x: [np.multiply.accumulate(x, 1, dtype=f)]),
    "mse in one accumulator": (
        mse,
        [(32, 4096), (32, 4096)],
        lambda a, b: [np.asarray(running_sum(((a - b) ** 2).ravel()) / f(a.size))],
    ),
    "signed mean that nearly cancels": (
        lambda a, b: (a - b).mean(),
        [(32, 4096), (32, 4096)],
        lambda a, b: [np.asarray(running_sum((a - b).ravel()) / f(a.size))],
    ),
    "frobenius": (frobenius, ROWS, lambda x: [(x / np.sqrt(running_sum((x * x).ravel()))).astype(f)]),
    "naive attention": (attention, QKV, lambda q, k, v: [naive_attention(q, k, v)]),
}


@pytest.mark.parametrize("kind", [*distributions.DISTRIBUTIONS, *distributions.HARDENING])
@pytest.mark.parametrize("name", HONEST)
def test_honest_implementations_pass(name: str, kind: str) -> None:
    function, shapes, candidate = HONEST[name]
    if name == "one-pass norm" and kind in ("far_below", "far_above"):
        pytest.skip("its variance is lost in rounding there, which is a fault: see the next test")
    for unit in (False, True):
        result = judge(function, shapes, candidate, kind, unit)
        if name == "running cumprod" and kind in ("constant_rows", "shifted", "tied_rows"):
            continue  # overflows: such a distribution is dropped before anything is judged
        assert result.passed, (unit, result)


@pytest.mark.parametrize("kind", ["far_below", "far_above"])
def test_a_variance_by_difference_of_moments_fails_far_from_zero(kind: str) -> None:
    function, shapes, candidate = HONEST["one-pass norm"]
    assert not judge(function, shapes, candidate, kind, False).passed


def half(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float16).astype(f)


def tf32(x: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(x).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(f)


def truncated_product(x: np.ndarray, length: int) -> np.ndarray:
    product = np.multiply.accumulate(x, 1, dtype=f)
    product[:, length:] = 0
    return product


DISHONEST: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], Candidate]] = {
    "matmul in fp16, K=64": (matmul, [(33, 64), (64, 65)], lambda a, b: [naive_matmul(half(a), half(b))]),
    "matmul in tf32, K=64": (matmul, [(33, 64), (64, 65)], lambda a, b: [naive_matmul(tf32(a), tf32(b))]),
    "matmul in tf32, K=4096": (matmul, MM, lambda a, b: [naive_matmul(tf32(a), tf32(b))]),
    "relu in fp16": (torch.relu, ROWS, lambda x: [np.maximum(half(x), 0)]),
    "sigmoid in fp16": (torch.sigmoid, ROWS, lambda x: [half(1 / (1 + np.exp(-x)))]),
    "attention in fp16": (attention, QKV, lambda q, k, v: [naive_attention(half(q), half(k), half(v))]),
    "sampled sum": (row_sum, [(8, 16384)], lambda x: [running_sum(x[:, ::10]) * f(10)]),
    "sum without the last element": (row_sum, [(8, 16384)], lambda x: [running_sum(x[:, :-1])]),
    "mse of every second row": (
        mse,
        [(32, 4096), (32, 4096)],
        lambda a, b: [np.asarray(((a - b)[::2] ** 2).mean(dtype=f))],
    ),
    "cumprod cut off": (cumprod, [(8, 4000)], lambda x: [truncated_product(x, 40)]),
    "zeros for softmax": (softmax, [(4, 65536)], lambda x: [np.zeros_like(x)]),
    "mean of V for attention": (
        attention,
        QKV,
        lambda q, k, v: [np.broadcast_to(v.mean(0), (33, 32)).astype(f)],
    ),
    "rank-1 matmul": (
        matmul,
        MM,
        lambda a, b: [(a.sum(1)[:, None] * b.sum(0)[None] / f(4096)).astype(f)],
    ),
    "statistics of half a row": (
        layer_norm,
        ROWS,
        lambda x: [((x - x[:, :2048].mean(1, keepdims=True)) / x[:, :2048].std(1, keepdims=True)).astype(f)],
    ),
    "zeros for a normalised tensor": (frobenius, [(64, 4096)], lambda x: [np.zeros_like(x)]),
    "ones for a maximum": (lambda x: x.amax(1), ROWS, lambda x: [np.ones(x.shape[0], f)]),
    "constant hinge": (
        lambda a, b: (1 - a * b).clamp(min=0).mean(),
        [(128, 1), (128, 1)],
        lambda a, b: [np.asarray(1 - b.mean() / 2, f)],
    ),
    "input for relu": (torch.relu, ROWS, lambda x: [x]),
}


@pytest.mark.parametrize("name", DISHONEST)
def test_dishonest_implementations_fail_whatever_the_task_draws(name: str) -> None:
    function, shapes, candidate = DISHONEST[name]
    for unit in (False, True):
        kinds = ("own", "uniform", "normal", "heavy_tail")
        results = {kind: judge(function, shapes, candidate, kind, unit) for kind in kinds}
        assert not all(r.passed for r in results.values()), (unit, results)
        assert not results["normal"].passed, (unit, results["normal"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_dtypes_accept_their_own_rounding_and_nothing_lower(dtype: torch.dtype) -> None:
    shapes: list[tuple[int, ...]] = [(33, 256), (256, 65)]
    bits = {torch.float16: 4, torch.bfloat16: 5}[dtype]

    def lower(x: np.ndarray) -> np.ndarray:
        mantissa, exponent = np.frexp(x)
        return np.ldexp(np.round(mantissa * 2**bits) / 2**bits, exponent).astype(f)

    def chain(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 1.5) + 0.25

    assert judge(matmul, shapes, lambda a, b: [naive_matmul(a, b)], "normal", dtype=dtype).passed
    assert not judge(matmul, shapes, lambda a, b: [naive_matmul(lower(a), lower(b))], "normal", dtype=dtype).passed
    name = str(dtype).removeprefix("torch.")
    step_by_step = judge(
        chain, ROWS, lambda x: [narrow(np.maximum(narrow(x * f(1.5), name), 0) + f(0.25), name)], "own", dtype=dtype
    )
    assert step_by_step.passed, step_by_step
    assert not judge(chain, ROWS, lambda x: [np.maximum(lower(x) * f(1.5), 0) + f(0.25)], "own", dtype=dtype).passed


def one(out: np.ndarray, ref: np.ndarray, honest: np.ndarray | None = None, **options: Any) -> Comparison:
    name = str(out.dtype)
    wide = ref.astype(np.float64) if ref.dtype.kind == "f" else ref
    own = None if honest is None else [honest]
    return compare([Array(out, name)], [wide], own, [OutputSpec(name, ref.shape)], **options)


def test_count_shape_and_dtype_are_exact() -> None:
    x = np.ones((2, 3), f)
    spec = [OutputSpec("float32", (2, 3))]
    assert compare([], [x], [x], spec).reason == "the reference returns 1 output, the candidate 0"
    twice = compare([Array(x, "float32")] * 2, [x], [x], spec)
    assert not twice.passed and "the candidate 2" in twice.reason
    flat = compare([Array(x.ravel(), "float32")], [x], [x], spec)
    assert flat.reason == "output 0 has shape [6], expected [2, 3]" and flat.max_rel_error is None
    narrow_one = compare([Array(x.astype(np.float16), "float16")], [x], [x], spec)
    assert narrow_one.reason == "output 0 has dtype float16, expected float32"
    assert not compare([Array(x, "bfloat16")], [x], [x], spec).passed


def test_integers_and_booleans_are_exact() -> None:
    index = np.array([3, 70000, 5], np.int64)
    assert one(index, index).passed
    off = one(index + np.array([0, 1, 0]), index)
    assert not off.passed and "differs at [1]: got 70001, expected 70000" in off.reason and off.tolerance == 0.0
    mask = np.array([True, False])
    assert one(mask, mask).passed and not one(~mask, mask).passed


def test_an_index_of_the_references_own_precision_is_right() -> None:
    """Saturated values tie in float32 and not in float64: neither answer is wrong, and no third one is right."""
    exact, own = np.array([832, 5, 7]), np.array([0, 5, 9])
    spec = [OutputSpec("int64", (3,))]

    def passes(values: list[int], honest: np.ndarray | None = own) -> bool:
        found = [Array(np.array(values), "int64")]
        return compare(found, [exact], None if honest is None else [honest], spec).passed

    assert passes([832, 5, 7]) and passes([0, 5, 9]) and passes([832, 5, 9])
    assert not passes([0, 5, 8]) and not passes([1, 5, 7]) and not passes([0, 5, 9], None)


def test_nan_and_infinity_must_match() -> None:
    ref = np.array([1.0, np.nan, np.inf, -np.inf] * 4)
    good = ref.astype(f)
    assert one(good, ref).passed
    for place, value in ((0, np.nan), (1, 1.0), (2, -np.inf), (2, 1e30), (0, np.inf), (3, np.nan)):
        bad = good.copy()
        bad[place] = value
        result = one(bad, ref, good)
        assert not result.passed and f"[{place}]" in result.reason


def test_a_declared_dtype_may_overflow_where_float64_does_not() -> None:
    ref = np.array([1.0, 1e6] * 8)
    with np.errstate(over="ignore"):
        honest = ref.astype(np.float16)
    assert np.isinf(honest[1])
    assert one(honest, ref, honest).passed
    wrong = honest.copy()
    wrong[1] = -np.inf
    assert not one(wrong, ref, honest).passed


def test_zero_references_leave_room_for_rounding_only() -> None:
    ref = np.zeros((4, 64))
    assert one(np.full((4, 64), 1e-8, f), ref).passed
    assert not one(np.full((4, 64), 1e-5, f), ref).passed
    rows = np.vstack([np.zeros((1, 64)), np.full((3, 64), 100.0)])
    off = rows.astype(f)
    off[0, 5] = 1e-6
    assert one(off, rows).passed
    off[0, 5] = 1e-2
    assert not one(off, rows).passed


def test_values_below_the_normal_range_may_be_flushed() -> None:
    ref = np.full(64, 1e-39)
    assert one(np.zeros(64, f), ref).passed
    assert not one(np.zeros(64, f), np.full(64, 1e-30)).passed


def test_an_ill_conditioned_place_gets_room_and_only_that_place() -> None:
    ref = np.ones((2, 64))
    honest = ref.astype(f)
    honest[0] += f(1e-3)
    out = ref.astype(f)
    out[0] += f(4e-3)
    assert one(out, ref, honest).passed
    out[1] += f(4e-3)
    assert not one(out, ref, honest).passed


def test_one_wrong_element_among_many_fails() -> None:
    ref = np.random.default_rng(0).normal(size=(64, 1000))
    out = ref.astype(f)
    out[63, 999] += 0.01
    result = one(out, ref, ref.astype(f))
    assert not result.passed
    assert "differs at [63, 999]" in result.reason and "1 of 64000 elements are wrong" in result.reason


def test_task_tolerance_replaces_ours() -> None:
    ref = np.ones(64)
    out = np.full(64, 1.01, f)
    assert not one(out, ref).passed
    assert one(out, ref, tolerance=0.02).passed
    assert not one(ref.astype(f) * f(1 + 1e-6), ref, tolerance=0.0).passed
    assert one(ref.astype(f), ref, tolerance=0.0).passed


def test_the_ruler_tightens_but_never_below_the_strict_bound() -> None:
    assert bound("float32", None) == bound("float32", 1.0) == 1e-4
    assert bound("float32", 1.2e-4) == pytest.approx(6e-5)
    assert bound("float32", 5e-5) == 3e-5
    assert bound("float32", 1e-6) == 1e-4  # averaged away: nothing to separate
    assert bound("float32", float("nan")) == 1e-4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x * 0, "all zero"),
        (lambda x: x * 2, "2 times the expected"),
        (lambda x: x.T.copy(), "last two dimensions are swapped"),
        (lambda x: np.where(np.arange(64) >= 60, np.nan, x), "256 are NaN"),
        (lambda x: np.where(np.arange(64) >= 60, 0, x), "indices >= 60 of dimension 1 (size 64)"),
        (lambda x: np.where(np.arange(64)[:, None] == 3, 9, x), "index 3 of dimension 0"),
        (lambda x: np.where(np.arange(64) % 16 == 15, 9, x), "every 16th index of dimension 1, from 15"),
        (lambda x: np.where(np.arange(64) % 8 == 1, 9, x), "every 8th index of dimension 1, from 1"),
        (lambda x: np.where(np.isin(np.arange(64), (0, 63)), 9, x), "both ends of dimension 1"),
    ],
)
def test_reasons_name_the_pattern(change: Callable[[np.ndarray], np.ndarray], words: str) -> None:
    ref = np.random.default_rng(1).normal(size=(64, 64))
    result = one(change(ref).astype(f), ref, ref.astype(f))
    assert not result.passed and words in result.reason and "\n" not in result.reason


def test_complex_and_empty_and_scalar_outputs() -> None:
    z = (np.arange(16) + 1j * np.arange(16)[::-1]).astype(np.complex64)
    spec = [OutputSpec("complex64", (16,))]
    assert compare([Array(z, "complex64")], [z.astype(np.complex128)], [z], spec).passed
    assert not compare([Array(z.conj(), "complex64")], [z.astype(np.complex128)], [z], spec).passed
    assert one(np.zeros((0, 4), f), np.zeros((0, 4))).passed
    assert one(np.asarray(2.0, f), np.asarray(2.0)).passed
    assert not one(np.asarray(2.1, f), np.asarray(2.0)).passed


def test_bfloat16_bytes_are_widened() -> None:
    bits = torch.tensor([1.0, -2.5, 3e38], dtype=torch.bfloat16).view(torch.uint8).numpy().tobytes()
    array = Array.of(TensorBytes(bits, "bfloat16", (3,)))
    assert array.values.dtype == np.float32 and array.dtype == "bfloat16" and array.values[1] == -2.5


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(1, 70), min_size=0, max_size=3).map(tuple),
    values=st.integers(0, 2**32 - 1),
    damage=st.sampled_from(["none", "nan", "inf", "zero", "huge"]),
)
def test_any_float32_content_gets_an_answer(shape: tuple[int, ...], values: int, damage: str) -> None:
    rng = np.random.default_rng(values)
    ref = (rng.normal(size=shape) * 10.0 ** rng.integers(-30, 30)).astype(f).astype(np.float64)
    out = ref.astype(f)
    flat = out.reshape(-1)
    flat[rng.integers(flat.size)] = {"none": flat[0], "nan": np.nan, "inf": np.inf, "zero": 0, "huge": 3e38}[damage]
    result = one(flat.reshape(shape), ref, ref.astype(f))
    assert result.passed == bool(np.array_equal(flat.reshape(shape), ref)) or damage in ("none", "zero")
    assert result.passed or result.reason


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 200), min_size=0, max_size=4).map(tuple))
def test_segments_cover_every_element_once(shape: tuple[int, ...]) -> None:
    size = int(np.prod(shape, dtype=np.int64))
    if size > 10**6:
        return
    starts = metric.segment_starts(shape)
    assert starts[0] == 0 and (np.diff(starts) > 0).all() and starts[-1] < size
    assert np.diff(starts, append=size).max() <= max(metric.SEGMENT, 1)
