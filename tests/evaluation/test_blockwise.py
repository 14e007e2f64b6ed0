"""The blockwise comparison agrees with `compare`, element for element, where both can run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.evaluation.compare import on_device, on_host
from kernelwright.evaluation.compare.on_host import Ruler
from kernelwright.tasks import metric

SHAPES = st.lists(st.integers(1, 70), min_size=1, max_size=3).map(tuple)
DTYPES = st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.float64])


def _both(got: torch.Tensor, exact: torch.Tensor, honest: torch.Tensor, low: float | None) -> tuple[object, object]:
    name = str(honest.dtype).removeprefix("torch.")
    numpy_honest = honest.float().numpy() if honest.dtype == torch.bfloat16 else honest.numpy()
    numpy_got = got.float().numpy() if got.dtype == torch.bfloat16 else got.numpy()
    spec = on_host.OutputSpec(name, tuple(honest.shape))
    one = on_host.compare([on_host.Array(numpy_got, name)], [exact.numpy()], [numpy_honest], [spec], low_error=low)
    return one, on_device.compare_output(0, got, exact, honest, Ruler(low), 1.0, None)


@settings(max_examples=150, deadline=None)
@given(SHAPES, DTYPES, st.integers(0, 2**31), st.floats(0, 3), st.sampled_from(["none", "nan", "inf", "zero", "shift"]))
def test_same_verdict_and_errors(shape: tuple[int, ...], dtype: torch.dtype, seed: int, far: float, fault: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    exact = torch.randn(shape, generator=generator, dtype=torch.float64) * 10 ** torch.randn(
        shape[:1] + (1,) * (len(shape) - 1), generator=generator, dtype=torch.float64
    )
    honest = exact.to(dtype)
    strict = on_host.TOLERANCES[str(dtype).removeprefix("torch.")][1]
    got = (exact * (1 + far * strict * torch.randn(shape, generator=generator, dtype=torch.float64))).to(dtype)
    flat = got.view(-1)
    place = seed % flat.numel()
    if fault == "nan":
        flat[place] = float("nan")
    elif fault == "inf":
        flat[place] = float("-inf")
    elif fault == "zero":
        flat[place] = 0
    elif fault == "shift":
        got = torch.roll(got, 1, -1)
    one, other = _both(got, exact, honest, None)
    assert other.passed == one.passed
    assert other.max_abs_error == pytest.approx(one.max_abs_error, rel=1e-9, abs=1e-300)
    assert other.max_rel_error == pytest.approx(one.max_rel_error, rel=1e-9, abs=1e-12)
    assert other.tolerance == one.tolerance and other.honest_error == pytest.approx(one.honest_error, rel=1e-9)


@settings(max_examples=200, deadline=None)
@given(
    SHAPES,
    DTYPES,
    st.integers(0, 2**31),
    st.floats(0, 3),
    st.sampled_from(["none", "nan", "inf", "zero", "row", "huge"]),
)
def test_what_is_near_passes(shape: tuple[int, ...], dtype: torch.dtype, seed: int, far: float, fault: str) -> None:
    """The second of two calls has the fault; where it is called near, the whole comparison passes it, too."""
    generator = torch.Generator().manual_seed(seed)
    exact = torch.randn((2, *shape), generator=generator, dtype=torch.float64) * 10 ** (
        2 * torch.randn((2, shape[0], *[1] * (len(shape) - 1)), generator=generator, dtype=torch.float64)
    )
    if fault == "row":
        exact[1, -1] = 0
    name = str(dtype).removeprefix("torch.")
    limit = on_host.TOLERANCES[name][1]
    noise = torch.randn(exact.shape, generator=generator, dtype=torch.float64)
    honest = (exact * (1 + limit * noise / 4)).to(dtype)
    got = (honest.double() + far * limit * noise.roll(1, 0) * exact.abs().mean(-1, keepdim=True)).to(dtype)
    place = seed % got[1].numel()
    faults = {"nan": float("nan"), "inf": float("inf"), "zero": 0.0}
    if fault in faults:
        got[1].view(-1)[place] = faults[fault]
    if fault == "huge":
        honest[1].view(-1)[place] = float("inf")
    differences = on_device.nearness(got, honest, limit, shape).tolist()
    for call, difference in enumerate(differences):
        if difference < float("inf"):
            assert on_device.compare_output(0, got[call], exact[call], honest[call], Ruler(), 1.0, limit).passed
            largest = float((got[call].double() - honest[call].double()).abs().max())
            assert difference == pytest.approx(largest, rel=1e-6)
    if fault in ("nan", "huge"):
        assert differences[1] == float("inf")
    if honest[0].isfinite().all():
        assert on_device.nearness(honest[:1], honest[:1], limit, shape).tolist() == [0.0]


def test_values_around_zero_are_near() -> None:
    """A sum that cancels has the rounding error of its terms; every call of a row is compared separately."""
    near = torch.randn(3, 40, 100)
    near[:, :, ::7] *= 1e-6
    out = near + 2e-6 * torch.randn(3, 40, 100)
    assert all(d < 2e-5 for d in on_device.nearness(out, near, 1e-4, (40, 100)).tolist())
    assert on_device.nearness(out, near, 1e-4, None).tolist() == [float("inf")] * 3
    out[1, 39, 99] += 0.01
    found = on_device.nearness(out, near, 1e-4, (40, 100)).tolist()
    assert found[1] == float("inf") and max(found[0], found[2]) < 2e-5


def test_nearness_of_scalars_integers_and_nothing() -> None:
    assert on_device.nearness(torch.ones(2), torch.tensor([1.0, 2.0]), 1e-4, ()).tolist() == [0.0, float("inf")]
    whole = torch.arange(8).view(2, 4)
    assert on_device.nearness(whole, whole + torch.tensor([[0], [1]]), 0.0, (4,)).tolist() == [0.0, float("inf")]
    assert on_device.nearness(torch.ones(2, 0), torch.ones(2, 0), 1e-4, (0,)).tolist() == [0.0, 0.0]


def test_small_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = torch.randn(37, 130, dtype=torch.float64)
    honest = exact.float()
    got = honest.clone()
    got[20, 7] += 1
    whole = on_device.compare_output(0, got, exact, honest, Ruler(), 1.0, None)
    monkeypatch.setattr(on_device, "BLOCK", 300)
    assert on_device.compare_output(0, got, exact, honest, Ruler(), 1.0, None) == whole
    assert not whole.passed and "[20, 7]" in whole.reason and "1 of 4810" in whole.reason


def test_integers_are_exact() -> None:
    exact = torch.arange(12).view(3, 4)
    got = exact.clone()
    assert on_device.compare_output(0, got, exact, exact, Ruler(), 1.0, None).passed
    got[2, 1] = 0
    failed = on_device.compare_output(0, got, exact, exact, Ruler(), 1.0, None)
    assert not failed.passed and "[2, 1]: got 0, expected 9" in failed.reason


def test_an_index_of_the_references_own_precision_is_right() -> None:
    exact, own = torch.tensor([832, 5, 7]), torch.tensor([0, 5, 9])
    for got, passed in (([832, 5, 7], True), ([0, 5, 9], True), ([832, 5, 9], True), ([0, 5, 8], False)):
        assert on_device.compare_output(0, torch.tensor(got), exact, own, Ruler(), 1.0, None).passed == passed


def test_the_ruler_is_the_same() -> None:
    reference = torch.randn(64, 200, dtype=torch.float64)
    rounded = reference.float().double()
    mine = on_device.worst(rounded, reference)
    assert mine == pytest.approx(metric.worst(np.asarray(rounded), np.asarray(reference)), rel=1e-12)


def test_long_sums_get_room_for_their_order_and_for_no_lower_precision() -> None:
    """One accumulator over 2^18 terms is right; terms in TF32 are not."""
    terms = 1 << 18
    values = torch.randn(96, terms, generator=torch.Generator().manual_seed(5))
    exact, honest = values.double().sum(1), values.sum(1)
    in_turn = torch.from_numpy(np.cumsum(values.numpy(), axis=1, dtype=np.float32)[:, -1].astype(np.float64))
    far = (exact + 5.5 * (in_turn - exact)).float()  # as far as the farthest of many millions of elements
    tf32 = ((values.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32).double().sum(1).float()
    assert not on_device.compare_output(0, far, exact, honest, Ruler(1e-4), 1.0, None).passed
    assert on_device.compare_output(0, far, exact, honest, Ruler(1e-4, terms), 1.0, None).passed
    assert not on_device.compare_output(0, tf32, exact, honest, Ruler(1e-4, terms), 1.0, None).passed
