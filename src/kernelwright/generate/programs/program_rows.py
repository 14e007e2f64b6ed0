"""Adds lines along dimensions to a program: statistics, reductions, softmax, norms, scans.

Each function returns False where its line does not fit the current values.
"""

from __future__ import annotations

import math

from kernelwright.generate.draft import Dim
from kernelwright.generate.families import norms, reductions, scans, softmaxes
from kernelwright.generate.programs.program import DrawnProgram

_STATS = tuple("mean mean sum amax max amin min std var norm_l2 norm_l1 logsumexp mean_square".split())


def statistic_line(p: DrawnProgram) -> bool:
    """Adds a reduction with kept dimensions, and combines the values with it."""
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
    forms = (
        f"{x} - {s}",
        f"{x} - {s}",
        f"{x} / ({s.atom}.abs() + {small})",
        f"{x} * torch.sigmoid({s})",
        f"{x} + {s}",
        f"{x} * torch.rsqrt({s} * {s} + {small})",
        f"{x} / (1 + {s} * {s})",
        f"{s} - {x}",
        f"torch.sub({x}, {s})",
        f"{x} / torch.sqrt({s.atom}.pow(2) + {small})",
        f"torch.where({x} > {s}, {x}, {s})",
        f"{x} * {s}",
    )
    t.mark("with_statistic")
    p.add(t.step(t.pick(*forms), x.shape))
    return True


def _axes(p: DrawnProgram) -> tuple[int, ...]:
    """Draws one dimension of at least two elements, or all after the channels; never the first one."""
    possible = [i for i in range(1, p.x.rank) if p.x.shape[i] > 1]
    if not possible:
        return ()
    if p.image and p.x.rank > 2 and p.t.chance(0.35):
        return tuple(range(2, p.x.rank))
    axis = p.t.random.choice([*possible, *[a for a in (p.axis, p.x.rank - 1) if a in possible]])
    return (axis - p.x.rank,) if p.t.chance(0.4) else (axis,)


def reduce_line(p: DrawnProgram) -> bool:
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


def softmax_line(p: DrawnProgram) -> bool:
    axes = [i for i in range(p.x.rank) if p.x.shape[i] > 1 and i > 0]
    if not axes:
        return False
    axis = p.t.random.choice([*axes, axes[-1]])
    p.add(softmaxes.softmax(p.t, p.x, axis, p.t.pick("softmax", "softmax", "log_softmax", "softmin")), "softmax")
    return True


def norm_line(p: DrawnProgram) -> bool:
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


def spread_line(p: DrawnProgram) -> bool:
    """Adds the variance or deviation along a dimension, biased or unbiased."""
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


def scan_line(p: DrawnProgram) -> bool:
    axis = p.x.rank - 1
    if p.x.shape[axis] < 2 or p.x.dtype != "float32":
        return False
    kind = p.t.pick("cumsum", "cumsum", "cummax", "logcumsumexp")
    p.t.mark(kind, dim=f"{axis}of{p.x.rank}")
    p.add(p.t.step(scans.scan(p.t, p.x, kind, str(p.t.random.choice((axis, -1)))), p.x.shape))
    return True
