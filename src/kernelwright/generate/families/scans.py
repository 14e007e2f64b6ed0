"""Scans along a dimension: sums, products and extremes so far, reversed, exclusive, masked."""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.generate import sizes
from kernelwright.generate.draft import Draft, DraftTensor
from kernelwright.generate.families.unary import memory_bound_input
from kernelwright.generate.registry import Family, rows


def scan(t: Draft, x: DraftTensor, kind: str, dim: str) -> str:
    """Returns text of a scan of x along `dim` (Python text)."""
    shown = dim if t.chance(0.2) else f"dim={dim}"
    text = t.pick(f"torch.{kind}({x}, {shown})", f"{x.atom}.{kind}({shown})")
    return text + (t.pick(".values", "[0]") if kind in ("cummax", "cummin") else "")


def _input(t: Draft, draw: str = "own") -> tuple[DraftTensor, int]:
    rank = t.random.choice((1, 2, 2, 2, 3, 3, 4))
    axis = t.random.choice((rank - 1, rank - 1, t.random.randrange(rank)))
    return memory_bound_input(t, rank, draw, total=sizes.log_uniform(t.random, 4e5, 6e7)), axis


def _dim(t: Draft, axis: int, rank: int) -> str:
    return t.option(t.pick("dim", "dim", "axis"), axis - rank if t.chance(0.25) else axis, default=-1)


def _where(axis: int, x: DraftTensor) -> str:
    return f"{axis}of{x.rank}"


def _plain(kind: str, phrase: str, draw: str = "own") -> Callable[[Draft], None]:
    def make(t: Draft) -> None:
        x, axis = _input(t, draw)
        t.mark(kind, dim=_where(axis, x))
        t.say(phrase)
        t.finish(t.step(scan(t, x, kind, _dim(t, axis, x.rank)), x.shape))

    return make


def _reverse(kind: str) -> Callable[[Draft], None]:
    def make(t: Draft) -> None:
        x, axis = _input(t, "own" if kind == "cumsum" else "near_one")
        dim = _dim(t, axis, x.rank)
        shown = t.pick(f"dims=({dim},)", f"[{dim}]", f"dims=[{dim}]", f"({dim},)")
        t.mark(f"reverse_{kind}", dim=_where(axis, x))
        t.say(t.pick("a scan from the end", f"a reversed {kind}", "a suffix scan"))
        function = t.chance(0.5)
        called = dim if t.chance(0.6) else shown
        flipped = t.step(f"torch.flip({x}, {shown})" if function else f"{x.atom}.flip({called})", x.shape)
        summed = t.step(scan(t, flipped, kind, dim), x.shape)
        back = f"torch.flip({summed}, {shown})" if function else f"{summed.atom}.flip({called})"
        t.finish(t.step(back, x.shape))

    return make


def exclusive(t: Draft) -> None:
    """Drafts an exclusive cumulative sum."""
    x, axis = _input(t)
    x = t.named(x)
    dim = _dim(t, axis, x.rank)
    t.mark("exclusive_cumsum", dim=_where(axis, x))
    t.say(t.pick("an exclusive prefix sum", "a cumulative sum without the element itself", "an exclusive scan"))
    form = t.random.randrange(3)
    if form == 0 or x.shape[axis] < 3:
        t.finish(t.step(f"{scan(t, x, 'cumsum', dim)} - {x}", x.shape))
        return
    first = (
        f"torch.zeros_like({x}.narrow({dim}, 0, 1))"
        if form == 1
        else f"torch.zeros_like({x}.select({dim}, 0).unsqueeze({dim}))"
    )
    kept = (
        f"{x}.narrow({dim}, 0, {x}.size({dim}) - 1)" if t.chance(0.5) else f"{x}.narrow({dim}, 0, {x}.shape[{dim}] - 1)"
    )
    shifted = t.step(f"torch.cat({t.pick('[{}, {}]', '({}, {})').format(first, kept)}, dim={dim})", x.shape)
    t.finish(t.step(scan(t, shifted, "cumsum", dim), x.shape))


def masked(t: Draft) -> None:
    """Drafts a running sum of the elements that a mask selects."""
    x, axis = _input(t)
    mask = t.input("mask", t.inputs[0].shape, "bool")
    t.mark("masked_cumsum", dim=_where(axis, x))
    t.say(t.pick("a masked cumulative sum", "a running sum over selected elements", "a masked scan"))
    forms = (f"{x} * {mask}", f"{x} * {mask}", f"{x} * {mask}.float()",
    f"torch.where({mask}, {x}, torch.zeros_like({x}))",
             f"{x}.masked_fill(~{mask}, 0.0)", f"{x} * {mask}.to({x}.dtype)")  # fmt: skip
    t.kept.add(x.text)
    chosen = t.step(t.pick(*forms), x.shape)
    t.finish(t.step(scan(t, chosen, "cumsum", _dim(t, axis, x.rank)), x.shape))


def running_mean(t: Draft) -> None:
    """Drafts the mean of all elements so far."""
    rank = t.random.choice((2, 2, 3))
    x = memory_bound_input(t, rank, total=sizes.log_uniform(t.random, 4e5, 3e7))
    axis = rank - 1
    t.mark("running_mean", dim=_where(axis, x))
    t.say(t.pick("a running mean", "the mean of each prefix", "a cumulative average"))
    count = f"torch.arange(1, {x}.shape[-1] + 1, device={x}.device)"
    total = t.step(scan(t, x, "cumsum", "-1"), x.shape) if t.style.flow != "rebind" else None
    text = f"{total.atom if total else scan(t, x, 'cumsum', '-1')} / {count}"
    t.finish(t.step(text, x.shape))


def families() -> list[Family]:
    """Returns all scans."""
    makers: list[tuple[str, Callable[[Draft], None]]] = [
        ("cumsum", _plain("cumsum", "a cumulative sum")),
        ("cumprod", _plain("cumprod", "a cumulative product", "near_one")),
        ("cummax", _plain("cummax", "a running maximum")),
        ("cummin", _plain("cummin", "a running minimum")),
        ("logcumsumexp", _plain("logcumsumexp", "a cumulative log-sum-exp")),
        ("reverse_cumsum", _reverse("cumsum")),
        ("reverse_cumprod", _reverse("cumprod")),
        ("exclusive_cumsum", exclusive),
        ("masked_cumsum", masked),
        ("running_mean", running_mean),
    ]
    return rows("scan", 6.0, makers)
