"""Adds elementwise lines to a program: functions, numbers, weights, pairs of values, selections.

Each function returns False where its line does not fit the current values.
"""

from __future__ import annotations

import math

from kernelwright.generate.draft import Extent, size_of
from kernelwright.generate.families import binary, unary
from kernelwright.generate.programs.program import DrawnProgram, number

_PARTIAL = frozenset("log sqrt rsqrt reciprocal log2 log1p".split())
"""Functions that are undefined for some numbers."""


def activation_line(p: DrawnProgram) -> bool:
    op = p.t.random.choice(unary.ACTIVATIONS)
    p.add(unary.apply(p.t, p.x, op), "activation")
    return True


def function_line(p: DrawnProgram) -> bool:
    """Adds a mathematical function of values in its domain."""
    t = p.t
    op = t.random.choice(unary.MATH)
    if op.name in _PARTIAL:
        small = t.pick("1e-6", "1e-5", "1.0", "0.5", "1", "0.1", "1e-3")
        x = p.x
        forms = (
            f"{x.atom}.abs() + {small}",
            f"torch.abs({x}) + {small}",
            f"{x} * {x} + {small}",
            f"{x.atom} ** 2 + {small}",
            f"torch.clamp({x}, min={small})",
            f"{x.atom}.pow(2) + {small}",
            f"{x.atom}.clamp(min={small})",
        )
        t.mark("positive_part")
        p.add(t.step(t.pick(*forms), x.shape))
    elif op.name in ("exp", "sinh", "cosh", "exp2", "expm1"):
        t.mark("bounded")
        x = p.x
        bounds = (
            f"torch.clamp({x}, max={t.pick('2.0', '1.0', '5', '0.5')})",
            f"-torch.abs({x})",
            f"-{x.atom}.abs()",
            f"torch.tanh({x})",
            f"-({x} * {x})",
            f"{x.atom}.clamp(-2, 2)",
        )
        p.add(t.step(t.pick(*bounds), x.shape))
    p.add(unary.apply(t, p.x, op), "value")
    return True


def scalar_line(p: DrawnProgram) -> bool:
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
        "mul": (
            f"{x} * {n}",
            f"{n} * {x}",
            f"torch.mul({x}, {n})",
            f"{x.atom}.mul({n})",
            f"-{n} * {x}" if n[0] != "-" else f"{x} * {n}",
        ),
        "div": (f"{x} / {n}", f"torch.div({x}, {n})", f"{x.atom}.div({n})"),
        "rsub": (f"{n} - {x}", f"{n} - {x}"),
    }[op]
    t.mark(f"{op}_scalar")
    p.add(t.step(t.pick(*forms), x.shape))
    return True


def pair_line(p: DrawnProgram) -> bool:
    """Adds a combination of the last value with an earlier one."""
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
        "div": (
            f"{a} / ({b.atom}.abs() + {small})",
            f"{a} / (torch.abs({b}) + {small})",
            f"torch.div({a}, {b} * {b} + {small})",
        ),
        "where": (
            f"torch.where({a} > {b}, {a}, {b} * {number(t)})",
            f"torch.where({b} > 0, {a}, {b})",
            f"torch.where({a} < {number(t)}, {b}, {a})",
        ),
        "lerp": (f"{a} + {number(t, 0.05, 0.95)} * ({b} - {a})",),
        "addcmul": (f"torch.addcmul({a}, {b}, {b}, value={number(t)})", f"{a} + {b} * {b}", f"{a} - {number(t)} * {b}"),
    }[op]
    t.mark(f"{op}_values", other="all" if b.shape == a.shape else "part")
    t.say("two values together")
    p.add(t.step(t.pick(*forms), p.x.shape))
    return True


def parameter_line(p: DrawnProgram) -> bool:
    """Adds a weight along some dimensions, in any shape that broadcasts."""
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
    elif len(axes) == 1 and t.chance(0.6):  # a vector in another shape
        (axis,) = axes
        flat = t.parameter(role, (shape[axis],), maker)
        tail = rank - 1 - axis
        views = [
            f"{flat}.view({', '.join(['1'] * axis + ['-1'] + ['1'] * tail)})",
            f"{flat}.reshape({', '.join(['1'] * axis + ['-1'] + ['1'] * tail)})",
            f"{flat}[{', '.join(['None'] * axis + [':'] + ['None'] * tail)}]",
        ]
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


def select_line(p: DrawnProgram) -> bool:
    """Adds a selection of values by a condition."""
    t, x = p.t, p.x
    n, m = number(t), number(t)
    forms = [
        f"torch.where({x} > {n}, {x}, {m} * {x})",
        f"torch.where({x} > 0, {x}, torch.zeros_like({x}))",
        f"torch.where({x} < -{n}, {x} + {m}, {x})" if n[0].isdigit() else f"torch.where({x} >= {n}, {x}, {x} * {x})",
        f"{x} * ({x} > {n}).float()",
        f"{x}.masked_fill({x} < 0, {m})",
        f"{x} * ({x} > 0)",
        f"torch.where({x} > 0, {x}, {m})",
        f"torch.sign({x}) * torch.clamp({x}.abs() - {n}, min=0)",
        f"torch.where({x}.abs() > {n}, {x}, 0.0)",
    ]
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


def gate_line(p: DrawnProgram) -> bool:
    """Adds a value times a function of it or of another value."""
    t, x = p.t, p.x
    y = p.other() if t.chance(0.4) else x
    if y is None or y.shape != x.shape:
        y = x
    inner = t.pick(
        f"torch.sigmoid({y})",
        f"torch.tanh({y})",
        f"{y}.sigmoid()",
        f"{t.prefix()}.softplus({y})",
        f"{t.prefix()}.relu({y})",
        f"torch.exp(-{y} * {y})",
        f"torch.sigmoid({number(t)} * {y})",
        f"{t.prefix()}.silu({y})",
        f"torch.erf({y})",
    )
    t.mark("gate_values")
    p.add(t.step(t.pick(f"{x} * {inner}", f"{inner} * {x}", f"{x} + {inner}", f"{x} - {inner}"), x.shape), "gate")
    return True


def counted_line(p: DrawnProgram) -> bool:
    """Adds a scaling by an extent, as in means and attention."""
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
