"""Adds lines that change shapes to a program: layers, products, pools, slices, halves.

Each function returns False where its line does not fit the current values.
"""

from __future__ import annotations

import math

from kernelwright.generate import sizes
from kernelwright.generate.draft import Dim, DraftTensor
from kernelwright.generate.families import convolution, pooling
from kernelwright.generate.families.fused import linear
from kernelwright.generate.families.matmul import product
from kernelwright.generate.programs.program import DrawnProgram, number


def layer_line(p: DrawnProgram) -> bool:
    """Adds a linear layer to rows, or a small convolution to images."""
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


def product_line(p: DrawnProgram) -> bool:
    """Adds a product with another input."""
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


def affine_line(p: DrawnProgram) -> bool:
    """Adds an affine map (weight and bias) of rows by features."""
    t, x = p.t, p.x
    if p.image or x.rank != 2 or not 8 <= x.shape[1] <= 4096 or x.elements > 2e7:
        return False
    inner = p.extent(1)
    out = t.dim("out_features", sizes.around(t.random, sizes.log_uniform(t.random, 16, 1024), 8))
    turned = t.chance(0.5)
    weight = t.parameter("weight", (out, inner) if turned else (inner, out), "torch.randn({}) * 0.05")
    bias = t.parameter("bias", (out,))
    w = f"{weight}{t.pick('.T', '.t()')}" if turned else str(weight)
    forms = [
        f"torch.addmm({bias}, {x}, {w})",
        f"{x} @ {w} + {bias}",
        f"torch.matmul({x}, {w}) + {bias}",
        f"torch.addmm({bias}, {x}, {w}, beta={number(t)}, alpha={number(t)})",
        f"torch.mm({x}, {w}) + {bias}",
    ]
    if turned:
        forms += [f"{t.prefix()}.linear({x}, {weight}, {bias})"] * 3 + [
            f"{t.prefix()}.linear({x}, {weight}, bias={bias})"
        ]
    t.mark("linear", form="affine")
    t.say("an affine map")
    p.add(t.step(t.pick(*forms), (x.shape[0], out.value), "linear", flops=2.0 * x.elements * out.value), "linear")
    return True


def pool_line(p: DrawnProgram) -> bool:
    if not p.image or p.x.rank < 3 or min(p.x.shape[2:]) < 6:
        return False
    p.add(pooling.pool(p.t, p.x, p.t.pick("max", "avg"), small=True), "pool")
    return True


def layout_line(p: DrawnProgram) -> bool:
    """Adds a change of shape or order."""
    t, x = p.t, p.x
    if x.rank < 2 or x.rank > 4:
        return False
    kind = t.pick("transpose", "flatten", "slice", "flip", "cat", "chunk")
    t.mark(kind, rank=x.rank)
    if kind == "transpose" and not p.image:
        a, b = t.random.sample(range(x.rank), 2)
        turned = list(x.shape)
        turned[a], turned[b] = turned[b], turned[a]
        if t.chance(0.5):
            a, b = a - x.rank, b - x.rank
        p.add(t.step(t.pick(f"{x}.transpose({a}, {b})", f"torch.transpose({x}, {a}, {b})"), turned), "shape")
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
    other = p.other()
    if kind == "cat" and other is not None and other.shape == x.shape:
        shape = (*x.shape[:axis], 2 * size, *x.shape[axis + 1 :])
        p.add(
            t.step(t.pick(f"torch.cat([{x}, {other}], dim={axis})", f"torch.cat(({other}, {x}), {axis})"), shape),
            "shape",
        )
        return True
    if kind == "chunk" and size % 2 == 0 and size >= 4:
        one, two = t.name(("a", "first", "left", "u", "half")), t.name(("b", "second", "right", "v", "gate"))
        t.lines.append(f"{one}, {two} = " + t.pick(f"{x}.chunk(2, dim={axis})", f"torch.chunk({x}, 2, dim={axis})"))
        shape = (*x.shape[:axis], size // 2, *x.shape[axis + 1 :])
        first, second = DraftTensor(one, shape, x.dtype), DraftTensor(two, shape, x.dtype)
        t.kept |= {one, two}
        p.add(
            t.step(
                t.pick(f"{first} * torch.sigmoid({second})", f"{first} * {second}", f"torch.tanh({first}) + {second}"),
                shape,
            )
        )
        return True
    t.marks.pop()
    return False


def halves_line(p: DrawnProgram) -> bool:
    """Adds a gated unit along a dimension, or a split into two equal parts."""
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
