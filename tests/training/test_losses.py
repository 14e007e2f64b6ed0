"""The losses against their equations, written out below in plain Python and float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.errors import ConfigError
from kernelwright.training.losses import LOSSES, load_loss, regions, top_k_entropy, vocabulary_kl

Row = list[float]
Bits = list[bool]


# The equations, once more: loops over samples n and target tokens t = 1..T, nothing shared with the package.


def window_of(t: int, count: int, length: int) -> range:
    """Returns the tokens of the window centred on token t, counted from 1."""
    if count < length:
        return range(1, count + 1)
    return range(max(1, t - length // 2), min(count, t + math.ceil(length / 2) - 1) + 1)


def hardest(confidence: Row, length: int) -> float:
    count = len(confidence)
    means = []
    for t in range(1, count + 1):
        inside = [confidence[j - 1] for j in window_of(t, count, length)]
        means.append(sum(inside) / len(inside))
    return min(means)


def weighted_sum(name: str, rows: list[Row], masks: list[Bits], cuda: list[Bits], constants: Any = None, **p: Any):
    """Returns numerator, target tokens and sum of weights; `constants`: log-probabilities behind the stop-gradient."""
    total, tokens, mass = 0.0, 0, 0.0
    behind = constants or rows
    for row, frozen, mask, kernel in zip(rows, behind, masks, cuda, strict=True):
        at = [i for i, chosen in enumerate(mask) if chosen]
        c = [math.exp(frozen[i]) for i in at]
        weight = 1.0 - hardest(c, p["window"]) if name == "cuset" and at else 1.0
        for i, probability in zip(at, c, strict=True):
            if name == "sft":
                m = 1.0
            elif name == "dft":
                m = probability
            elif name == "profit":
                m = 1.0 if probability > p["tau"] else 0.0
            else:
                m = (1.0 if probability > p["tau"] else 0.0) + (p["lam"] if kernel[i] else 0.0)
            total += -weight * m * row[i]
            tokens += 1
            mass += m
    return total, tokens, mass


PARAMETERS: dict[str, dict[str, Any]] = {
    "sft": {},
    "dft": {},
    "profit": {"tau": 0.1},
    "cuset": {"tau": 0.1, "lam": 1.0, "window": 4},
}


def expected(name: str, rows: list[Row], masks: list[Bits], cuda: list[Bits], reduction: str, **p: Any) -> float:
    total, tokens, mass = weighted_sum(name, rows, masks, cuda, **p)
    samples = sum(any(mask) for mask in masks)
    divisor = {"token_mean": tokens, "mask_mean": mass, "sum": 1.0, "sample_mean": samples}[reduction]
    return total / divisor if divisor else 0.0


probabilities = st.one_of(st.floats(1e-6, 1.0), st.sampled_from([0.1, 0.2, 1.0]))


@st.composite
def batches(draw: Callable[..., Any]) -> tuple[list[Row], list[Bits], list[Bits]]:
    batch, length = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    rows = [[math.log(draw(probabilities)) for _ in range(length)] for _ in range(batch)]
    bits = [[[draw(st.booleans()) for _ in range(length)] for _ in range(batch)] for _ in range(2)]
    return rows, bits[0], bits[1]


def run(name: str, rows: Any, masks: Any, cuda: Any, **p: Any) -> Any:
    return LOSSES[name](
        torch.tensor(rows, dtype=torch.float64),
        torch.tensor(masks),
        torch.tensor(cuda) if cuda is not None else None,
        **p,
    )


def off_the_edge(rows: list[Row], tau: float) -> bool:
    return all(abs(math.exp(v) - tau) > 1e-12 for row in rows for v in row)


@settings(max_examples=60, deadline=None)
@given(batches(), st.sampled_from(list(PARAMETERS)), st.sampled_from(["token_mean", "mask_mean", "sum", "sample_mean"]))
def test_values_are_those_of_the_equations(batch: Any, name: str, reduction: str) -> None:
    rows, masks, cuda = batch
    p = PARAMETERS[name]
    if not off_the_edge(rows, 0.1):
        return
    out = run(name, rows, masks, cuda, reduction=reduction, **p)
    assert out.loss.item() == pytest.approx(expected(name, rows, masks, cuda, reduction, **p), rel=1e-9, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(batches(), st.sampled_from(list(PARAMETERS)))
def test_gradients_are_those_of_the_equations_with_the_weights_held(batch: Any, name: str) -> None:
    rows, masks, cuda = batch
    p = PARAMETERS[name]
    if not off_the_edge(rows, 0.1):
        return
    log_probs = torch.tensor(rows, dtype=torch.float64, requires_grad=True)
    LOSSES[name](log_probs, torch.tensor(masks), torch.tensor(cuda), reduction="sum", **p).loss.backward()
    assert log_probs.grad is not None
    step = 1e-4
    for n, row in enumerate(rows):
        for t in range(len(row)):
            moved = [[list(r) for r in rows] for _ in range(2)]
            moved[0][n][t] -= step
            moved[1][n][t] += step
            low, high = (weighted_sum(name, m, masks, cuda, constants=rows, **p)[0] for m in moved)
            assert log_probs.grad[n, t].item() == pytest.approx((high - low) / (2 * step), rel=1e-6, abs=1e-8)


def test_six_tokens_by_hand() -> None:
    # Confidences .5 .05 .8 .9 .2 .6; the kernel is tokens 2 to 4; windows of 4: t-2 .. t+1.
    confidence = [0.5, 0.05, 0.8, 0.9, 0.2, 0.6]
    rows, cuda = [[math.log(c) for c in confidence]], [[False, True, True, True, False, False]]
    out = run("cuset", rows, [[True] * 6], cuda, window=4, reduction="sum")
    # Window means: (.5+.05)/2, (.5+.05+.8)/3, (.5+.05+.8+.9)/4, (.05+.8+.9+.2)/4, (.8+.9+.2+.6)/4, (.9+.2+.6)/3.
    weight = 1 - 0.275
    masks = [1, 1, 2, 2, 1, 1]
    assert out.token_weights[0].tolist() == pytest.approx([weight * m for m in masks], rel=1e-6)
    assert out.loss.item() == pytest.approx(
        -weight * sum(m * math.log(c) for m, c in zip(masks, confidence, strict=True))
    )
    assert out.stats["hardest"].item() == pytest.approx(0.275)
    assert out.stats["below_tau"].item() == pytest.approx(1 / 6)
    assert out.stats["cuda_share"].item() == pytest.approx(0.5)
    mean = run("cuset", rows, [[True] * 6], cuda, window=4)
    assert mean.loss.item() == pytest.approx(out.loss.item() / 6)
    by_mask = run("cuset", rows, [[True] * 6], cuda, window=4, reduction="mask_mean")
    assert by_mask.loss.item() == pytest.approx(out.loss.item() / 8)


def test_a_target_shorter_than_the_window_is_one_window() -> None:
    confidence = [0.1, 0.9, 0.9]
    found = regions(torch.tensor([confidence]), torch.ones(1, 3, dtype=torch.bool), 256)
    assert found.window[0].tolist() == pytest.approx([sum(confidence) / 3] * 3)
    assert (found.start.item(), found.end.item()) == (0, 3)


def test_windows_are_clipped_at_both_ends() -> None:
    confidence = torch.tensor([[0.0, 0.4, 1.0, 1.0, 0.6, 0.2]])
    found = regions(confidence, torch.ones(1, 6, dtype=torch.bool), 3)
    # With l = 3: t-1 .. t+1.
    assert found.window[0].tolist() == pytest.approx([0.2, 1.4 / 3, 0.8, 2.6 / 3, 0.6, 0.4])
    assert (found.hardest.item(), found.start.item(), found.end.item()) == (pytest.approx(0.2), 0, 2)


def test_a_window_skips_what_is_no_target() -> None:
    confidence = torch.tensor([[0.0, 0.4, 0.0, 0.6, 0.0]])
    mask = torch.tensor([[False, True, False, True, False]])
    found = regions(confidence, mask, 2)  # t-1 .. t
    assert found.window[0].tolist() == pytest.approx([1.0, 0.4, 1.0, 0.5, 1.0])
    assert (found.start.item(), found.end.item()) == (1, 2)


@settings(max_examples=60, deadline=None)
@given(batches(), st.integers(1, 14))
def test_regions_are_those_of_the_equations(batch: Any, window: int) -> None:
    rows, masks, _ = batch
    confidence = torch.tensor(rows, dtype=torch.float64).exp()
    found = regions(confidence, torch.tensor(masks), window)
    for n, mask in enumerate(masks):
        at = [i for i, chosen in enumerate(mask) if chosen]
        if not at:
            assert (found.hardest[n].item(), found.start[n].item(), found.end[n].item()) == (1.0, 0, 0)
            continue
        c = [confidence[n, i].item() for i in at]
        assert found.hardest[n].item() == pytest.approx(hardest(c, window), abs=1e-12)
        inside = [confidence[n, i].item() for i in at if found.start[n] <= i < found.end[n]]
        assert sum(inside) / len(inside) == pytest.approx(found.hardest[n].item(), abs=1e-12)


def test_a_sample_that_is_known_by_heart_has_no_weight() -> None:
    out = run("cuset", [[0.0] * 5, [-1.0] * 5], [[True] * 5] * 2, [[True] * 5] * 2, window=2)
    assert out.token_weights[0].tolist() == [0.0] * 5
    assert out.token_weights[1].tolist() == pytest.approx([2 * (1 - math.exp(-1))] * 5)


@settings(max_examples=30, deadline=None)
@given(batches())
def test_without_cuda_and_regions_it_is_profit_and_without_the_threshold_sft(batch: Any) -> None:
    rows, masks, cuda = batch
    bare = {"lam": 0.0, "sample_weight": "none", "window": 3}
    assert torch.equal(
        run("cuset", rows, masks, cuda, tau=0.3, **bare).loss, run("profit", rows, masks, cuda, tau=0.3).loss
    )
    assert torch.equal(run("cuset", rows, masks, cuda, tau=-1.0, **bare).loss, run("sft", rows, masks, cuda).loss)


@settings(max_examples=30, deadline=None)
@given(batches())
def test_normalised_sample_weights_have_mean_one(batch: Any) -> None:
    rows, masks, cuda = batch
    out = run("cuset", rows, masks, cuda, window=3, sample_weight="normalised")
    raw = run("cuset", rows, masks, cuda, window=3)
    if raw.stats["sample_weight"] > 1e-9:
        assert out.stats["sample_weight"].item() == pytest.approx(1.0)
        ratio = out.loss.item() * raw.stats["sample_weight"].item()
        assert ratio == pytest.approx(raw.loss.item(), rel=1e-9, abs=1e-12)


def test_windows_of_kernel_tokens_only() -> None:
    rows = [[math.log(c) for c in (0.1, 0.1, 0.8, 0.9)]]
    cuda = [[False, False, True, True]]
    everywhere = run("cuset", rows, [[True] * 4], cuda, window=2)
    kernels = run("cuset", rows, [[True] * 4], cuda, window=2, scope="cuda_only")
    assert everywhere.stats["hardest"].item() == pytest.approx(0.1)
    assert kernels.stats["hardest"].item() == pytest.approx(0.8)
    none = run("cuset", rows, [[True] * 4], [[False] * 4], window=2, scope="cuda_only")
    assert none.stats["hardest"].item() == pytest.approx(0.1)


def test_reasoning_is_kept_out_of_windows_but_trained_on() -> None:
    rows = torch.tensor([[math.log(c) for c in (0.2, 0.2, 0.8, 0.9)]])
    outside = torch.tensor([[False, False, True, True]])
    out = LOSSES["cuset"](rows, torch.ones(1, 4, dtype=torch.bool), None, window=2, window_mask=outside)
    assert out.stats["hardest"].item() == pytest.approx(0.8)
    assert out.token_weights is not None and (out.token_weights > 0).all()


EXTRAS: dict[str, Callable[[torch.Tensor], dict[str, Any]]] = {
    "eaft": lambda x: {"entropy": torch.ones(x.shape)},
    "asft": lambda x: {"kl": torch.ones(x.shape)},
}


def extras(name: str, log_probs: torch.Tensor) -> dict[str, Any]:
    return EXTRAS[name](log_probs) if name in EXTRAS else {}


@pytest.mark.parametrize("name", list(LOSSES))
@pytest.mark.parametrize("reduction", ["token_mean", "mask_mean", "sum", "sample_mean"])
@pytest.mark.parametrize("shape", [(2, 5), (1, 1), (3, 0), (0, 4)])
def test_nothing_to_train_on_is_zero_and_still_has_a_gradient(
    name: str, reduction: str, shape: tuple[int, int]
) -> None:
    log_probs = torch.full(shape, -1.0, requires_grad=True)
    out = LOSSES[name](
        log_probs, torch.zeros(shape, dtype=torch.bool), None, reduction=reduction, **extras(name, log_probs)
    )
    assert out.loss.item() == 0.0
    out.loss.backward()
    assert log_probs.grad is not None and not log_probs.grad.any()


@pytest.mark.parametrize("name", list(LOSSES))
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("bad", [float("-inf"), float("nan"), -1e30])
def test_no_nan_whatever_the_log_probabilities(name: str, dtype: torch.dtype, bad: float) -> None:
    log_probs = torch.tensor([[-0.5, bad, -0.1], [bad, bad, bad], [-1.0, -2.0, bad]], dtype=dtype, requires_grad=True)
    mask = torch.tensor([[True, True, True], [True, True, True], [True, True, False]])
    for cuda in (None, mask, ~mask):
        log_probs.grad = None
        for reduction in ("token_mean", "mask_mean", "sum"):
            out = LOSSES[name](log_probs, mask, cuda, reduction=reduction, **extras(name, log_probs))
            assert out.loss.isfinite() and out.loss.dtype in (torch.float32, torch.float64)
            assert all(value.isfinite() for value in out.stats.values())
            out.loss.backward()
        assert log_probs.grad is not None and log_probs.grad.isfinite().all()
    kept = LOSSES[name](log_probs, mask, None, **extras(name, log_probs))
    assert kept.stats["tokens"].item() == 8
    if not math.isfinite(float(torch.tensor(bad, dtype=dtype))):
        assert kept.stats["non_finite"].item() == 4


@pytest.mark.parametrize("name", list(LOSSES))
def test_what_is_masked_does_not_matter(name: str) -> None:
    torch.manual_seed(0)
    log_probs = -torch.rand(3, 9)
    mask = torch.rand(3, 9) > 0.4
    cuda = torch.rand(3, 9) > 0.5
    other = log_probs.masked_fill(~mask, float("nan"))
    more = extras(name, log_probs)
    assert torch.equal(
        LOSSES[name](log_probs, mask, cuda, **more).loss, LOSSES[name](other, mask, cuda & mask, **more).loss
    )


@pytest.mark.parametrize("name", list(LOSSES))
def test_padding_and_the_order_of_samples_do_not_matter(name: str) -> None:
    torch.manual_seed(1)
    log_probs, mask, cuda = -torch.rand(3, 9).double(), torch.rand(3, 9) > 0.3, torch.rand(3, 9) > 0.5
    whole = LOSSES[name](log_probs, mask, cuda, **extras(name, log_probs)).loss
    pad = torch.nn.functional.pad
    wide = [pad(t, (2, 3)) for t in (log_probs, mask, cuda)]
    assert torch.allclose(whole, LOSSES[name](*wide, **extras(name, wide[0])).loss)
    turned = [t.flip(0) for t in (log_probs, mask, cuda)]
    assert torch.allclose(whole, LOSSES[name](*turned, **extras(name, turned[0])).loss)


@pytest.mark.parametrize("name", list(LOSSES))
def test_micro_batches_with_the_whole_batch_as_denominator_add_up(name: str) -> None:
    torch.manual_seed(2)
    log_probs, mask, cuda = -torch.rand(4, 7).double(), torch.rand(4, 7) > 0.3, torch.rand(4, 7) > 0.5
    whole = LOSSES[name](log_probs, mask, cuda, **extras(name, log_probs)).loss
    parts = [
        LOSSES[name](log_probs[i:j], mask[i:j], cuda[i:j], denominator=mask.sum(), **extras(name, log_probs[i:j])).loss
        for i, j in ((0, 1), (1, 4))
    ]
    assert torch.allclose(whole, torch.stack(parts).sum())


def test_eaft_weighs_by_the_share_of_the_entropy() -> None:
    log_probs = torch.tensor([[-1.0, -2.0, -3.0, -4.0]])
    mask = torch.ones(1, 4, dtype=torch.bool)
    entropy = torch.tensor([[0.0, math.log(20) / 2, math.log(20), 99.0]])
    out = LOSSES["eaft"](log_probs, mask, entropy=entropy, reduction="sum")
    assert out.loss.item() == pytest.approx(0.0 + 1.0 + 3.0 + 4.0)
    squared = LOSSES["eaft"](log_probs, mask, entropy=entropy, alpha=2.0, reduction="sum")
    assert squared.loss.item() == pytest.approx(0.0 + 0.5 + 3.0 + 4.0)


def test_top_k_entropy_is_that_of_the_renormalised_top() -> None:
    logits = torch.tensor([[0.0, math.log(2.0), math.log(3.0), -50.0]])
    p = [1 / 6, 2 / 6, 3 / 6]
    assert top_k_entropy(logits, 3).item() == pytest.approx(-sum(x * math.log(x) for x in p), rel=1e-5)
    assert top_k_entropy(torch.zeros(2, 64)).tolist() == pytest.approx([math.log(20)] * 2, rel=1e-5)
    assert top_k_entropy(torch.tensor([[0.0, float("-inf"), float("-inf")]])).item() == 0.0


def test_asft_adds_the_divergence() -> None:
    log_probs = torch.tensor([[-0.5, -1.5]], requires_grad=True)
    mask = torch.ones(1, 2, dtype=torch.bool)
    base = LOSSES["dft"](log_probs, mask, reduction="sum").loss
    out = LOSSES["asft"](log_probs, mask, kl=torch.tensor([[0.25, 0.5]]), kl_weight=0.2, reduction="sum")
    assert out.loss.item() == pytest.approx(base.item() + 0.2 * 0.75)
    same = LOSSES["asft"](log_probs, mask, kl=log_probs * 0.0, reduction="sum")
    assert same.loss.item() == pytest.approx(base.item(), abs=1e-6)


def written_out(logits: Any, before: Any, gold: Any, targets: Any, weight: float) -> tuple[float, Any]:
    """Returns the loss of ASFT and its gradient with respect to the logits, by its formula, in float64 and plain loops.

    The loss is the mean over targets of `-sg(p_gold) log p_gold + weight * sum_v q_v (log q_v - log p_v)`, so the
    gradient of a target's logits is `(p_gold (p - e_gold) + weight (p - q)) / targets`.
    """
    loss, gradient = 0.0, np.zeros_like(logits)
    count = int(targets.sum())
    for row, place in np.argwhere(targets):
        p, q = (np.exp(x[row, place] - x[row, place].max()) for x in (logits, before))
        p, q = p / p.sum(), q / q.sum()
        right = gold[row, place]
        loss -= p[right] * math.log(p[right])
        loss += weight * sum(b * (math.log(b) - math.log(a)) for a, b in zip(p, q, strict=True))
        mine = p[right] * p + weight * (p - q)
        mine[right] -= p[right]
        gradient[row, place] = mine / count
    return loss / count, gradient


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weight", [0.0, 0.1, 2.0])
def test_asft_is_the_authors_loss_and_gradient(seed: int, weight: float) -> None:
    draw = np.random.default_rng(seed)
    logits, before = draw.normal(0, 3, (2, 5, 17)), draw.normal(0, 3, (2, 5, 17))
    gold, targets = draw.integers(0, 17, (2, 5)), draw.random((2, 5)) < 0.7
    targets[0, 0] = True
    expected, slope = written_out(logits, before, gold, targets, weight)
    for dtype, within in ((torch.float64, 1e-12), (torch.float32, 2e-5)):
        given = torch.tensor(logits, dtype=dtype, requires_grad=True)
        log_probs = given.log_softmax(-1).gather(2, torch.tensor(gold)[..., None])[..., 0]
        kl = vocabulary_kl(given, torch.tensor(before, dtype=dtype))
        out = LOSSES["asft"](log_probs, torch.tensor(targets), kl=kl, kl_weight=weight)
        out.loss.backward()
        assert out.loss.item() == pytest.approx(expected, rel=within, abs=within)
        assert given.grad is not None and np.allclose(given.grad.numpy(), slope, rtol=within, atol=within)


def test_the_divergence_is_zero_at_the_anchor_and_never_less() -> None:
    torch.manual_seed(1)
    logits, other = torch.randn(50, 9, dtype=torch.float64), torch.randn(50, 9, dtype=torch.float64)
    assert torch.equal(vocabulary_kl(logits, logits), torch.zeros(50, dtype=torch.float64))
    assert (vocabulary_kl(logits, other) > 0).all()
    assert torch.allclose(vocabulary_kl(logits + 7.0, other), vocabulary_kl(logits, other))
    shut = torch.tensor([[0.0, 0.0, float("-inf")]], dtype=torch.float64)
    assert vocabulary_kl(torch.zeros(1, 3, dtype=torch.float64), shut).item() == pytest.approx(math.log(1.5))


def test_float64_is_kept() -> None:
    torch.manual_seed(3)
    log_probs = torch.log(torch.rand(2, 6, dtype=torch.float64).clamp(0.05, 0.95)).requires_grad_()
    entropy = torch.rand(2, 6, dtype=torch.float64)
    logits, reference = (torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    mask = torch.ones(2, 6, dtype=torch.bool)
    exact = -(entropy / math.log(20) * log_probs).mean().item()
    assert LOSSES["eaft"](log_probs, mask, entropy=entropy).loss.item() == pytest.approx(exact, rel=1e-14)
    assert torch.autograd.gradcheck(lambda values: vocabulary_kl(values, reference), (logits,))


@pytest.mark.parametrize("name", list(LOSSES))
def test_a_denominator_of_nothing_is_no_nan(name: str) -> None:
    log_probs, mask = torch.tensor([[-1.0, -2.0]]), torch.zeros(1, 2, dtype=torch.bool)
    for zero in (0, mask.sum()):
        assert LOSSES[name](log_probs, mask, mask, denominator=zero, **extras(name, log_probs)).loss.item() == 0.0


@pytest.mark.parametrize("shape", [(3, 2), (2,), (1, 1)])
def test_nothing_is_broadcast(shape: tuple[int, ...]) -> None:
    log_probs, mask, other = torch.full((1, 2), -1.0), torch.ones(1, 2, dtype=torch.bool), torch.ones(shape)
    given = {
        "entropy": "eaft",
        "kl": "asft",
        "window_mask": "cuset",
        "cuda_mask": "cuset",
    }
    for argument, name in given.items():
        with pytest.raises(ConfigError, match=argument):
            LOSSES[name](log_probs, mask, **{argument: other})


def test_what_is_missing_or_unknown_is_said() -> None:
    log_probs, mask = torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool)
    for name in ("eaft", "asft"):
        with pytest.raises(ConfigError, match=name):
            LOSSES[name](log_probs, mask)
    with pytest.raises(ConfigError, match="reduction"):
        LOSSES["sft"](log_probs, mask, reduction="mean")
    with pytest.raises(ConfigError, match="shape"):
        LOSSES["sft"](torch.zeros(2), mask)
    for bad in ({"window": 0}, {"window": 2.5}, {"scope": "host"}, {"sample_weight": "half"}):
        with pytest.raises(ConfigError):
            LOSSES["cuset"](log_probs, mask, **bad)
    assert load_loss("cuset", {"tau": 0.2}) is LOSSES["cuset"]
    with pytest.raises(ConfigError) as unknown:
        load_loss("cusett")
    assert "cuset" in str(unknown.value.hint)
    with pytest.raises(ConfigError, match="gamma"):
        load_loss("sft", {"gamma": 1})
