"""Reductions over one, several or all dimensions, and the positions of extremes."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.generate import sizes
from kernelwright.generate.draft import Draft, DraftTensor
from kernelwright.generate.families.unary import memory_bound_input
from kernelwright.generate.registry import Family


@dataclass(frozen=True)
class Reduction:
    """A reduction: its spellings, and the form of its result along a dimension."""

    name: str
    phrase: str
    functions: tuple[str, ...]
    method: str
    values: bool = False
    """True where it returns values and indices with `dim` (torch.max)."""
    several: bool = True
    """True where it takes more than one dimension."""
    every: bool = True
    """True where it takes no dimension."""
    integer: bool = False
    domain: str = "own"
    held_out: bool = False
    weight: float = 1.0


REDUCTIONS = (
    Reduction("sum", "a sum", ("torch.sum",), "sum", weight=1.5),
    Reduction("mean", "a mean", ("torch.mean",), "mean", weight=1.5),
    Reduction("max", "a maximum", ("torch.max",), "max", values=True, several=False, weight=1.5),
    Reduction("min", "a minimum", ("torch.min",), "min", values=True, several=False, weight=1.5),
    Reduction("amax", "a maximum", ("torch.amax",), "amax", every=False),
    Reduction("amin", "a minimum", ("torch.amin",), "amin", every=False),
    Reduction("prod", "a product", ("torch.prod",), "prod", several=False, every=False, domain="near_one"),
    Reduction("var", "the variance", ("torch.var",), "var"),
    Reduction("std", "the standard deviation", ("torch.std",), "std", held_out=True),
    Reduction("logsumexp", "log-sum-exp", ("torch.logsumexp",), "logsumexp", every=False, held_out=True),
    Reduction("norm_l2", "the Euclidean norm", ("torch.norm", "torch.linalg.vector_norm"), "norm"),
    Reduction("norm_l1", "the L1 norm", ("torch.norm", "torch.linalg.vector_norm"), "norm"),
    Reduction("argmax", "the position of the maximum", ("torch.argmax",), "argmax", several=False, every=False,
              integer=True, weight=1.5),
    Reduction("argmin", "the position of the minimum", ("torch.argmin",), "argmin", several=False, every=False,
              integer=True, weight=1.5),
    Reduction("count_positive", "the number of positive values", ("torch.sum",), "sum", integer=True),
    Reduction("mean_square", "the mean of squares", ("torch.mean",), "mean"),
    Reduction("range", "the range of values", ("torch.amax",), "amax", every=False),
)  # fmt: skip
SPREADS = ("var", "std", "range", "argmax", "argmin")
"""Reductions that are constant or NaN over one element. Never over the first dimension, which judging may reduce to
one."""
BY_NAME = {r.name: r for r in REDUCTIONS}


def reduce(t: Draft, x: DraftTensor, kind: Reduction, dims: tuple[int, ...] | None, keepdim: bool) -> DraftTensor:
    """Drafts a reduction of x over some dimensions (all for None)."""
    over = tuple(d % x.rank for d in dims) if dims is not None else tuple(range(x.rank))
    shape = tuple(1 if i in over else e for i, e in enumerate(x.shape) if keepdim or i not in over)
    t.say(kind.phrase + (" over all elements" if dims is None else ""))
    if kind.name == "count_positive":
        t.mark("gt_scalar")
        x = t.step(t.pick(f"({x.atom} > 0)", f"torch.gt({x}, 0)", f"({x.atom} > 0).float()"), x.shape, dtype=x.dtype)
    if kind.name == "mean_square":
        t.mark("square")
        x = t.step(t.pick(f"{x.atom} ** 2", f"torch.square({x})", f"{x.atom}.pow(2)"), x.shape)
    t.mark(
        {"count_positive": "sum", "mean_square": "mean"}.get(kind.name, kind.name),
        dim=_dim_mark(dims, x.rank),
        keepdim=int(keepdim) or None,
    )
    if kind.name == "range":
        return _range(t, x, dims, keepdim, shape)
    text = _text(t, x, kind, dims, keepdim)
    if kind.values and dims is not None:
        text += t.pick(".values", "[0]", "[0]")
    return t.step(text, shape, "reduction", dtype="int64" if kind.integer else x.dtype, flops=2.0 * x.elements)


def _dim_mark(dims: tuple[int, ...] | None, rank: int) -> str:
    return "all" if dims is None else "+".join(f"{d % rank}of{rank}" for d in dims)


def _options(t: Draft, dims: tuple[int, ...] | None, keepdim: bool) -> list[str]:
    parts = []
    if dims is not None:
        value = dims[0] if len(dims) == 1 else dims
        shown = t.option(t.pick("dim", "dim", "dim", "axis", "reduce_dim"), value)  # type: ignore[arg-type]
        parts.append(shown if t.chance(0.2) else f"dim={shown}")
    if keepdim:
        parts.append(f"keepdim={t.option('keepdim', True, default=False, expose=0.15 * t.style.expose)}")
    elif dims is not None and t.chance(0.06):
        parts.append("keepdim=False")
    return parts


def _text(t: Draft, x: DraftTensor, kind: Reduction, dims: tuple[int, ...] | None, keepdim: bool) -> str:
    options = _options(t, dims, keepdim)
    function = t.random.choice(kind.functions)
    method = t.style.spelling == "method" or t.chance(0.2)
    if kind.name in ("var", "std") and t.chance(0.4):
        options.append(t.pick("unbiased=False", "unbiased=False", "correction=0"))
        t.marks[-1] = (t.marks[-1][0], t.marks[-1][1] + ",unbiased=0")
    if kind.name.startswith("norm_"):
        order = kind.name[-1]
        options = [o if o.startswith(("dim=", "keepdim=")) else f"dim={o}" for o in options]
        key = "ord" if "linalg" in function and not method else "p"
        shown = order if t.chance(0.7) or key == "ord" or order == "1" else t.number("fro") if dims is None else order
        options = options if order == "2" and t.chance(0.3) else [f"{key}={shown}", *options]
    if method:
        return f"{x.atom}.{kind.method}({', '.join(options)})"
    return f"{function}({', '.join([str(x), *options])})"


def _range(
    t: Draft, x: DraftTensor, dims: tuple[int, ...] | None, keepdim: bool, shape: tuple[int, ...]
) -> DraftTensor:
    """Drafts largest less smallest, with the same options."""
    before = set(t.kept)
    x = t.keep(x)
    options = "".join(f", {o}" for o in _options(t, dims, keepdim))
    high = f"torch.amax({x}{options})"
    low = f"torch.amin({x}{options})"
    t.kept = before
    return t.step(f"{high} - {low}", shape, "reduction", flops=2.0 * x.elements)


def family(kind: Reduction) -> Family:
    """Returns the reduction alone, over any dimensions of a tensor of any rank."""

    def make(t: Draft) -> None:
        rank = t.random.choice((1, 2, 2, 3, 3, 3, 4, 4, 5))
        rank = max(rank, 2) if kind.name in SPREADS else rank
        dims = choose_dims(t, kind, rank)
        if kind.domain == "near_one":
            x = memory_bound_input(t, rank, "near_one", total=sizes.log_uniform(t.random, 1e5, 3e7))
        else:
            x = memory_bound_input(t, rank, kind.domain)
        keepdim = dims is not None and t.chance(0.35)
        t.finish(reduce(t, x, kind, dims, keepdim))

    group = "arg_reduction" if kind.name.startswith("arg") else "reduction"
    return Family(kind.name, group, kind.weight * 0.8, make, kind.held_out)


def choose_dims(t: Draft, kind: Reduction, rank: int) -> tuple[int, ...] | None:
    """Draws dimensions to reduce: mostly one, else several, or None for all."""
    if kind.every and t.chance(0.12):
        return None
    if kind.several and rank > 2 and t.chance(0.25):
        count = t.random.choice((2, 2, 3)) if rank > 3 else 2
        first = t.random.randrange(1 if kind.name in SPREADS and rank > count else 0, rank - count + 1)
        dims = tuple(range(first, first + count))
        return tuple(d - rank for d in dims) if t.chance(0.3) else dims
    dim = t.random.randrange(1 if kind.name in SPREADS else 0, rank)
    return (dim - rank if t.chance(0.3) else dim,)


def families() -> list[Family]:
    """Returns all reductions."""
    return [family(kind) for kind in REDUCTIONS]
