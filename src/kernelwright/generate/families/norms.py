"""Normalisations: batch, instance, group, layer and RMS norm by module and by formula; division by a norm."""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.generate import sizes
from kernelwright.generate.draft import Dim, Draft, DraftTensor
from kernelwright.generate.families.convolution import INPUT_ROLE, SPATIAL
from kernelwright.generate.families.unary import memory_bound_input
from kernelwright.generate.registry import Family, rows

_EPS = (1e-5, 1e-6, 1e-3, 1e-4, 1e-8)


def _eps(t: Draft, default: float = 1e-5) -> str | None:
    if t.chance(0.7):
        return None
    return t.option("eps", t.random.choice(_EPS), default=default, where="init")


def channel_input(
    t: Draft, rank: int, role: str = "channels", multiple: int = 1, low: int = 2
) -> tuple[DraftTensor, Dim]:
    """Drafts an input (batch, channels, *spatial) with spatial extents of at least `low`, and its channels."""
    batch, channels, *spatial = sizes.image(
        t.random, rank, sizes.elements(t.random), t.random.choice((8, 16, 32, 64, 96, 128, 256))
    )
    channels = max(multiple, channels // multiple * multiple)
    batch = max(batch, 2)
    spatial = [max(low, s) for s in spatial]
    lead, middle = t.dim("batch", batch), t.dim(role, channels)
    dims = [t.dim(r, s) for r, s in zip(SPATIAL[rank], spatial, strict=True)]
    return t.input(INPUT_ROLE[rank], (lead, middle, *dims)), middle


def batch_norm(t: Draft, x: DraftTensor, channels: Dim, *, rank: int | None = None) -> DraftTensor:
    """Drafts nn.BatchNorm of x: in training mode as constructed, as KernelBench runs it."""
    rank = max(1, x.rank - 2) if rank is None else rank
    arguments: list[tuple[str, str | None]] = [("num_features", t.argument(channels)), ("eps", _eps(t))]
    arguments.append(
        (
            "momentum",
            t.option("momentum", t.random.choice((0.1, 0.05, 0.01)), default=0.1, where="init")
            if t.chance(0.15)
            else None,
        )
    )
    affine = None if t.chance(0.9) else "False"
    arguments.append(("affine", affine))
    layer = t.module("BatchNorm", f"BatchNorm{rank}d", arguments)
    t.mark(f"batch_norm{rank}d", eps=arguments[1][1] and "given", affine=affine)
    t.say("batch normalization")
    return t.step(f"{layer}({x})", x.shape, "norm", flops=8.0 * x.elements)


def instance_norm(t: Draft, x: DraftTensor, channels: Dim) -> DraftTensor:
    """Drafts nn.InstanceNorm of x, with or without weights."""
    rank = x.rank - 2
    affine = t.option("affine", True, default=False, where="init", expose=0.2) if t.chance(0.35) else None
    arguments = [("num_features", t.argument(channels)), ("eps", _eps(t)), ("momentum", None), ("affine", affine)]
    layer = t.module("InstanceNorm", f"InstanceNorm{rank}d", arguments)
    t.mark(f"instance_norm{rank}d", eps=arguments[1][1] and "given", affine=affine and "True")
    t.say("instance normalization")
    return t.step(f"{layer}({x})", x.shape, "norm", flops=8.0 * x.elements)


def group_norm(t: Draft, x: DraftTensor, channels: Dim, groups: int) -> DraftTensor:
    """Drafts nn.GroupNorm of x."""
    name = t.pick("num_groups", "groups", "num_groups")
    arguments = [
        ("num_groups", t.option(name, groups, where="init")),
        ("num_channels", t.argument(channels)),
        ("eps", _eps(t)),
    ]
    affine = None if t.chance(0.93) else "False"
    layer = t.module("GroupNorm", "GroupNorm", [*arguments, ("affine", affine)])
    t.mark("group_norm", rank=x.rank, eps=arguments[2][1] and "given", affine=affine)
    t.say("group normalization")
    return t.step(f"{layer}({x})", x.shape, "norm", flops=8.0 * x.elements)


def layer_norm(t: Draft, x: DraftTensor, dims: tuple[Dim | int, ...]) -> DraftTensor:
    """Drafts nn.LayerNorm (or F.layer_norm without weights) over the last dimensions, given as `dims`."""
    texts = [t.argument(d) for d in dims]
    shape = texts[0] if len(texts) == 1 and t.chance(0.8) else f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
    if len(texts) > 1 and t.chance(0.2):
        shape = f"[{', '.join(texts)}]"
    eps = _eps(t)
    t.mark("layer_norm", dims=len(dims), rank=x.rank, eps=eps and "given")
    t.say("layer normalization")
    affine = None if t.chance(0.93) else "False"
    layer = t.module(
        "LayerNorm", "LayerNorm", [("normalized_shape", shape), ("eps", eps), ("elementwise_affine", affine)]
    )
    return t.step(f"{layer}({x})", x.shape, "norm", flops=8.0 * x.elements)


def _batch(rank: int) -> Callable[[Draft], None]:
    def make(t: Draft) -> None:
        if rank == 1 and t.chance(0.5):
            rows_, cols = sizes.shape(t.random, 2, sizes.elements(t.random))
            features = t.dim("features", min(cols, 16384))
            x = t.input("x", (t.dim("batch", max(2, rows_)), features))
            t.finish(batch_norm(t, x, features, rank=1))
        else:
            t.finish(batch_norm(t, *channel_input(t, rank)))

    return make


def _instance(rank: int) -> Callable[[Draft], None]:
    return lambda t: t.finish(instance_norm(t, *channel_input(t, rank)))


def _group(rank: int) -> Callable[[Draft], None]:
    def make(t: Draft) -> None:
        groups = t.random.choice((2, 4, 8, 8, 16, 32))
        x, channels = channel_input(t, rank, multiple=groups)
        t.finish(group_norm(t, x, channels, groups))

    return make


def _layer(t: Draft) -> None:
    rank = t.random.choice((2, 3, 3, 4, 4))
    shape = (
        sizes.image(t.random, rank - 2, sizes.elements(t.random))
        if rank > 2
        else sizes.shape(t.random, 2, sizes.elements(t.random))
    )
    count = t.random.choice((1, 1, 2, rank - 1)) if rank > 2 else 1
    count = min(count, rank - 1)
    while _product(shape[rank - count :]) > 4_000_000:
        shape[-1] = max(8, shape[-1] // 2)
    roles = (
        ("batch", *("extent",) * (rank - 2), "features")
        if t.chance(0.5) or rank < 4
        else ("batch", "features", "extent", "extent")
    )
    dims = [t.dim(r, s) for r, s in zip(roles, shape, strict=True)]
    x = t.input("x", dims)
    t.finish(layer_norm(t, x, tuple(dims[-count:])))


def _product(values: list[int]) -> int:
    found = 1
    for v in values:
        found *= v
    return found


def rms_norm(t: Draft, x: DraftTensor, features: Dim | None, axis: int) -> DraftTensor:
    """Drafts RMS norm of x along an axis, by formula or nn.RMSNorm; with a weight where `features` is given."""
    last = axis in (-1, x.rank - 1)
    t.mark("rms_norm", dim=f"{axis % x.rank}of{x.rank}", weight=features and 1)
    t.say(t.pick("RMS normalization", "RMSNorm", "root-mean-square normalization"))
    if last and features is not None and t.chance(0.35):
        layer = t.module(
            "RMSNorm", "RMSNorm", [("normalized_shape", t.argument(features)), ("eps", t.pick("1e-6", "1e-5", "1e-8"))]
        )
        return t.step(f"{layer}({x})", x.shape, "norm", flops=5.0 * x.elements)
    eps = t.option("eps", t.random.choice((1e-5, 1e-6, 1e-8)), default=1e-5)
    x = t.named(x)
    square = t.pick(f"{x} ** 2", f"{x}.pow(2)", f"torch.square({x})", f"{x} * {x}")
    square_atom = square if square.endswith(")") else f"({square})"
    mean = t.pick(f"torch.mean({square}, dim={axis}, keepdim=True)", f"{square_atom}.mean(dim={axis}, keepdim=True)",
                  f"{square_atom}.mean({axis}, keepdim=True)")  # fmt: skip
    if t.chance(0.5):
        rms = t.step(f"torch.sqrt({mean} + {eps})", x.shape, "reduction")
        out = f"{x} / {rms.atom}"
    else:
        rms = t.step(f"torch.rsqrt({mean} + {eps})", x.shape, "reduction")
        out = f"{x} * {rms.atom}"
    if features is None:
        return t.step(out, x.shape, "norm")
    weight = t.parameter("weight", (features,), t.pick("torch.ones({})", "torch.randn({})", "torch.rand({})"))
    shaped = (
        str(weight)
        if last
        else f"{weight}.view({', '.join(['1'] * (axis % x.rank) + ['-1'] + ['1'] * (x.rank - 1 - axis % x.rank))})"
    )
    return t.step(t.pick(f"{shaped} * ({out})", f"{out} * {shaped}"), x.shape, "norm")


def _rms(t: Draft) -> None:
    if t.chance(0.4):
        x, channels = channel_input(t, t.random.choice((1, 2, 2)))
        t.finish(rms_norm(t, x, channels if t.chance(0.3) else None, 1))
    else:
        rank = t.random.choice((2, 3, 3))
        shape = sizes.shape(t.random, rank, sizes.elements(t.random))
        features = t.dim("features", min(shape[-1], 16384))
        dims = [t.dim(r, s) for r, s in zip(("batch", "seq"), shape[:-1], strict=False)]
        x = t.input("x", (*dims, features))
        t.finish(rms_norm(t, x, features if t.chance(0.6) else None, -1))


def frobenius(t: Draft) -> None:
    """Drafts a tensor over its Frobenius norm."""
    x = t.named(memory_bound_input(t, t.random.choice((2, 3, 4, 4))))
    t.say(t.pick("division by the Frobenius norm", "Frobenius normalization", "scaling to unit Frobenius norm"))
    t.mark("norm_l2", dim="all")
    fro = t.number("fro")
    norm = t.pick(f"torch.norm({x}, p={fro})", f"torch.norm({x})", f"{x}.norm()", f"torch.linalg.norm({x}.flatten())",
                  f"torch.sqrt(torch.sum({x} ** 2))", f"{x}.norm(p={fro})",
                  f"torch.sqrt(({x} * {x}).sum())")  # fmt: skip
    size = t.step(norm, (), "reduction", flops=2.0 * x.elements)
    t.mark("div")
    t.finish(t.step(f"{x} / {size.atom}", x.shape, "norm"))


def _lp(order: int) -> Callable[[Draft], None]:
    def make(t: Draft) -> None:
        rank = t.random.choice((2, 2, 2, 3, 4))
        x = t.named(memory_bound_input(t, rank))
        axis = t.random.choice((1, 1, -1, rank - 1, 0 if rank == 2 else 1))
        t.finish(lp_normalize(t, x, order, axis))

    return make


def lp_normalize(t: Draft, x: DraftTensor, order: int, axis: int) -> DraftTensor:
    """Drafts x over its L1, L2 or largest-magnitude norm along an axis. `x` must have a name."""
    dim = t.option("dim", axis, default=1)
    t.say(
        t.pick(f"L{order} normalization", f"scaling to unit L{order} norm")
        if order
        else "division by the largest magnitude"
    )
    t.mark(f"normalize_l{order}" if order else "normalize_max", dim=f"{axis % x.rank}of{x.rank}")
    if order and t.chance(0.35):
        shown = "" if order == 2 and t.chance(0.5) else f", p={order}"
        return t.step(f"{t.prefix()}.normalize({x}{shown}, dim={dim})", x.shape, "norm")
    absolute = t.pick(f"torch.abs({x})", f"{x}.abs()")
    forms = {
        0: [f"{absolute}.amax(dim={dim}, keepdim=True)", f"torch.max({absolute}, dim={dim}, keepdim=True)[0]"],
        1: [f"torch.sum({absolute}, dim={dim}, keepdim=True)", f"{absolute}.sum(dim={dim}, keepdim=True)",
            f"torch.norm({x}, p=1, dim={dim}, keepdim=True)", f"{x}.norm(p=1, dim={dim}, keepdim=True)"],
        2: [f"torch.norm({x}, p=2, dim={dim}, keepdim=True)", f"{x}.norm(p=2, dim={dim}, keepdim=True)",
            f"torch.sqrt(torch.sum({x} ** 2, dim={dim}, keepdim=True))", f"torch.norm({x}, dim={dim}, keepdim=True)",
            f"torch.linalg.vector_norm({x}, ord=2, dim={dim}, keepdim=True)"],
    }[order]  # fmt: skip
    size = t.step(t.pick(*forms), x.shape, "reduction")
    tail = f"({size} + {t.pick('1e-8', '1e-6', '1e-12')})" if t.chance(0.3) else size.atom
    return t.step(f"{x} / {tail}", x.shape, "norm")


def standardize(t: Draft) -> None:
    """Drafts (x - mean) / std along an axis, by formula."""
    rank = t.random.choice((2, 3, 4))
    x = t.named(memory_bound_input(t, rank))
    axis = t.random.choice((-1, 1, rank - 1, -1))
    dim = t.option("dim", axis, default=-1)
    eps = t.option("eps", t.random.choice((1e-5, 1e-6, 1e-8)), default=1e-5)
    t.mark("standardize", dim=f"{axis % rank}of{rank}")
    t.say(
        t.pick(
            "standardization to zero mean and unit variance",
            "layer normalization by hand",
            "subtracting the mean and dividing by the deviation",
        )
    )
    mean = t.named(
        t.step(
            t.pick(f"{x}.mean(dim={dim}, keepdim=True)", f"torch.mean({x}, dim={dim}, keepdim=True)"), x.shape, "mean"
        ),
        "mean",
    )
    var = t.pick(f"{x}.var(dim={dim}, keepdim=True, unbiased=False)",
                 f"torch.var({x}, dim={dim}, keepdim=True, unbiased=False)",
                 f"(({x} - {mean}) ** 2).mean(dim={dim}, keepdim=True)")  # fmt: skip
    spread = t.named(t.step(var, x.shape, "var"), "var")
    forms = (f"({x} - {mean}) / torch.sqrt({spread} + {eps})", f"({x} - {mean}) * torch.rsqrt({spread} + {eps})")
    t.finish(t.step(t.pick(*forms), x.shape, "norm"))


def families() -> list[Family]:
    """Returns all normalisations."""
    makers = [(f"batch_norm{r}d", _batch(r)) for r in (1, 2, 3)]
    makers += [(f"instance_norm{r}d", _instance(r)) for r in (1, 2, 3)]
    makers += [(f"group_norm{r}d", _group(r)) for r in (1, 2, 3)]
    makers += [("layer_norm", _layer), ("rms_norm", _rms), ("frobenius_norm", frobenius), ("standardize", standardize)]
    makers += [("l1_norm", _lp(1)), ("l2_norm", _lp(2)), ("max_norm", _lp(0))]
    return rows("norm", 13.0, makers)
