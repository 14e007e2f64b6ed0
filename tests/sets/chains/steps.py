"""Continues chains: elementwise operators, reductions, norms and pooling on the running value."""

from __future__ import annotations

from collections.abc import Callable

from sets.chains.draft import Draft

Step = Callable[[Draft], bool]
"""Adds a step and returns True, or returns False where it does not fit the running value."""

ACTIVATIONS = {
    "relu": ("torch.relu({})", "F.relu({})", "nn.ReLU()"),
    "gelu": ("F.gelu({})", "F.gelu({}, approximate='tanh')", "nn.GELU()"),
    "silu": ("F.silu({})", "{0} * torch.sigmoid({0})", "nn.SiLU()"),
    "mish": ("F.mish({})", "{0} * torch.tanh(F.softplus({0}))", "nn.Mish()"),
    "tanh": ("torch.tanh({})", "{}.tanh()", "nn.Tanh()"),
    "sigmoid": ("torch.sigmoid({})", "{}.sigmoid()", "nn.Sigmoid()"),
    "leaky_relu": ("F.leaky_relu({}, 0.1)", "F.leaky_relu({}, negative_slope=0.05)", "nn.LeakyReLU(0.2)"),
    "elu": ("F.elu({})", "F.elu({}, alpha=0.7)", "nn.ELU()"),
    "selu": ("F.selu({})", "torch.selu({})", "nn.SELU()"),
    "softplus": ("F.softplus({})", "F.softplus({}, beta=2.0)", "nn.Softplus()"),
    "hardswish": ("F.hardswish({})", "{0} * F.hardsigmoid({0})", "nn.Hardswish()"),
    "hardtanh": ("F.hardtanh({}, -1.5, 1.5)", "torch.clamp({}, -2.0, 2.0)", "nn.Hardtanh()"),
    "softsign": ("F.softsign({})", "{0} / (1 + {0}.abs())", "nn.Softsign()"),
}

BOTH_ENDS = frozenset({"low", "high"})
BOUNDS = {name: BOTH_ENDS for name in ("tanh", "sigmoid", "hardtanh", "softsign")} | {"leaky_relu": frozenset()}
"""Ends of activations' ranges; the others have a least value alone."""


def activation(d: Draft) -> bool:
    """An activation as a function, an expression or a module."""
    name = d.random.choice(list(ACTIVATIONS) if d.balanced else ["leaky_relu"])
    function, expression, module = ACTIVATIONS[name]
    spelling = d.word(function, expression, module)
    if spelling is module:
        spelling = d.module(d.word("act", name), module) + "({})"
    d.set(spelling)
    d.centred = frozenset()
    d.bounds |= BOUNDS.get(name, frozenset({"low"}))
    return True


def scalar(d: Draft) -> bool:
    """Arithmetic with one or two numbers."""
    value = d.constant(d.word("scale", "factor", "alpha"), d.random.choice((0.25, 0.5, 1.5, 2.0, 3.0)))
    kept = d.module(value, value)
    spelling = d.word("{} * @", "{} / @", "@ * {} + 0.5", "{0} + @", "torch.mul({}, @)")
    d.set(spelling.replace("@", kept))
    d.balanced &= "+" not in spelling
    return True


def bounded(d: Draft) -> bool:
    """A clamp, a minimum, or a choice by sign."""
    if not d.balanced:
        return False
    d.set(
        d.word(
            "torch.clamp({}, min=-1.0, max=1.0)",
            "{}.clamp(min=0.0)",
            "torch.clamp_max({}, 0.75)",
            "torch.where({0} > 0, {0}, 0.1 * {0})",
            "torch.minimum({0}, torch.square({0}))",
        )
    )
    d.centred = frozenset()
    d.bounds = BOTH_ENDS
    return True


def learned(d: Draft) -> bool:
    """A learned bias or gain for each channel."""
    if d.shape[d.axis] != d.extent(d.channels):
        return False
    tail = ", 1" * (len(d.shape) - 1 - d.axis)
    name = d.word("bias", "gain", "offset", "scale_c")
    kept = d.module(name, f"nn.Parameter(torch.randn({d.channels}{tail}){d.word('', ' * 0.1', ' * 0.02')})")
    d.set(d.word("{} + ", "{} * ", "{} - ") + kept)
    return True


def gate(d: Draft) -> bool:
    """A product of the value and a function of itself, or a residual of an activation."""
    if not d.balanced:
        return False
    d.set(
        d.word(
            "{0} * torch.sigmoid(1.702 * {0})",
            "{0} + torch.tanh({0})",
            "{0} * F.relu6({0} + 3) / 6",
            "{0} - 0.5 * torch.relu({0})",
            "torch.sqrt(torch.abs({}) + 1e-3)",
            "torch.exp(-torch.square({}))",
        )
    )
    d.centred = frozenset()
    d.bounds = BOTH_ENDS
    return True


def residual(d: Draft) -> bool:
    """An earlier value added to the value after an activation."""
    d.lines.append(f"skip = {d.variable}")
    activation(d)
    d.set(d.word("{} + skip", "torch.add({}, skip, alpha=0.5)", "{} * skip"))
    return True


def batch_norm(d: Draft) -> bool:
    """A batch norm in training mode, as a fresh model has it."""
    if d.channel_axis != 1 and len(d.shape) != 2 or min(d.shape) < 2:
        return False
    rank = max(1, len(d.extents))
    d.set(f"{d.module('bn', f'nn.BatchNorm{rank}d({d.channels})')}({{}})")
    d.centred = frozenset({0, *d.extents})
    d.balanced = True
    d.bounds = frozenset()
    return True


def instance_norm(d: Draft) -> bool:
    """An instance norm of maps."""
    if not d.extents or min(d.shape[2:]) < 4:
        return False
    affine = d.word("", ", affine=True")
    d.set(f"{d.module('norm', f'nn.InstanceNorm{len(d.extents)}d({d.channels}{affine})')}({{}})")
    d.centred = frozenset(d.extents)
    d.balanced = True
    d.bounds = frozenset()
    return True


def group_norm(d: Draft) -> bool:
    """A group norm of maps, or of rows with two dimensions."""
    if d.channel_axis == -1 and len(d.shape) != 2:
        return False
    fitting = [g for g in (2, 4, 8, 16) if d.shape[d.axis] % g == 0 and d.shape[d.axis] // g >= 4]
    if not fitting or d.shape[d.axis] == 1:
        return False
    groups = d.constant("num_groups", d.random.choice(fitting))
    d.set(f"{d.module('gn', f'nn.GroupNorm({groups}, {d.channels})')}({{}})")
    d.centred = frozenset({d.axis, *d.extents})
    d.balanced = True
    d.bounds = frozenset()
    return True


def layer_norm(d: Draft) -> bool:
    """A layer norm over features."""
    if d.channel_axis != -1 or d.shape[-1] < 4:
        return False
    d.set(f"{d.module('ln', f'nn.LayerNorm({d.channels})')}({{}})")
    d.centred = frozenset({d.axis})
    d.balanced = True
    d.bounds = frozenset()
    return True


def rms_norm(d: Draft) -> bool:
    """A division by the root mean square of the channels, written out."""
    if d.shape[d.axis] < 4:
        return False
    axis = d.channel_axis
    d.set(
        d.word(
            f"{{0}} * torch.rsqrt({{0}}.pow(2).mean(dim={axis}, keepdim=True) + 1e-6)",
            f"{{0}} / torch.sqrt(torch.mean({{0}} * {{0}}, dim={axis}, keepdim=True) + 1e-5)",
            f"F.normalize({{}}, dim={axis})",
        )
    )
    return True


def softmax(d: Draft) -> bool:
    """A softmax over the channels."""
    if d.shape[d.axis] < 4:
        return False
    axis = d.channel_axis
    d.set(
        d.word(f"torch.softmax({{}}, dim={axis})", f"F.softmax({{}}, dim={axis})", f"F.log_softmax({{}}, dim={axis})")
    )
    d.centred = frozenset({d.axis})
    d.balanced = False
    return True


def centre(d: Draft) -> bool:
    """The mean of the channels, subtracted."""
    if d.axis in d.centred or d.shape[d.axis] < 4:
        return False
    axis = d.channel_axis
    d.set(
        d.word(f"{{0}} - {{0}}.mean(dim={axis}, keepdim=True)", f"{{0}} - torch.amax({{0}}, dim={axis}, keepdim=True)")
    )
    d.centred = frozenset({d.axis})
    d.balanced = False
    return True


def reduction(d: Draft) -> bool:
    """A reduction of the channels, or of a map's extents, whose axes stay."""
    axes = d.extents if d.extents and d.chance(0.5) else (d.axis,)
    if d.centred & set(axes) or min(d.shape[a] for a in axes) < 4:
        return False
    dim = str(axes[0]) if len(axes) == 1 else str(list(axes))
    names = ["torch.mean({}, dim=@, keepdim=True)", "{}.sum(dim=@, keepdim=True)"]
    names += ["torch.logsumexp({}, dim=@, keepdim=True)"]
    for end, name in (("low", "min"), ("high", "max")):
        if end not in d.bounds:
            names.append(f"torch.a{name}({{}}, dim=@, keepdim=True)")
            names += [f"torch.{name}({{}}, dim=@, keepdim=True){d.word('[0]', '.values')}"] * (len(axes) == 1)
    d.set(d.word(*names).replace("@", dim), [1 if a in axes else n for a, n in enumerate(d.shape)])
    d.balanced = False
    return True


def pooling(d: Draft) -> bool:
    """A pooling of windows, as a module."""
    if not d.extents or min(d.shape[2:]) < 8 or d.centred & set(d.extents):
        return False
    rank, window = len(d.extents), d.size(2, 2, 3)
    stride = window if d.chance(0.7) else 2
    words = str(window) if stride == window else f"{window}, stride={stride}"
    kind = "Avg" if "high" in d.bounds else d.word("Max", "Avg")
    d.set(d.module("pool", f"nn.{kind}Pool{rank}d({words})") + "({})")
    d.shape = (*d.shape[:2], *((n - window) // stride + 1 for n in d.shape[2:]))
    d.balanced &= kind == "Avg"
    return True


def global_pooling(d: Draft) -> bool:
    """The mean or the maximum of whole maps."""
    if not d.extents or min(d.shape[2:]) < 4 or d.centred & set(d.extents):
        return False
    dims = str(list(d.extents))
    names = ["", f"torch.mean({{}}, dim={dims}, keepdim=True)"]
    names += [] if "high" in d.bounds else [f"torch.amax({{}}, dim={dims}, keepdim=True)"]
    spelling = d.word(*names)
    d.set(
        spelling or d.module("pool", f"nn.AdaptiveAvgPool{len(d.extents)}d(1)") + "({})",
        [*d.shape[:2], *(1 for _ in d.extents)],
    )
    d.balanced = False
    return True


STEPS: dict[str, tuple[float, Step]] = {
    "elementwise": (6, activation),
    "elementwise scalar": (3, scalar),
    "elementwise bounded": (1.5, bounded),
    "elementwise learned": (3, learned),
    "elementwise gate": (1.5, gate),
    "elementwise residual": (1, residual),
    "norm batch": (1.0, batch_norm),
    "norm instance": (0.7, instance_norm),
    "norm group": (1.3, group_norm),
    "norm layer": (1.3, layer_norm),
    "norm rms": (0.6, rms_norm),
    "norm softmax": (0.9, softmax),
    "norm centre": (0.4, centre),
    "reduction": (2, reduction),
    "pooling": (2.5, pooling),
    "pooling global": (1, global_pooling),
}
"""The weight and the writer of each step; its name's first word is its kind."""
