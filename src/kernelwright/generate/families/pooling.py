"""Max, average, adaptive and power-average pooling in one, two and three dimensions."""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.generate import sizes
from kernelwright.generate.draft import Draft, DraftTensor
from kernelwright.generate.families.convolution import INPUT_ROLE, SPATIAL, Axes, axis_text, short
from kernelwright.generate.registry import Family, rows


def _number(t: Draft, rank: int, choices: tuple[int, ...], uneven: float) -> Axes:
    if rank > 1 and t.chance(uneven):
        return tuple(t.random.choice(choices) for _ in range(rank))
    return (t.random.choice(choices),) * rank


def pool(t: Draft, x: DraftTensor, kind: str, *, small: bool = False) -> DraftTensor:
    """Drafts pooling of x by module or function; `kind` is `max` or `avg`, `small` limits windows to 2 and 3."""
    rank = x.rank - 2
    uneven = t.random.choice((0.0, 0.0, 0.3)) if rank > 1 else 0.0
    kernel = _number(t, rank, (2, 2, 3) if small else (2, 2, 3, 3, 4, 5, 7) if rank < 3 else (2, 2, 3, 4), uneven)
    kernel = tuple(min(k, max(1, e)) for k, e in zip(kernel, x.shape[2:], strict=True))
    stride = kernel if t.chance(0.5) else _number(t, rank, (1, 2, 2, 3), uneven * 0.5)
    padding = tuple(t.random.choice((0, 0, k // 2)) if i == 0 else 0 for i, k in enumerate(kernel))
    padding = (min(padding[0], min(k // 2 for k in kernel)),) * rank
    dilation = (1,) * rank
    if kind == "max" and not small and t.chance(0.35):
        dilation = (t.random.choice((2, 3, 4)) if min(x.shape[2:]) > 4 * max(kernel) else 1,) * rank
    spatial = tuple(
        (e + 2 * p - d * (k - 1) - 1) // s + 1
        for e, p, d, k, s in zip(x.shape[2:], padding, dilation, kernel, stride, strict=True)
    )
    if min(spatial) < 1:
        return x
    arguments = _arguments(t, kind, kernel, stride, padding, dilation)
    shape = (*x.shape[:2], *spatial)
    name = f"{'MaxPool' if kind == 'max' else 'AvgPool'}"
    ceil = None
    t.mark(
        f"{kind}_pool{rank}d", kernel=short(kernel), stride=short(stride) if stride != kernel else None,
        padding=short(padding, 0), dilation=short(dilation, 1), ceil=ceil,
        extra=",".join(k for k, v in arguments[-2:] if v and k in ("count_include_pad", "return_indices")) or None,
    )  # fmt: skip
    t.say(f"{rank}D {'max' if kind == 'max' else 'average'} pooling")
    flops = float(_product(shape) * _product(kernel))
    if t.style.spelling == "functional" and t.chance(0.6):
        shown = [(k, v) for k, v in arguments if k != "return_indices"]
        texts = [v if k == "kernel_size" and t.chance(0.5) else f"{k}={v}" for k, v in shown if v]
        return t.step(f"{t.prefix()}.{kind}_pool{rank}d({', '.join([str(x), *texts])})", shape, "pool", flops=flops)
    return t.step(f"{t.module(name, f'{name}{rank}d', arguments)}({x})", shape, "pool", flops=flops)


def _arguments(
    t: Draft, kind: str, kernel: Axes, stride: Axes, padding: Axes, dilation: Axes
) -> list[tuple[str, str | None]]:
    """Returns pooling arguments as texts. Functions keep theirs as `self.NAME`, modules as constructor arguments."""
    where = "forward" if t.style.spelling == "functional" else "init"
    full = t.style.expose == 1.0 and t.chance(0.6)
    shown = 1.0 if full else 0.06
    arguments: list[tuple[str, str | None]] = [("kernel_size", axis_text(t, "kernel_size", kernel, 2, 1.0, where))]
    if stride == kernel:
        stride_text = t.option("stride", None, default=None, where=where) if full and t.chance(0.5) else None
    else:
        stride_text = axis_text(t, "stride", stride, 1, 1.0, where)
    arguments += [("stride", stride_text), ("padding", axis_text(t, "padding", padding, 0, shown, where))]
    if kind == "max":
        arguments.append(("dilation", axis_text(t, "dilation", dilation, 1, shown, where)))
        if full and t.chance(0.25):
            arguments.append(("return_indices", t.option("return_indices", False, default=False, where=where)))
    else:
        if t.chance(0.06):
            arguments += [("ceil_mode", None)]
        if max(padding) and t.chance(0.25):
            arguments.append(
                ("count_include_pad", t.option("count_include_pad", False, default=True, where=where, expose=0.3))
            )
    return arguments


def _product(values: tuple[int, ...]) -> int:
    found = 1
    for v in values:
        found *= v
    return found


def adaptive(t: Draft, x: DraftTensor, kind: str, size: int | Axes) -> DraftTensor:
    """Drafts adaptive pooling to `size` on every axis."""
    rank = x.rank - 2
    spatial = (size,) * rank if isinstance(size, int) else size
    name = "AdaptiveMaxPool" if kind == "max" else "AdaptiveAvgPool"
    t.mark(f"adaptive_{kind}_pool{rank}d", size=short(spatial))
    t.say(f"adaptive {rank}D {'max' if kind == 'max' else 'average'} pooling")
    value = size if isinstance(size, tuple) or t.chance(0.5) or rank == 1 else spatial
    functional = t.style.spelling == "functional" and t.chance(0.7)
    text = t.option("output_size", value, where="forward" if functional else "init")
    shape = (*x.shape[:2], *spatial)
    if functional:
        return t.step(f"{t.prefix()}.adaptive_{kind}_pool{rank}d({x}, {text})", shape, "pool", flops=float(x.elements))
    layer = t.module(name, f"{name}{rank}d", [("output_size", text)])
    return t.step(f"{layer}({x})", shape, "pool", flops=float(x.elements))


def pool_input(t: Draft, rank: int, low: int = 8) -> DraftTensor:
    """Drafts an input of (batch, channels, *spatial) with spatial extents of at least `low`."""
    shape = sizes.image(t.random, rank, sizes.elements(t.random), t.random.choice((1, 3, 8, 16, 32, 64, 128)))
    roles = ("batch", t.pick("channels", "in_channels", "features"), *SPATIAL[rank])
    return t.input(
        INPUT_ROLE[rank],
        [t.dim(r, max(low, s) if i > 1 else s) for i, (r, s) in enumerate(zip(roles, shape, strict=True))],
    )


def _plain(kind: str, rank: int) -> Callable[[Draft], None]:
    def make(t: Draft) -> None:
        x = pool_input(t, rank, 12)
        found = pool(t, x, kind)
        if found is x:
            raise AssertionError("a pooling window that does not fit its input")
        t.finish(found)

    return make


def _adaptive(kind: str, rank: int) -> Callable[[Draft], None]:
    def make(t: Draft) -> None:
        x = pool_input(t, rank, 9)
        size: int | Axes = t.random.choice((1, 1, 2, 4, 5, 7, 8))
        if rank > 1 and t.chance(0.2):
            size = tuple(t.random.choice((1, 2, 3, 4, 7)) for _ in range(rank))
        t.finish(adaptive(t, x, kind, size))

    return make


def global_pool(t: Draft, x: DraftTensor, kind: str) -> DraftTensor:
    """Drafts mean or largest value of every channel, by a reduction over the spatial dimensions."""
    rank = x.rank - 2
    dims = tuple(range(2, rank + 2)) if t.chance(0.6) else tuple(range(-rank, 0))
    shown = str(dims) if rank > 1 else str(dims[0])
    shown = shown.replace("(", "[").replace(")", "]") if t.chance(0.3) else shown
    keep = t.chance(0.4)
    tail = ", keepdim=True" if keep else ""
    name = "mean" if kind == "avg" else "amax"
    t.mark(name, dim="spatial", keepdim=int(keep) or None)
    t.say(f"global {'average' if kind == 'avg' else 'max'} pooling")
    text = t.pick(f"torch.{name}({x}, dim={shown}{tail})", f"{x.atom}.{name}(dim={shown}{tail})")
    shape = (*x.shape[:2], *((1,) * rank if keep else ()))
    return t.step(text, shape, "pool", flops=float(x.elements))


def _global(rank: int) -> Callable[[Draft], None]:
    def make(t: Draft) -> None:
        t.finish(global_pool(t, pool_input(t, rank, 4), t.pick("avg", "avg", "max")))

    return make


def _power(rank: int) -> Callable[[Draft], None]:
    def make(t: Draft) -> None:
        x = pool_input(t, rank, 8)
        order, kernel, stride = (
            t.random.choice((1, 2, 2, 3)),
            t.random.choice((2, 3, 4)),
            t.random.choice((None, None, 1, 2)),
        )
        step = stride or kernel
        spatial = tuple((e - kernel) // step + 1 for e in x.shape[2:])
        arguments = [("norm_type", t.option("norm_type", order, where="init")),
                     ("kernel_size", t.option("kernel_size", kernel, where="init")),
                     ("stride", t.option("stride", stride, where="init") if stride else None)]  # fmt: skip
        t.mark(f"lp_pool{rank}d", order=order, kernel=kernel, stride=stride)
        t.say(f"{rank}D power-average pooling")
        layer = t.module("LPPool", f"LPPool{rank}d", arguments)
        t.finish(t.step(f"{layer}({x})", (*x.shape[:2], *spatial), "pool"))

    return make


def families() -> list[Family]:
    """Returns pooling of every kind in every number of dimensions."""
    plain = [(f"{kind}_pool{rank}d", _plain(kind, rank)) for kind in ("max", "avg") for rank in (1, 2, 3)]
    makers = [(f"adaptive_{kind}_pool{rank}d", _adaptive(kind, rank)) for kind in ("avg", "max") for rank in (1, 2, 3)]
    makers += [(f"global_pool{rank}d", _global(rank)) for rank in (1, 2, 3)]
    makers += [(f"lp_pool{rank}d", _power(rank)) for rank in (1, 2)]
    return rows("pooling", 7.0, plain) + rows("pooling", 5.0, makers)
