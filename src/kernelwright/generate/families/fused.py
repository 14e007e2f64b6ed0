"""Drafts fused chains: a convolution, matrix product, norm, pool or reduction, then one to five operators.

Followers are drawn from the operator graph (`graph`), without those that have no effect or destroy the values: an
activation that does not change its input, the mean of normalised values, a softmax over one element.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from kernelwright.generate import graph, sizes
from kernelwright.generate.draft import Dim, Draft, DraftTensor
from kernelwright.generate.families import binary, convolution, norms, pooling, reductions, softmaxes, unary
from kernelwright.generate.families.matmul import extents, product, uniform
from kernelwright.generate.families.unary import Unary
from kernelwright.generate.registry import Family, rows


@dataclass(frozen=True)
class Flow:
    """A chain so far."""

    x: DraftTensor
    channels: Dim | None
    """The extent of dimension 1 of an image or of the last dimension of rows; None after its reduction."""
    image: bool
    last: str = "anchor"
    low: str = "any"
    """Known range of the values: `any`, `nonnegative` or `unit` (0 to 1)."""
    flat: bool = False
    """True where means over a norm's dimensions would be constant."""
    large: bool = False
    """True where values are far from 0, so that a reduction after a saturating function would be constant."""
    residual: DraftTensor | None = None
    """A value of the same shape, kept for a residual addition."""


_UNCHANGED = frozenset("relu abs leaky_relu elu selu celu softplus threshold".split())
"""Activations that change nonnegative values little or not at all."""
_BOUNDED = frozenset("relu6 hardtanh softshrink hardshrink floor ceil".split())
_SATURATING = frozenset("sigmoid tanh hardsigmoid hardtanh relu6 softsign erf atan logsigmoid".split())
_NONNEGATIVE = frozenset("relu relu6 softplus abs square".split())
_UNIT = frozenset("sigmoid hardsigmoid".split())
_RARE = frozenset("sin cos atan erf square abs neg".split())
_SCALARS = ("add", "sub", "mul", "div", "mul", "clamp", "clamp_min", "clamp_max", "max", "min", "rsub", "pow")


def extend(t: Draft, flow: Flow, count: int) -> Flow:
    """Extends the chain by up to `count` operators."""
    for number in range(count):
        usable = _usable(flow, last=number == count - 1)
        kind = graph.follower(t.random, flow.last, usable)
        if "residual" in usable and t.chance(0.6):  # a kept residual is mostly used
            kind = "residual"
        if not kind:
            return flow
        flow = _STEPS[kind](t, flow)
        flow = replace(flow, last=kind)
    return flow


def _usable(flow: Flow, last: bool) -> set[str]:
    """Returns the kinds of operators that have an effect on the current values."""
    kinds = {"activation", "scalar"}
    shape = flow.x.shape
    if flow.channels is not None and flow.channels.value > 1:
        kinds |= {"bias", "softmax", "reduce"}
        axis = 1 if flow.image else -1
        if shape[axis] >= 2 and last:
            kinds.add("arg")
        if not flow.flat:
            kinds.add("center")
        if (flow.image and math.prod(shape[2:]) >= 4) or (not flow.image and len(shape) == 2):
            kinds.add("norm")
    kept = flow.residual
    if kept is not None and kept.shape == shape and kept.text != flow.x.text:
        kinds.add("residual")
    kinds.add("gate")
    if flow.image and min(shape[2:], default=0) >= 4 and flow.channels is not None:
        kinds |= {"pool"}
        if not flow.flat:
            kinds.add("global_pool")
    return kinds


def _activation(t: Draft, flow: Flow) -> Flow:
    op = choose_activation(t, flow.low, flow.large and flow.channels is None)
    low = "unit" if op.name in _UNIT else "nonnegative" if op.name in _NONNEGATIVE else "any"
    large = flow.large and op.name not in _SATURATING
    return replace(flow, x=unary.apply(t, flow.x, op), low=low, flat=False, large=large)


def choose_activation(t: Draft, low: str = "any", large: bool = False) -> Unary:
    """Returns an activation that changes values of this kind."""
    forbidden = _UNCHANGED if low != "any" else frozenset()
    forbidden |= _BOUNDED if low == "unit" else frozenset(("floor", "ceil"))
    forbidden |= _SATURATING if large else frozenset()
    options = [op for op in binary.CHAINABLE if op.name not in forbidden]
    return t.random.choices(options, [0.25 if op.name in _RARE else op.weight for op in options])[0]


def _scalar(t: Draft, flow: Flow) -> Flow:
    op = t.random.choice(_SCALARS)
    constant = flow.low != "any" or (flow.large and flow.channels is None)
    while constant and op in ("clamp", "clamp_min", "clamp_max", "max", "min"):
        op = t.random.choice(_SCALARS)
    low = flow.low if op in ("mul", "div") and flow.low == "nonnegative" else "any"
    flat = flow.flat and op in ("add", "sub", "mul", "div", "rsub")
    return replace(flow, x=binary.scalar(t, flow.x, op), low=low, flat=flat)


def _bias(t: Draft, flow: Flow) -> Flow:
    assert flow.channels is not None
    x = binary.channel_parameter(t, flow.x, flow.channels, t.pick("add", "add", "add", "mul", "sub"))
    return replace(flow, x=x, low="any", flat=flow.flat and flow.image)


def _norm(t: Draft, flow: Flow) -> Flow:
    channels = flow.channels
    assert channels is not None
    groups = [g for g in (2, 4, 8, 16) if channels.value % g == 0 and channels.value > g]
    if flow.image:
        kinds = ["batch", "batch", "instance", "rms"] + ["group"] * 2 * bool(groups)
    else:
        kinds = ["batch", "layer", "layer", "rms"] + ["group"] * bool(groups)
    kind = t.pick(*kinds)
    if kind == "batch":
        x = norms.batch_norm(t, flow.x, channels, rank=None if flow.image else 1)
    elif kind == "instance":
        x = norms.instance_norm(t, flow.x, channels)
    elif kind == "group":
        x = norms.group_norm(t, flow.x, channels, t.random.choice(groups))
    elif kind == "layer":
        x = norms.layer_norm(t, flow.x, (channels,))
    else:
        x = norms.rms_norm(t, flow.x, channels if t.chance(0.4) else None, 1 if flow.image else -1)
    low = flow.low if kind == "rms" else "any"
    return replace(flow, x=x, flat=kind != "rms" or flow.flat, low=low, large=False)


def _pool(t: Draft, flow: Flow) -> Flow:
    kind = t.pick("max", "avg")
    return replace(flow, x=pooling.pool(t, flow.x, kind, small=True))


def _global_pool(t: Draft, flow: Flow) -> Flow:
    kind = t.pick("avg", "avg", "max")
    rank = flow.x.rank - 2
    if t.chance(0.5):
        return replace(flow, x=pooling.adaptive(t, flow.x, kind, 1))
    dims = ", ".join(str(i) for i in range(2, rank + 2))
    shown = t.pick(f"dim=({dims}{',' if rank == 1 else ''})", f"dim=[{dims}]") if rank > 1 else f"dim={dims}"
    name = "mean" if kind == "avg" else "amax"
    t.mark(name, dim="spatial", keepdim=1)
    t.say("a mean over space" if kind == "avg" else "a maximum over space")
    text = t.pick(f"torch.{name}({flow.x}, {shown}, keepdim=True)", f"{flow.x.atom}.{name}({shown}, keepdim=True)")
    x = t.step(text, (*flow.x.shape[:2], *(1,) * rank), "pool", flops=float(flow.x.elements))
    return replace(flow, x=x)


def _softmax(t: Draft, flow: Flow) -> Flow:
    axis = 1 if flow.image or t.chance(0.1) else flow.x.rank - 1
    axis = axis if flow.x.shape[axis] > 1 else 1
    kind = t.pick("softmax", "softmax", "softmax", "log_softmax", "softmin")
    low = "any" if kind == "log_softmax" else "unit"
    return replace(flow, x=softmaxes.softmax(t, flow.x, axis, kind), low=low, flat=True, large=False)


_REDUCED = ("sum", "mean", "max", "min", "logsumexp", "std", "amax", "mean", "sum", "logsumexp", "norm_l2")


def _reduce(t: Draft, flow: Flow) -> Flow:
    axis = 1 if flow.image else flow.x.rank - 1
    name = t.random.choice(_REDUCED)
    if flow.flat and name in ("sum", "mean", "std", "norm_l2"):
        name = t.pick("max", "min", "amax", "logsumexp")
    axis = axis if flow.x.shape[axis] > 1 else 1
    kind = reductions.BY_NAME[name]
    keepdim = t.chance(0.75) or flow.image
    x = reductions.reduce(t, flow.x, kind, (axis,), keepdim)
    return Flow(x, None, flow.image and keepdim, large=flow.large or name == "sum")


def _arg(t: Draft, flow: Flow) -> Flow:
    axis = 1 if flow.image else flow.x.rank - 1
    kind = reductions.BY_NAME[t.pick("argmax", "argmin")]
    return Flow(reductions.reduce(t, flow.x, kind, (axis,), False), None, False)


def _residual(t: Draft, flow: Flow) -> Flow:
    assert flow.residual is not None
    t.mark("residual_add")
    t.say("a residual addition")
    r = flow.residual
    text = t.pick(f"{flow.x.atom} + {r}", f"{flow.x.atom} + {r}", f"{r} + {flow.x.atom}", f"torch.add({flow.x}, {r})")
    return replace(flow, x=t.step(text, flow.x.shape), low="any", flat=False, residual=None)


def _gate(t: Draft, flow: Flow) -> Flow:
    """Drafts x times a function of x."""
    x = t.named(flow.x)
    t.mark("self_gate")
    t.say("a gate of its own values")
    inner = t.pick(
        f"torch.sigmoid({x})", f"torch.tanh({x})", f"{x}.sigmoid()", f"torch.tanh({t.prefix()}.softplus({x}))"
    )
    y = t.step(t.pick(f"{x} * {inner}", f"{inner} * {x}"), x.shape, "gate")
    return replace(flow, x=y, low="any", flat=False)


def _center(t: Draft, flow: Flow) -> Flow:
    """Drafts x less its mean along the channels."""
    x = t.named(flow.x)
    axis = 1 if flow.image else -1
    t.mark("center", dim=f"{axis % x.rank}of{x.rank}")
    t.say("subtracting the mean")
    mean = t.pick(f"{x}.mean(dim={axis}, keepdim=True)", f"torch.mean({x}, dim={axis}, keepdim=True)")
    return replace(flow, x=t.step(f"{x} - {mean}", x.shape), low="any", flat=True)


_STEPS: dict[str, Callable[[Draft, Flow], Flow]] = {
    "activation": _activation, "scalar": _scalar, "bias": _bias, "norm": _norm, "pool": _pool, "softmax": _softmax,
    "reduce": _reduce, "residual": _residual, "gate": _gate, "center": _center, "arg": _arg,
    "global_pool": _global_pool,
}  # fmt: skip


# Anchors


def keep_for_residual(t: Draft, flow: Flow) -> Flow:
    """Keeps the value for a later addition, in some of the chains."""
    if not t.chance(0.15):
        return flow
    return replace(flow, residual=(kept := t.keep(flow.x)), x=kept)


def _convolution(rank: int, transpose: bool) -> Callable[[Draft], None]:
    def make(t: Draft) -> None:
        random = t.random
        channels, out = random.choice((3, 8, 16, 32, 64)), random.choice((8, 16, 24, 32, 48, 64, 128))
        win = convolution.window(t, rank, transpose=transpose)
        low = max((k - 1) * d + 4 for k, d in zip(win.kernel, win.dilation, strict=True)) + 4
        total = sizes.log_uniform(random, 3e5, 2e7)
        while True:
            shape = sizes.image(random, rank, total, channels)
            shape = [shape[0], channels, *(max(low, s) for s in shape[2:])]
            if (
                convolution.affordable(t, tuple(shape), out, win, 1)
                and out * shape[0] * math.prod(win.output(tuple(shape[2:]))) < 6e7
            ):
                break
            total /= 2
            channels = max(3, channels // 2)
        lead, inside = t.dim("batch", max(2, shape[0])), t.dim("in_channels", channels)
        dims = [t.dim(r, s) for r, s in zip(convolution.SPATIAL[rank], shape[2:], strict=True)]
        x = t.input(convolution.INPUT_ROLE[rank], (lead, inside, *dims))
        outside = t.dim("out_channels", out)
        kind = "conv_transpose" if transpose else "conv"
        t.say(convolution.phrase(kind, rank))
        groups = 1
        if t.chance(0.08) and channels % 2 == 0 and out % 2 == 0:
            groups = 2
        x = convolution.convolve(t, x, inside, outside, win, groups)
        flow = keep_for_residual(t, Flow(x, outside, True))
        t.finish(extend(t, flow, graph.draw_length(random)).x)

    return make


def _linear(t: Draft) -> None:
    flow = keep_for_residual(t, linear_anchor(t))
    t.finish(extend(t, flow, graph.draw_length(t.random)).x)


def linear_anchor(t: Draft) -> Flow:
    """Drafts nn.Linear, or a product with a weight, on rows."""
    batch, k, n = extents(t, *(sizes.log_uniform(t.random, *span) for span in ((16, 2048), (64, 4096), (64, 4096))))
    lead, inside = t.dim("batch", max(2, batch)), t.dim("in_features", k)
    outside = t.dim("out_features", n)
    lead_dims = (lead, t.dim("seq", t.random.choice((16, 64, 128)))) if t.chance(0.12) and batch < 256 else (lead,)
    x = t.input("x", (*lead_dims, inside))
    y = linear(t, x, inside, outside)
    return Flow(y, outside, False, large=any(".Parameter(" in line for line in t.init_lines))


def linear(t: Draft, x: DraftTensor, inside: Dim, outside: Dim) -> DraftTensor:
    """Drafts a linear layer in one of its forms."""
    shape = (*x.shape[:-1], outside.value)
    flops = 2.0 * x.elements * outside.value
    form = t.random.random()
    if form < 0.72:
        bounds = [("in_features", t.argument(inside)), ("out_features", t.argument(outside))]
        bias = None if t.chance(0.75) else t.option("bias", t.chance(0.4), default=True, where="init")
        layer = t.module("Linear", "Linear", [*bounds, ("bias", bias)])
        t.mark("linear", rank=x.rank, bias=bias and "given")
        t.say(t.pick("a linear layer", "a matrix product with bias", "a dense layer", "a GEMM"))
        return t.step(f"{layer}({x})", shape, "linear", flops=flops)
    t.say(t.pick("a product with a weight", "a matrix product with learned weights"))
    maker = t.pick("torch.randn({}) * 0.02", "torch.randn({}) * 0.05", "torch.randn({}) * 0.1", "torch.randn({})")
    if form < 0.86:
        weight = t.parameter("weight", (outside, inside), maker)
        t.mark("linear", form="weight", rank=x.rank)
        forms = [
            f"{t.prefix()}.linear({x}, {weight})",
            f"{x} @ {weight}.T",
            f"torch.matmul({x}, {weight}.T)",
            f"torch.matmul({x}, {weight}.t())",
        ]
        return t.step(t.pick(*forms), shape, "linear", flops=flops)
    weight = t.parameter("weight", (inside, outside), maker)
    t.mark("matmul", form="weight", rank=x.rank)
    return t.step(
        t.pick(f"torch.matmul({x}, {weight})", f"{x} @ {weight}", f"{x}.matmul({weight})"), shape, "linear", flops=flops
    )


def _matmul(t: Draft) -> None:
    """Drafts the product of two inputs, then a chain."""
    m, n, k = extents(t, *uniform(t, 64, 4096))
    rows_, cols, inner = t.dim("M", max(2, m)), t.dim("N", max(2, n)), t.dim("K", k)
    a_t, b_t = t.chance(0.12), t.chance(0.2)
    a = t.input("A", (inner, rows_) if a_t else (rows_, inner), "randn")
    b = t.input("B", (cols, inner) if b_t else (inner, cols), "randn")
    t.kept |= {a.text, b.text}
    t.say(t.pick("a matrix product", "a matmul", "the product of two matrices"))
    flow = Flow(product(t, a, b, a_t=a_t, b_t=b_t), cols, False, large=True)
    t.finish(extend(t, keep_for_residual(t, flow), graph.draw_length(t.random)).x)


def _bmm(t: Draft) -> None:
    batch = t.random.choice((4, 8, 16, 32, 64))
    m, n, k = extents(t, *uniform(t, 32, 768), batch=batch)
    lead, rows_, cols, inner = t.dim("batch", batch), t.dim("M", max(2, m)), t.dim("N", max(2, n)), t.dim("K", k)
    a, b = t.input("A", (lead, rows_, inner), "randn"), t.input("B", (lead, inner, cols), "randn")
    t.kept |= {a.text, b.text}
    t.say(t.pick("a batched matrix product", "batched matmul"))
    flow = Flow(product(t, a, b, batched=True), cols, False, large=True)
    t.finish(extend(t, flow, graph.draw_length(t.random)).x)


def _norm_first(t: Draft) -> None:
    if t.chance(0.6):
        rank = t.random.choice((1, 2, 2, 3))
        x, channels = norms.channel_input(t, rank, multiple=8)
        flow = Flow(x, channels, True)
    else:
        rows_, cols = sizes.shape(t.random, 2, sizes.log_uniform(t.random, 1e6, 6e7))
        channels = t.dim("features", min(max(8, cols), 16384))
        flow = Flow(t.input("x", (t.dim("batch", max(2, rows_)), channels)), channels, False)
    flow = keep_for_residual(t, flow)
    flow = replace(_norm(t, flow), last="norm")
    t.finish(extend(t, flow, graph.draw_length(t.random)).x)


def _pool_first(t: Draft) -> None:
    rank = t.random.choice((1, 2, 2, 3))
    x, channels = norms.channel_input(t, rank, low=8)
    flow = replace(_pool(t, Flow(x, channels, True)), last="pool")
    t.finish(extend(t, flow, graph.draw_length(t.random)).x)


def _rows_first(t: Draft) -> None:
    """Drafts elementwise, softmax or reduction first, on rows."""
    rows_, cols = sizes.shape(t.random, 2, sizes.log_uniform(t.random, 1e6, 6e7))
    channels = t.dim("features", max(8, cols))
    flow = Flow(t.input("x", (t.dim("batch", max(2, rows_)), channels)), channels, False)
    flow = keep_for_residual(t, flow)
    first = t.pick("softmax", "scalar", "activation", "center", "bias", "gate")
    flow = replace(_STEPS[first](t, flow), last=first)
    t.finish(extend(t, flow, max(2, graph.draw_length(t.random))).x)


def families() -> list[Family]:
    """Returns the fused families, by their first operator."""
    convs = [(f"fused_conv{r}d", _convolution(r, False)) for r in (1, 2, 3)]
    convs += [(f"fused_conv_transpose{r}d", _convolution(r, True)) for r in (1, 2, 3)]
    products = [("fused_linear", _linear), ("fused_matmul", _matmul), ("fused_bmm", _bmm)]
    others = [("fused_norm", _norm_first), ("fused_pool", _pool_first), ("fused_rows", _rows_first)]
    return rows("fused", 34.0, convs) + rows("fused", 18.0, products) + rows("fused", 8.0, others)
