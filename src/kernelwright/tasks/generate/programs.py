"""Programs: forwards of two to nine operators drawn one by one, each reading what was computed anywhere before it.

Chains (`fused`) follow what people write most; here everything may follow everything: a statistic that several later
lines read, weights of any shape that broadcasts, a selection by a comparison, a slice, a matrix product in the middle.
Every value is read by a later one, so that nothing computed is for nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from kernelwright.tasks.generate import binary, convolution, norms, pooling, reductions, scans, sizes, softmaxes, unary
from kernelwright.tasks.generate.draft import Dim, Draft, Extent, Tensor, size_of
from kernelwright.tasks.generate.fused import linear
from kernelwright.tasks.generate.matmul import product
from kernelwright.tasks.generate.registry import Family, rows
from kernelwright.tasks.generate.unary import memory_bound_input

_LONGEST = 9
_PARTIAL = frozenset("log sqrt rsqrt reciprocal log2 log1p".split())
"""Functions that some numbers have no value under."""
_STATS = (
    "mean",
    "mean",
    "sum",
    "amax",
    "max",
    "amin",
    "min",
    "std",
    "var",
    "norm_l2",
    "norm_l1",
    "logsumexp",
    "mean_square",
)


@dataclass
class Program:
    """A forward under construction. `image`: dimension 1 has the channels, else the last one."""

    t: Draft
    x: Tensor
    image: bool
    values: list[Tensor] = field(default_factory=list)
    """What later lines may read again, inputs among them."""

    @property
    def axis(self) -> int:
        return 1 if self.image and self.x.rank > 1 else self.x.rank - 1

    def add(self, value: Tensor, kind: str = "value") -> None:
        """The next value; what was the last one may still be read."""
        self.values.append(self.t.named(value, kind))
        self.x = self.values[-1]

    def other(self) -> Tensor | None:
        """A value, an input or one of before, that broadcasts with the last one to its shape."""
        found = [
            v for v in self.values if v.text != self.x.text and v.dtype == self.x.dtype and _fits(v.shape, self.x.shape)
        ]
        return self.t.random.choice(found) if found else None

    def extent(self, axis: int) -> Extent:
        """An extent of the last value, under its name where it has one."""
        value = self.x.shape[axis]
        return next((d for d in self.t.dims if d.value == value), value)


def _fits(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    if len(small) > len(large):
        return False
    return all(a in (1, b) for a, b in zip(small[::-1], large[::-1], strict=False))


def number(t: Draft, low: float = 0.05, high: float = 4.0) -> str:
    """A number as people write it, in place or as an argument of the constructor."""
    value: float | int = round(t.random.uniform(low, high), t.random.choice((0, 1, 1, 2, 2, 3, 4))) or 0.5
    if t.chance(0.15):
        value = int(value) or 1
    if t.chance(0.1):
        value = t.random.choice((1e-3, 1e-4, 0.044715, 0.02, 1e-2, 1.702, 100.0, 64.0))
    names = ("alpha", "scale", "factor", "offset", "shift", "beta", "gain", "c", "coef", "temperature", "value", "p")
    return t.option(t.random.choice(names), value, default=1.0, expose=0.4 * t.style.expose)


# One line each. They return whether they could be written for the values as they are.


def _activation(p: Program) -> bool:
    op = p.t.random.choice(unary.ACTIVATIONS)
    p.add(unary.apply(p.t, p.x, op), "activation")
    return True


def _function(p: Program) -> bool:
    """A function of mathematics, of values that it has one for."""
    t = p.t
    op = t.random.choice(unary.MATH)
    if op.name in _PARTIAL:
        small = t.pick("1e-6", "1e-5", "1.0", "0.5", "1", "0.1", "1e-3")
        x = p.x
        forms = (f"{x.atom}.abs() + {small}", f"torch.abs({x}) + {small}", f"{x} * {x} + {small}", f"{x.atom} ** 2 + {small}",
                 f"torch.clamp({x}, min={small})", f"{x.atom}.pow(2) + {small}", f"{x.atom}.clamp(min={small})")  # fmt: skip
        t.mark("positive_part")
        p.add(t.step(t.pick(*forms), x.shape))
    elif op.name in ("exp", "sinh", "cosh", "exp2", "expm1"):
        t.mark("bounded")
        x = p.x
        forms = (f"torch.clamp({x}, max={t.pick('2.0', '1.0', '5', '0.5')})", f"-torch.abs({x})", f"-{x.atom}.abs()",
                 f"torch.tanh({x})", f"-({x} * {x})", f"{x.atom}.clamp(-2, 2)")  # fmt: skip
        p.add(t.step(t.pick(*forms), x.shape))
    p.add(unary.apply(t, p.x, op), "value")
    return True


def _scalar(p: Program) -> bool:
    t, x = p.t, p.x
    if t.chance(0.4):
        p.add(
            binary.scalar(
                t,
                x,
                t.random.choice(("add", "sub", "mul", "div", "rsub", "clamp", "clamp_min", "clamp_max", "max", "min")),
            )
        )
        return True
    op = t.pick("add", "sub", "mul", "div", "rsub")
    n = number(t)
    forms = {
        "add": (f"{x} + {n}", f"{n} + {x}", f"torch.add({x}, {n})", f"{x.atom}.add({n})"),
        "sub": (f"{x} - {n}", f"torch.sub({x}, {n})", f"{x.atom}.sub({n})"),
        "mul": (f"{x} * {n}", f"{n} * {x}", f"torch.mul({x}, {n})", f"{x.atom}.mul({n})", f"-{n} * {x}" if n[0] != "-" else f"{x} * {n}"),
        "div": (f"{x} / {n}", f"torch.div({x}, {n})", f"{x.atom}.div({n})"),
        "rsub": (f"{n} - {x}", f"{n} - {x}"),
    }[op]  # fmt: skip
    t.mark(f"{op}_scalar")
    p.add(t.step(t.pick(*forms), x.shape))
    return True


def _pair(p: Program) -> bool:
    """The last value with one of before."""
    t, a, b = p.t, p.x, p.other()
    if b is None:
        return False
    if t.chance(0.25) and a.shape == b.shape:
        a, b = b, a
    op = t.pick("add", "add", "mul", "mul", "sub", "sub", "max", "min", "div", "where", "lerp", "addcmul")
    small = t.pick("1e-6", "1e-5", "1.0", "1")
    forms = {
        "add": (f"{a} + {b}", f"{b} + {a}", f"torch.add({a}, {b})", f"{a.atom}.add({b})"),
        "mul": (f"{a} * {b}", f"{b} * {a}", f"torch.mul({a}, {b})", f"{a.atom}.mul({b})"),
        "sub": (f"{a} - {b}", f"torch.sub({a}, {b})", f"{a.atom}.sub({b})", f"{b} - {a}"),
        "max": (f"torch.maximum({a}, {b})", f"torch.max({a}, {b})"),
        "min": (f"torch.minimum({a}, {b})", f"torch.min({a}, {b})"),
        "div": (f"{a} / ({b.atom}.abs() + {small})", f"{a} / (torch.abs({b}) + {small})", f"torch.div({a}, {b} * {b} + {small})"),
        "where": (f"torch.where({a} > {b}, {a}, {b} * {number(t)})", f"torch.where({b} > 0, {a}, {b})", f"torch.where({a} < {number(t)}, {b}, {a})"),
        "lerp": (f"{a} + {number(t, 0.05, 0.95)} * ({b} - {a})",),
        "addcmul": (f"torch.addcmul({a}, {b}, {b}, value={number(t)})", f"{a} + {b} * {b}", f"{a} - {number(t)} * {b}"),
    }[op]  # fmt: skip
    t.mark(f"{op}_values", other="all" if b.shape == a.shape else "part")
    t.say("two values together")
    p.add(t.step(t.pick(*forms), p.x.shape))
    return True


def _parameter(p: Program) -> bool:
    """A weight along some dimensions, in any shape that broadcasts."""
    t, x, rank = p.t, p.x, p.x.rank
    axes = t.random.choice(((p.axis,), (p.axis,), (p.axis,), (rank - 1,), tuple(range(1, rank)) or (0,), ()))
    shape: list[Extent] = [p.extent(i) if i in axes else 1 for i in range(rank)]
    if math.prod(size_of(e) for e in shape) > 1 << 22:
        return False
    role = t.pick("bias", "scale", "weight")
    maker = t.pick(
        "torch.randn({})",
        "torch.randn({})",
        "torch.rand({})",
        "torch.ones({})",
        "torch.zeros({})",
        "torch.randn({}) * 0.02",
    )
    if not axes:
        weight = str(t.parameter(role, (1,), maker))
    elif len(axes) == 1 and t.chance(0.6):  # a vector, seen in another shape
        (axis,) = axes
        flat = t.parameter(role, (shape[axis],), maker)
        tail = rank - 1 - axis
        views = [f"{flat}.view({', '.join(['1'] * axis + ['-1'] + ['1'] * tail)})",
                 f"{flat}.reshape({', '.join(['1'] * axis + ['-1'] + ['1'] * tail)})",
                 f"{flat}[{', '.join(['None'] * axis + [':'] + ['None'] * tail)}]"]  # fmt: skip
        if tail == 0:
            views = [str(flat)] * 4 + views
        if tail == 1:
            views.append(f"{flat}.unsqueeze(-1)")
        weight = t.random.choice(views)
    else:
        lead = 0
        while lead < rank and size_of(shape[lead]) == 1 and t.chance(0.5):
            lead += 1
        weight = str(t.parameter(role, shape[lead:] or (1,), maker))
    if t.chance(0.15):
        weight = t.pick(f"torch.sigmoid({weight})", f"torch.exp({weight})", f"{weight}.abs()", f"torch.tanh({weight})")
    op = t.pick("add", "add", "mul", "mul", "sub", "rsub")
    forms = {
        "add": (f"{x} + {weight}", f"{weight} + {x}", f"torch.add({x}, {weight})"),
        "mul": (f"{x} * {weight}", f"{weight} * {x}", f"torch.mul({x}, {weight})"),
        "sub": (f"{x} - {weight}", f"torch.sub({x}, {weight})"),
        "rsub": (f"{weight} - {x}",),
    }[op]
    t.mark(f"{op}_parameter", axes="+".join(map(str, axes)), rank=rank)
    t.say("a learned weight")
    p.add(t.step(t.pick(*forms), x.shape))
    return True


def _statistic(p: Program) -> bool:
    """A reduction that keeps its dimension, and the values with it."""
    t, x = p.t, p.x
    axes = _axes(p)
    if not axes:
        return False
    kind = reductions.BY_NAME[t.random.choice(_STATS)]
    if len(axes) > 1 and not kind.several:
        axes = axes[-1:]
    p.add(reductions.reduce(t, x, kind, axes, True), "reduction")
    s = p.x
    small = t.pick("1e-6", "1e-5", "1e-8", "1.0")
    forms = (f"{x} - {s}", f"{x} - {s}", f"{x} / ({s.atom}.abs() + {small})", f"{x} * torch.sigmoid({s})", f"{x} + {s}",
             f"{x} * torch.rsqrt({s} * {s} + {small})", f"{x} / (1 + {s} * {s})", f"{s} - {x}", f"torch.sub({x}, {s})",
             f"{x} / torch.sqrt({s.atom}.pow(2) + {small})", f"torch.where({x} > {s}, {x}, {s})", f"{x} * {s}")  # fmt: skip
    t.mark("with_statistic")
    p.add(t.step(t.pick(*forms), x.shape))
    return True


def _axes(p: Program) -> tuple[int, ...]:
    """One dimension of at least two elements, or all behind the channels; never the first one."""
    possible = [i for i in range(1, p.x.rank) if p.x.shape[i] > 1]
    if not possible:
        return ()
    if p.image and p.x.rank > 2 and p.t.chance(0.35):
        return tuple(range(2, p.x.rank))
    axis = p.t.random.choice([*possible, *[a for a in (p.axis, p.x.rank - 1) if a in possible]])
    return (axis - p.x.rank,) if p.t.chance(0.4) else (axis,)


def _reduce(p: Program) -> bool:
    t = p.t
    axes = _axes(p)
    if not axes:
        return False
    kind = reductions.BY_NAME[
        t.random.choice((*_STATS, "prod" if p.x.shape[axes[0]] < 64 else "mean", "argmax", "argmin"))
    ]
    if len(axes) > 1 and not kind.several:
        axes = axes[-1:]
    keep = t.chance(0.5) and not kind.integer
    x = reductions.reduce(t, p.x, kind, axes, keep)
    p.add(x, "reduction")
    p.image = p.image and keep
    return True


def _softmax(p: Program) -> bool:
    axes = [i for i in range(p.x.rank) if p.x.shape[i] > 1 and i > 0]
    if not axes:
        return False
    axis = p.t.random.choice([*axes, axes[-1]])
    p.add(softmaxes.softmax(p.t, p.x, axis, p.t.pick("softmax", "softmax", "log_softmax", "softmin")), "softmax")
    return True


def _norm(p: Program) -> bool:
    t, x = p.t, p.x
    channels = p.extent(p.axis)
    if not isinstance(channels, Dim) or channels.value < 2 or x.rank < 2:
        return False
    if p.image and x.rank >= 3 and math.prod(x.shape[2:]) >= 4:
        groups = [g for g in (2, 3, 4, 8, 16) if channels.value % g == 0 and channels.value > g]
        kind = t.pick(*["batch", "instance"], *["group"] * bool(groups))
        if kind == "group":
            p.add(norms.group_norm(t, x, channels, t.random.choice(groups)), "norm")
        else:
            p.add((norms.batch_norm if kind == "batch" else norms.instance_norm)(t, x, channels), "norm")
        return True
    if p.image:
        return False
    if x.rank == 2 and t.chance(0.3):
        p.add(norms.batch_norm(t, x, channels, rank=1), "norm")
    elif t.chance(0.6):
        p.add(norms.layer_norm(t, x, (channels,)), "norm")
    else:
        p.add(norms.rms_norm(t, x, channels if t.chance(0.5) else None, -1), "norm")
    return True


def _layer(p: Program) -> bool:
    """A linear layer of rows, a small convolution of images."""
    t, x = p.t, p.x
    inside = p.extent(p.axis)
    if not isinstance(inside, Dim) or x.rank < 2 or inside.value > 4096 or x.elements > 3e7:
        return False
    if not p.image:
        out = t.dim("out_features", sizes.around(t.random, sizes.log_uniform(t.random, 16, 2048), 8))
        p.add(linear(t, x, inside, out), "linear")
        return True
    if x.rank < 3 or inside.value > 256:
        return False
    win = convolution.window(t, x.rank - 2, pointwise=t.chance(0.3))
    if min(x.shape[2:]) < 8 or min(win.output(x.shape[2:])) < 1:
        return False
    out = t.dim("out_channels", t.random.choice((8, 16, 24, 32, 48, 64)))
    p.add(convolution.convolve(t, x, inside, out, win, 1), "conv")
    return True


def _product(p: Program) -> bool:
    """A product with another input."""
    t, x = p.t, p.x
    if p.image or x.rank not in (2, 3) or x.shape[-1] > 4096 or x.elements > 2e7:
        return False
    inner = p.extent(x.rank - 1)
    cols = t.dim("N", sizes.around(t.random, sizes.log_uniform(t.random, 16, 1024), 8))
    b_t = t.chance(0.3)
    lead = (p.extent(0),) if x.rank == 3 and t.chance(0.5) else ()
    shape = (*lead, *((cols, inner) if b_t else (inner, cols)))
    b = t.input("B", shape, "randn")
    t.kept.add(b.text)
    if x.rank == 3 and not lead:
        text = (
            t.pick(f"{x} @ {b}.T", f"torch.matmul({x}, {b}.t())")
            if b_t
            else t.pick(f"{x} @ {b}", f"torch.matmul({x}, {b})")
        )
        t.mark("matmul", rank=3, b_t=int(b_t))
        p.add(t.step(text, (*x.shape[:-1], cols.value), flops=2.0 * x.elements * cols.value), "linear")
        return True
    p.add(product(t, x, b, b_t=b_t, batched=bool(lead)), "linear")
    return True


def _pool(p: Program) -> bool:
    if not p.image or p.x.rank < 3 or min(p.x.shape[2:]) < 6:
        return False
    p.add(pooling.pool(p.t, p.x, p.t.pick("max", "avg"), small=True), "pool")
    return True


def _select(p: Program) -> bool:
    """Values where something holds."""
    t, x = p.t, p.x
    n, m = number(t), number(t)
    forms = [f"torch.where({x} > {n}, {x}, {m} * {x})", f"torch.where({x} > 0, {x}, torch.zeros_like({x}))",
             f"torch.where({x} < -{n}, {x} + {m}, {x})" if n[0].isdigit() else f"torch.where({x} >= {n}, {x}, {x} * {x})",
             f"{x} * ({x} > {n}).float()", f"{x}.masked_fill({x} < 0, {m})", f"{x} * ({x} > 0)", f"torch.where({x} > 0, {x}, {m})",
             f"torch.sign({x}) * torch.clamp({x}.abs() - {n}, min=0)", f"torch.where({x}.abs() > {n}, {x}, 0.0)"]  # fmt: skip
    if x.shape == t.inputs[0].shape and not any(i.draw == "bool" for i in t.inputs) and t.chance(0.3):
        mask = t.input("mask", t.inputs[0].shape, "bool")
        forms = [
            f"{x}.masked_fill({mask}, {m})",
            f"torch.where({mask}, {x}, {x} * {m})",
            f"{x} * {mask}",
            f"{x}.masked_fill(~{mask}, 0.0)",
        ]
    t.mark("select")
    t.say("a selection")
    p.add(t.step(t.pick(*forms), x.shape), "mask")
    return True


def _layout(p: Program) -> bool:
    """The same elements in another shape or order."""
    t, x = p.t, p.x
    if x.rank < 2 or x.rank > 4:
        return False
    kind = t.pick("transpose", "flatten", "slice", "flip", "cat", "chunk")
    t.mark(kind, rank=x.rank)
    if kind == "transpose" and not p.image:
        a, b = t.random.sample(range(x.rank), 2)
        shape = list(x.shape)
        shape[a], shape[b] = shape[b], shape[a]
        if t.chance(0.5):
            a, b = a - x.rank, b - x.rank
        p.add(t.step(t.pick(f"{x}.transpose({a}, {b})", f"torch.transpose({x}, {a}, {b})"), shape), "shape")
        return True
    if kind == "flatten" and x.rank > 2:
        start = t.pick("1", "2") if x.rank > 3 else "1"
        shape = (*x.shape[: int(start)], math.prod(x.shape[int(start) :]))
        p.add(
            t.step(
                t.pick(f"torch.flatten({x}, {start})", f"{x}.flatten({start})", f"{x}.flatten(start_dim={start})"),
                shape,
            ),
            "shape",
        )
        p.image = p.image and start == "2"
        return True
    axis = t.random.randrange(1, x.rank)
    size = x.shape[axis]
    if kind == "slice" and size >= 4:
        cut = t.random.choice((size // 2, size - 1, size - 2))
        lead = ", ".join([":"] * axis)
        text = t.pick(f"{x}[{lead}, :{cut}]", f"{x}.narrow({axis}, 0, {cut})", f"{x}[{lead}, {size - cut}:]")
        if axis == x.rank - 1:
            text = t.pick(text, f"{x}[..., :-{size - cut}]", f"{x}[..., :{cut}]", f"{x}[..., {size - cut}:]")
        p.add(t.step(text, (*x.shape[:axis], cut, *x.shape[axis + 1 :])), "shape")
        return True
    if kind == "flip":
        p.add(
            t.step(
                t.pick(
                    f"torch.flip({x}, dims=[{axis}])", f"{x}.flip({axis})", f"torch.roll({x}, shifts=1, dims={axis})"
                ),
                x.shape,
            ),
            "shape",
        )
        return True
    b = p.other()
    if kind == "cat" and b is not None and b.shape == x.shape:
        shape = (*x.shape[:axis], 2 * size, *x.shape[axis + 1 :])
        p.add(t.step(t.pick(f"torch.cat([{x}, {b}], dim={axis})", f"torch.cat(({b}, {x}), {axis})"), shape), "shape")
        return True
    if kind == "chunk" and size % 2 == 0 and size >= 4:
        a, c = t.name(("a", "first", "left", "u", "half")), t.name(("b", "second", "right", "v", "gate"))
        t.lines.append(f"{a}, {c} = " + t.pick(f"{x}.chunk(2, dim={axis})", f"torch.chunk({x}, 2, dim={axis})"))
        shape = (*x.shape[:axis], size // 2, *x.shape[axis + 1 :])
        first, second = Tensor(a, shape, x.dtype), Tensor(c, shape, x.dtype)
        t.kept |= {a, c}
        p.add(
            t.step(
                t.pick(f"{first} * torch.sigmoid({second})", f"{first} * {second}", f"torch.tanh({first}) + {second}"),
                shape,
            )
        )
        return True
    t.marks.pop()
    return False


def _scan(p: Program) -> bool:
    axis = p.x.rank - 1
    if p.x.shape[axis] < 2 or p.x.dtype != "float32":
        return False
    kind = p.t.pick("cumsum", "cumsum", "cummax", "logcumsumexp")
    p.t.mark(kind, dim=f"{axis}of{p.x.rank}")
    p.add(p.t.step(scans.scan(p.t, p.x, kind, str(p.t.random.choice((axis, -1)))), p.x.shape))
    return True


def _gate(p: Program) -> bool:
    """A value times a function of it, or of another."""
    t, x = p.t, p.x
    y = p.other() if t.chance(0.4) else x
    if y is None or y.shape != x.shape:
        y = x
    inner = t.pick(f"torch.sigmoid({y})", f"torch.tanh({y})", f"{y}.sigmoid()", f"{t.prefix()}.softplus({y})", f"{t.prefix()}.relu({y})",
                   f"torch.exp(-{y} * {y})", f"torch.sigmoid({number(t)} * {y})", f"{t.prefix()}.silu({y})", f"torch.erf({y})")  # fmt: skip
    t.mark("gate_values")
    p.add(t.step(t.pick(f"{x} * {inner}", f"{inner} * {x}", f"{x} + {inner}", f"{x} - {inner}"), x.shape), "gate")
    return True


def _spread(p: Program) -> bool:
    """The variance or deviation along a dimension, in either way of counting."""
    t, x = p.t, p.x
    axes = [i for i in range(1, x.rank) if x.shape[i] > 2]
    if not axes:
        return False
    axis = t.random.choice(axes)
    shown = str(axis - x.rank if t.chance(0.4) else axis)
    name, keep, unbiased = t.pick("var", "std"), t.chance(0.7), t.chance(0.4)
    tail = f", unbiased={unbiased}" if t.chance(0.8) or not unbiased else ""
    tail += ", keepdim=True" if keep else ""
    t.mark(f"{name}_along", dim=f"{axis}of{x.rank}", unbiased=int(unbiased), keepdim=int(keep))
    text = t.pick(f"{x}.{name}(dim={shown}{tail})", f"torch.{name}({x}, dim={shown}{tail})")
    shape = tuple(1 if i == axis else e for i, e in enumerate(x.shape) if keep or i != axis)
    p.add(t.step(text, shape, "var", flops=4.0 * x.elements), "var")
    p.image = p.image and keep
    if keep and t.chance(0.8):
        p.add(
            t.step(t.pick(f"{x} / ({p.x} + {t.pick('1e-5', '1e-6', '1.0')})", f"{x} * {p.x}", f"{x} - {p.x}"), x.shape)
        )
    return True


def _halves(p: Program) -> bool:
    """A gated unit along a dimension, or two parts of the same size."""
    t, x = p.t, p.x
    axes = [i for i in range(1, x.rank) if x.shape[i] % 2 == 0 and x.shape[i] > 2]
    if not axes:
        return False
    axis = t.random.choice([*axes, p.axis] if p.axis in axes else axes)
    shown = axis - x.rank if t.chance(0.4) else axis
    shape = tuple(e // 2 if i == axis else e for i, e in enumerate(x.shape))
    t.mark("glu_along", dim=f"{axis}of{x.rank}")
    if t.chance(0.5):
        p.add(t.step(f"{t.prefix()}.glu({x}, {t.pick('dim=', '')}{shown})", shape), "gate")
        return True
    half, lead = x.shape[axis] // 2, ", ".join([":"] * axis)
    a = p.t.named(t.step(f"{x}[{lead}, :{half}]", shape))
    b = p.t.named(t.step(f"{x}[{lead}, {half}:]", shape))
    p.add(
        t.step(
            t.pick(f"{a} * torch.sigmoid({b})", f"{a} + {b}", f"torch.maximum({a}, {b})", f"{a} * torch.tanh({b})"),
            shape,
        ),
        "gate",
    )
    return True


def _affine(p: Program) -> bool:
    """A product with a weight and a sum in one call, rows by features."""
    t, x = p.t, p.x
    if p.image or x.rank != 2 or not 8 <= x.shape[1] <= 4096 or x.elements > 2e7:
        return False
    inner = p.extent(1)
    out = t.dim("out_features", sizes.around(t.random, sizes.log_uniform(t.random, 16, 1024), 8))
    turned = t.chance(0.5)
    weight = t.parameter("weight", (out, inner) if turned else (inner, out), "torch.randn({}) * 0.05")
    bias = t.parameter("bias", (out,))
    w = f"{weight}{t.pick('.T', '.t()')}" if turned else str(weight)
    forms = [f"torch.addmm({bias}, {x}, {w})", f"{x} @ {w} + {bias}", f"torch.matmul({x}, {w}) + {bias}",
             f"torch.addmm({bias}, {x}, {w}, beta={number(t)}, alpha={number(t)})", f"torch.mm({x}, {w}) + {bias}"]  # fmt: skip
    if turned:
        forms += [f"{t.prefix()}.linear({x}, {weight}, {bias})"] * 3 + [
            f"{t.prefix()}.linear({x}, {weight}, bias={bias})"
        ]
    t.mark("linear", form="affine")
    t.say("an affine map")
    p.add(t.step(t.pick(*forms), (x.shape[0], out.value), "linear", flops=2.0 * x.elements * out.value), "linear")
    return True


def _counted(p: Program) -> bool:
    """Scaling by an extent, as means and attention are written."""
    t, x = p.t, p.x
    axis = t.random.randrange(x.rank)
    size = t.pick(
        f"{x}.shape[{axis}]", f"{x}.size({axis})", f"{x}.shape[{axis - x.rank}]", f"{x}.size({axis - x.rank})"
    )
    forms = [
        f"{x} / {size}",
        f"{x} * ({size} ** -0.5)",
        f"{x}.sum(dim={axis}, keepdim=True) / {size}" if axis else f"{x} / {size}",
    ]
    if t.chance(0.3):
        t.math("")
        forms.append(f"{x} / math.sqrt({size})")
    text = t.random.choice(forms)
    shape = tuple(1 if "sum" in text and i == axis else e for i, e in enumerate(x.shape))
    t.mark("by_extent", dim=f"{axis}of{x.rank}")
    p.add(t.step(text, shape))
    return True


_LINES: tuple[tuple[Callable[[Program], bool], float], ...] = (
    (_activation, 2.0), (_function, 1.2), (_scalar, 2.2), (_pair, 2.5), (_parameter, 2.2), (_statistic, 1.6), (_reduce, 0.8),
    (_softmax, 0.5), (_norm, 0.8), (_layer, 0.8), (_product, 0.4), (_pool, 0.5), (_select, 0.9), (_layout, 0.8), (_scan, 0.25),
    (_gate, 0.9), (_spread, 0.5), (_halves, 0.4), (_affine, 0.4), (_counted, 0.3),
)  # fmt: skip


def extend(p: Program, count: int) -> None:
    """Up to `count` more lines."""
    lines, weights = [line for line, _ in _LINES], [weight for _, weight in _LINES]
    for _ in range(count):
        if p.x.dtype != p.t.dtype or p.x.rank == 0 or p.x.elements < 2 or len(p.t.lines) > _LONGEST + 4:
            return
        for _ in range(6):
            if p.t.random.choices(lines, weights)[0](p):
                break


def _started(t: Draft, image: bool) -> Program:
    total = sizes.log_uniform(t.random, 1e5, 4e7)
    if image:
        x, _ = norms.channel_input(t, t.random.choice((1, 2, 2, 3)), multiple=t.random.choice((1, 4, 8)), low=8)
    else:
        x = memory_bound_input(t, t.random.choice((2, 2, 2, 3, 3, 4)), total=total)
    p = Program(t, x, image, [x])
    t.kept.add(x.text)
    if t.chance(0.3):
        shape = t.inputs[0].shape
        if t.chance(0.25):
            shape = tuple(e if i == p.axis or size_of(e) == 1 else 1 for i, e in enumerate(shape))
        p.values.append(t.input("other", shape))
        t.kept.add(p.values[-1].text)
    return p


def _program(image: bool, anchored: bool) -> Callable[[Draft], None]:
    def make(t: Draft) -> None:
        p = _started(t, image)
        if anchored and not _layer(p) and not _product(p):
            _norm(p)
        extend(p, t.random.choice((2, 3, 3, 4, 4, 5, 5, 6, 7)))
        if len(t.marks) < 2:
            _activation(p)
            _scalar(p)
        read = set(re.findall(r"\w+", "\n".join(t.lines)))
        t.inputs = [one for one in t.inputs if one.name in read]
        t.finish(p.x)

    return make


def families() -> list[Family]:
    """Programs by what they work on, and whether they begin with a layer."""
    makers = [("program_rows", _program(False, False)), ("program_image", _program(True, False))]
    makers += [("program_linear", _program(False, True)), ("program_conv", _program(True, True))]
    return rows("program", 24.0, makers)
