"""Elementwise operators of a tensor with a number, a weight or another tensor; broadcasting; selections by a mask."""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.generate import sizes
from kernelwright.generate.draft import Dim, Draft, DraftTensor
from kernelwright.generate.families import unary
from kernelwright.generate.families.unary import memory_bound_input
from kernelwright.generate.registry import Family, rows

SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_SCALARS = (2, 0.5, 2.0, 3.0, 0.1, 1.5, 0.25, 1.0, 4.0, 0.7, 1.2, 10.0, 0.01)
SCALAR_OPS = ("add", "sub", "mul", "div", "rsub", "rdiv", "pow", "clamp", "clamp_min", "clamp_max", "max", "min")
PHRASES = {
    "add": "addition of a constant", "sub": "subtraction of a constant", "mul": "scaling",
    "div": "division by a constant",
    "rsub": "subtraction from a constant", "rdiv": "a constant over the value", "pow": "a power", "clamp": "clamping",
    "clamp_min": "clamping from below", "clamp_max": "clamping from above", "max": "a maximum with a constant",
    "min": "a minimum with a constant",
}  # fmt: skip


def scalar(t: Draft, x: DraftTensor, op: str) -> DraftTensor:
    """Drafts x with a number: a literal, a constructor argument, or a module constant."""
    t.say(PHRASES[op])
    t.mark(f"{op}_scalar")
    text = _clamped(t, x, op) if op.startswith("clamp") else _scalar_text(t, x, op)
    return t.step(text, x.shape, "value", dtype=x.dtype)


def _constant(t: Draft, names: tuple[str, ...], values: tuple[float, ...] = _SCALARS) -> str:
    value = t.random.choice(values)
    if t.chance(0.2):
        value = round(t.random.uniform(0.05, 3.0), t.random.choice((1, 2)))
    return t.option(t.random.choice(names), value, default=1.0)


def _scalar_text(t: Draft, x: DraftTensor, op: str) -> str:
    names = {
        "add": ("add_value", "shift", "offset", "bias_value", "constant"),
        "sub": ("subtract_value", "sub_value", "offset", "shift"),
        "rsub": ("constant", "top", "value"),
        "mul": ("scale", "scaling_factor", "scale_factor", "multiplier", "factor", "alpha"),
        "div": ("divisor", "div_value", "scale", "denominator", "temperature"),
        "rdiv": ("constant", "numerator", "value"),
        "pow": ("exponent", "power", "p"),
        "max": ("floor_value", "lower", "min_value", "threshold"),
        "min": ("ceiling", "upper", "max_value", "cap"),
    }[op]
    if op == "pow":
        s = t.option(t.random.choice(names), t.random.choice((2, 3, 2.0, 3.0, 4)), default=2)
        return t.pick(f"{x.atom} ** {s}", f"torch.pow({x}, {s})", f"{x.atom}.pow({s})")
    s = _constant(t, names)
    if op in ("max", "min"):
        return (
            f"torch.{op}imum({x}, torch.tensor({s}, device={x.atom}.device))"
            if t.chance(0.3)
            else f"torch.clamp({x}, {op.replace('max', 'low').replace('min', 'max').replace('low', 'min')}={s})"
        )
    if op == "rsub":
        return f"{s} - {x.atom}"
    if op == "rdiv":
        return f"{s} / ({x.atom}.abs() + {t.pick('1.0', '0.5', '1')})"
    sign = SIGNS[op]
    forms = [f"{x.atom} {sign} {s}"] * 3 + [f"torch.{op}({x}, {s})", f"{x.atom}.{op}({s})"]
    if op in ("add", "mul"):
        forms.append(f"{s} {sign} {x.atom}")
    return t.pick(*forms)


def _clamped(t: Draft, x: DraftTensor, op: str) -> str:
    low = t.random.choice((-1.0, 0.0, -0.5, -2.0, 0, -1, 0.1))
    high = t.random.choice((1.0, 2.0, 0.5, 6.0, 1, 3, 0.8))
    a = t.option(t.pick("min_value", "low", "clamp_min", "lower_bound", "min_val"), low, default=0.0)
    b = t.option(t.pick("max_value", "high", "clamp_max", "upper_bound", "max_val"), high, default=1.0)
    if op == "clamp":
        return t.pick(f"torch.clamp({x}, {a}, {b})", f"torch.clamp({x}, min={a}, max={b})", f"{x.atom}.clamp({a}, {b})",
                      f"torch.clip({x}, {a}, {b})", f"{x.atom}.clamp(min={a}, max={b})")  # fmt: skip
    name, value = ("min", a) if op == "clamp_min" else ("max", b)
    return t.pick(f"torch.clamp({x}, {name}={value})", f"{x.atom}.clamp({name}={value})", f"torch.{op}({x}, {value})")


def tensors(t: Draft, x: DraftTensor, y: DraftTensor, op: str) -> DraftTensor:
    """Drafts two tensors, y broadcast to x."""
    text = {
        "maximum": t.pick(f"torch.maximum({x}, {y})", f"torch.max({x}, {y})"),
        "minimum": t.pick(f"torch.minimum({x}, {y})", f"torch.min({x}, {y})"),
    }.get(op, "")
    if not text:
        text = t.pick(f"{x.atom} {SIGNS[op]} {y.atom}", f"{x.atom} {SIGNS[op]} {y.atom}", f"torch.{op}({x}, {y})")
    t.mark(op)
    return t.step(text, x.shape, "value", dtype=x.dtype)


def channel_parameter(t: Draft, x: DraftTensor, channels: Dim, op: str = "") -> DraftTensor:
    """Drafts x with a weight a channel (bias or scale), shaped to broadcast over x's other dimensions."""
    op = op or t.pick("add", "add", "mul", "sub")
    role = "scale" if op == "mul" else "bias"
    t.say("a learned scale a channel" if op == "mul" else "a learned bias")
    if x.rank == 2 or x.shape[-1] == channels.value and x.rank != 4:
        weight, shown = t.parameter(role, (channels,)), ""
    elif t.chance(0.75):
        ones = (1,) * (x.rank - 2)
        weight, shown = t.parameter(role, (channels, *ones) if t.chance(0.7) else (1, channels, *ones)), ""
    else:
        weight = t.parameter(role, (channels,))
        shown = f".view(1, -1{', 1' * (x.rank - 2)})" if t.chance(0.7) else f"[None, :{', None' * (x.rank - 2)}]"
    t.mark(f"{op}_param")
    sign = {"add": "+", "mul": "*", "sub": "-"}[op]
    forms = [f"{x.atom} {sign} {weight}{shown}"] * 4 + [f"torch.{op}({x}, {weight}{shown})"]
    return t.step(t.pick(*forms), x.shape, "value")


# Families


def _chain(t: Draft) -> None:
    """Drafts two to six elementwise operators in a row."""
    x = memory_bound_input(t, t.random.choice((1, 2, 2, 3, 4)))
    count = t.random.choice((2, 2, 3, 3, 4, 5, 6))
    for number in range(count):
        if t.chance(0.45):
            x = scalar(t, x, t.random.choice(SCALAR_OPS[:-2] if number else ("add", "mul", "sub", "clamp", "mul")))
        else:
            x = unary.apply(t, x, t.random.choice(CHAINABLE))
    t.finish(x)


CHAINABLE = [
    op
    for op in (*unary.ACTIVATIONS, *unary.MATH)
    if op.domain == "own" and op.name not in ("exp", "expm1", "cube", "cosh", "sinh", "exp2", "threshold")
]
"""Operators that are defined everywhere and stay in range when repeated."""


def _binary(t: Draft) -> None:
    """Drafts two tensors of one shape."""
    rank = t.random.choice((1, 2, 2, 3, 4))
    x = memory_bound_input(t, rank, total=sizes.log_uniform(t.random, 5e5, 8e7))
    op = t.pick("add", "mul", "sub", "div", "maximum", "minimum")
    y = t.input("other", t.inputs[0].shape, "positive" if op == "div" else "own")
    t.say(
        {
            "add": "a sum of two tensors",
            "mul": "a product of two tensors",
            "sub": "a difference",
            "div": "a quotient",
        }.get(op, f"an elementwise {op}")
    )
    t.finish(tensors(t, x, y, op))


def _broadcast(t: Draft) -> None:
    """Drafts a tensor with a row, a column or a channel vector as a second input."""
    rank = t.random.choice((2, 2, 3, 4))
    x = memory_bound_input(t, rank, total=sizes.log_uniform(t.random, 5e5, 8e7))
    shape = t.inputs[0].shape
    op = t.pick("add", "mul", "sub", "div", "add", "mul")
    axis = t.random.choice((rank - 1, rank - 1, 1, 0))
    y = t.input("scale_in" if op in ("mul", "div") else "bias_in", (shape[axis],), "positive" if op == "div" else "own")
    t.say(f"broadcasting over dimension {axis}")
    behind = rank - 1 - axis
    text = str(y)
    if behind:
        text = t.pick(f"{y}.view({', '.join(['1'] * axis + ['-1'] + ['1'] * behind)})", f"{y}.view(-1{', 1' * behind})",
                      f"{y}[{'None, ' * axis}:{', None' * behind}]", f"{y}.reshape(-1{', 1' * behind})")  # fmt: skip
    t.mark(f"{op}_broadcast", axis=f"{axis}of{rank}")
    t.finish(t.step(f"{x} {SIGNS[op]} {text}", x.shape))


def _with_activation(t: Draft) -> None:
    """Drafts two inputs joined, with an activation before or after."""
    x = memory_bound_input(t, t.random.choice((2, 2, 3, 4)), total=sizes.log_uniform(t.random, 5e5, 8e7))
    y = t.input("other", t.inputs[0].shape)
    t.kept |= {x.text, y.text}
    act = t.random.choice(CHAINABLE)
    op = t.pick("add", "mul", "sub", "maximum")
    if t.chance(0.5):
        t.finish(unary.apply(t, tensors(t, x, y, op), act))
    else:
        t.finish(tensors(t, unary.apply(t, x, act), y, op))


def _fused_multiply(t: Draft) -> None:
    """Drafts a * b + c, addcmul, lerp: three inputs."""
    x = memory_bound_input(t, t.random.choice((1, 2, 3)), total=sizes.log_uniform(t.random, 5e5, 5e7))
    y, z = (t.input(r, t.inputs[0].shape) for r in ("other", "third"))
    t.kept |= {x.text, y.text, z.text}
    kind = t.pick("fma", "fma", "addcmul", "lerp")
    t.mark(kind)
    if kind == "fma":
        t.say("a product plus a third tensor")
        text = t.pick(f"{x} * {y} + {z}", f"{z} + {x} * {y}", f"torch.add(torch.mul({x}, {y}), {z})")
    elif kind == "addcmul":
        t.say("x plus a scaled product")
        value = t.option("value", t.random.choice((0.5, 0.1, 2.0)), default=1.0)
        text = t.pick(f"torch.addcmul({x}, {y}, {z}, value={value})", f"{x} + {value} * {y} * {z}")
    else:
        t.say("linear interpolation of two tensors")
        value = t.option("weight", t.random.choice((0.3, 0.5, 0.9)), default=0.5)
        text = t.pick(f"torch.lerp({x}, {y}, {value}) + {z}", f"{x} + {value} * ({y} - {x}) + {z}")
    t.finish(t.step(text, x.shape))


def _where(t: Draft) -> None:
    """Drafts torch.where on a comparison or a mask."""
    x = memory_bound_input(t, t.random.choice((1, 2, 3, 4)), total=sizes.log_uniform(t.random, 5e5, 6e7))
    t.kept.add(x.text)
    y: DraftTensor | str = (
        t.input("other", t.inputs[0].shape) if t.chance(0.5) else t.option("fill", t.random.choice((0.0, -1.0, 1.0)))
    )
    if t.chance(0.4):
        condition = str(t.input("mask", t.inputs[0].shape, "bool"))
        t.mark("where", mask=1, scalar=int(isinstance(y, str)))
    else:
        bound = t.option("threshold", t.random.choice((0.0, 0.5, 0, -0.5, 0.1)), default=0.0)
        sign = t.pick(">", ">=", "<", "<=")
        condition = f"{x} {sign} {bound}"
        t.mark("where", compare=sign, scalar=int(isinstance(y, str)))
    other = f"{x} * {t.option('slope', t.random.choice((0.1, 0.5, 2.0)), default=0.1)}" if t.chance(0.3) else str(y)
    if isinstance(y, DraftTensor) and other != str(y):
        other = f"{y} + {other}"
    t.say(t.pick("a selection by a condition", "torch.where", "an elementwise choice"))
    t.finish(t.step(f"torch.where({condition}, {x}, {other})", x.shape))


def _masked_fill(t: Draft) -> None:
    """Drafts filling where a mask is set."""
    x = memory_bound_input(t, t.random.choice((2, 2, 3, 4)), total=sizes.log_uniform(t.random, 5e5, 6e7))
    mask = t.input("mask", t.inputs[0].shape, "bool")
    value = t.option("value", t.random.choice((0.0, -1.0, -1e9, 1.0, -1e4)), default=0.0)
    t.mark("masked_fill")
    t.say(t.pick("filling under a mask", "masked fill"))
    shown = t.pick(str(mask), f"~{mask}", f"{mask} == 0" if t.chance(0.3) else str(mask))
    t.finish(t.step(t.pick(f"{x}.masked_fill({shown}, {value})", f"torch.masked_fill({x}, {shown}, {value})"), x.shape))


def _triangle(part: str) -> Callable[[Draft], None]:
    def make(t: Draft) -> None:
        x = memory_bound_input(t, t.random.choice((2, 2, 3)), total=sizes.log_uniform(t.random, 5e5, 8e7))
        offset = t.random.choice((0, 0, 0, 1, -1, 2)) if min(x.shape[-2:]) > 4 else 0
        t.mark(part, offset=offset or None)
        t.say(f"the {'lower' if part == 'tril' else 'upper'} triangle")
        shown = "" if offset == 0 and t.chance(0.8) else f", diagonal={t.option('diagonal', offset, default=0)}"
        t.finish(t.step(t.pick(f"torch.{part}({x}{shown})", f"{x.atom}.{part}({shown[2:]})"), x.shape))

    return make


def _compare(t: Draft) -> None:
    """Drafts a comparison as numbers."""
    x = memory_bound_input(t, t.random.choice((1, 2, 3)))
    sign = t.pick(">", ">=", "<", "<=")
    if t.chance(0.5):
        y = str(t.input("other", t.inputs[0].shape))
    else:
        y = t.option("threshold", t.random.choice((0.0, 0.5, 0.25)), default=0.0)
    t.mark("compare", sign=sign)
    t.say("a comparison as zeros and ones")
    t.finish(t.step(t.pick(f"({x} {sign} {y}).float()", f"({x} {sign} {y}).to({x}.dtype)"), x.shape))


def families() -> list[Family]:
    """Returns elementwise and masking families."""
    makers: list[tuple[str, Callable[[Draft], None]]] = [
        ("elementwise_chain", _chain), ("elementwise_chain2", _chain), ("binary", _binary), ("broadcast", _broadcast),
        ("binary_activation", _with_activation), ("fused_multiply", _fused_multiply), ("compare", _compare),
    ]  # fmt: skip
    masks = [("where", _where), ("masked_fill", _masked_fill), ("tril", _triangle("tril")), ("triu", _triangle("triu"))]
    return rows("elementwise", 8.0, [m for m in makers if m[0] != "elementwise_chain2"]) + rows("masking", 3.0, masks)
