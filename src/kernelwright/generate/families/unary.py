"""Drafts elementwise operators of one tensor, mostly activations, in all spellings of PyTorch code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelwright.generate import sizes
from kernelwright.generate.draft import Draft, DraftTensor, Option
from kernelwright.generate.registry import Family


@dataclass(frozen=True)
class Unary:
    """One operator. In `functions` and `formulas`, `F.` stands for torch.nn.functional and `{x}` for the operand."""

    name: str
    phrase: str
    module: str = ""
    functions: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    formulas: tuple[str, ...] = ()
    options: tuple[tuple[str, Option, tuple[Option, ...]], ...] = ()
    """(keyword, default, other values)."""
    keywords: bool = True
    """True where functions take the options by keyword."""
    domain: str = "own"
    """The distribution of its input."""
    weight: float = 1.0
    held_out: bool = False


REQUIRED = "required"
"""Marks an option without a default."""
_SLOPES = (0.2, 0.1, 0.05, 0.3, 0.02, 0.15, 0.25)
_ALPHAS = (0.5, 1.5, 2.0, 0.7, 1.2, 0.1)
ACTIVATIONS: tuple[Unary, ...] = (
    Unary("relu", "ReLU", "ReLU", ("torch.relu", "F.relu"), ("relu",),
          ("torch.clamp({x}, min=0)", "torch.clamp_min({x}, 0)", "{x}.clamp(min=0.0)"), weight=2),
    Unary("relu6", "ReLU6", "ReLU6", ("F.relu6",), (),
          ("torch.clamp({x}, 0, 6)", "torch.clamp({x}, min=0.0, max=6.0)")),
    Unary("leaky_relu", "Leaky ReLU", "LeakyReLU", ("F.leaky_relu",), (), ("torch.where({x} > 0, {x}, {x} * 0.01)",),
          (("negative_slope", 0.01, _SLOPES),), weight=1.5),
    Unary("sigmoid", "the sigmoid", "Sigmoid", ("torch.sigmoid", "F.sigmoid"), ("sigmoid",),
          ("1 / (1 + torch.exp(-{x}))", "1.0 / (1.0 + torch.exp(-{x}))"), weight=1.5),
    Unary("tanh", "the hyperbolic tangent", "Tanh", ("torch.tanh", "F.tanh"), ("tanh",), (), weight=1.5),
    Unary("gelu", "GELU", "GELU", ("F.gelu",), (), ("0.5 * {x} * (1.0 + torch.erf({x} / math.sqrt(2.0)))",),
          (("approximate", "none", ("tanh",)),), weight=1.5),
    Unary("gelu_tanh", "the tanh form of GELU", "", (), (),
          ("0.5 * {x} * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * ({x} + 0.044715 * torch.pow({x}, 3.0))))",
           "0.5 * {x} * (1 + torch.tanh(math.sqrt(2 / math.pi) * ({x} + 0.044715 * {x} ** 3)))",
           "0.5 * {x} * (1 + torch.tanh(0.7978845608 * ({x} + 0.044715 * {x} * {x} * {x})))")),
    Unary("silu", "SiLU", "SiLU", ("F.silu",), (), ("{x} * torch.sigmoid({x})", "{x} * {x}.sigmoid()",
          "torch.sigmoid({x}) * {x}"), weight=1.5),
    Unary("mish", "Mish", "Mish", ("F.mish",), (), ("{x} * torch.tanh(F.softplus({x}))",), held_out=True),
    Unary("selu", "SELU", "SELU", ("torch.selu", "F.selu"), ()),
    Unary("elu", "ELU", "ELU", ("F.elu",), (), (), (("alpha", 1.0, _ALPHAS),)),
    Unary("celu", "CELU", "CELU", ("F.celu",), (), (), (("alpha", 1.0, _ALPHAS),), held_out=True),
    Unary("hardtanh", "hard tanh", "Hardtanh", ("F.hardtanh",), (),
          ("torch.clamp({x}, min=-1.0, max=1.0)", "torch.clamp({x}, -1, 1)"),
          (("min_val", -1.0, (-2.0, -0.5, 0.0)), ("max_val", 1.0, (2.0, 0.5, 3.0)))),
    Unary("hardsigmoid", "hard sigmoid", "Hardsigmoid", ("F.hardsigmoid",), (),
          ("torch.clamp({x} / 6 + 0.5, 0, 1)", "torch.clamp(({x} + 3) / 6, min=0, max=1)")),
    Unary("hardswish", "hard swish", "Hardswish", ("F.hardswish",), (),
          ("{x} * torch.clamp({x} + 3, 0, 6) / 6", "{x} * F.relu6({x} + 3) / 6")),
    Unary("softplus", "softplus", "Softplus", ("F.softplus",), (),
          ("torch.log(1 + torch.exp({x}))", "torch.log1p(torch.exp({x}))"),
          (("beta", 1.0, (2.0, 0.5, 1.5)), ("threshold", 20.0, (10.0, 15.0)))),
    Unary("softsign", "softsign", "Softsign", ("F.softsign",), (),
          ("{x} / (1 + torch.abs({x}))", "{x} / (1.0 + {x}.abs())")),
    Unary("logsigmoid", "the log-sigmoid", "LogSigmoid", ("F.logsigmoid",), (), ("torch.log(torch.sigmoid({x}))",)),
    Unary("tanhshrink", "tanhshrink", "Tanhshrink", ("F.tanhshrink",), (), ("{x} - torch.tanh({x})",), held_out=True),
    Unary("softshrink", "softshrink", "Softshrink", ("F.softshrink",), (), (), (("lambd", 0.5, (0.3, 0.1, 1.0)),)),
    Unary("hardshrink", "hardshrink", "Hardshrink", ("F.hardshrink",), (), (), (("lambd", 0.5, (0.3, 0.1, 1.0)),)),
    Unary("threshold", "a threshold", "Threshold", ("F.threshold",), (), (),
          (("threshold", REQUIRED, (0.1, 0.0, 0.5, -0.2)), ("value", REQUIRED, (0.0, 1.0, -1.0, 20.0))),
          keywords=False),
)  # fmt: skip
"""Activations with a module or a name of their own."""
MATH: tuple[Unary, ...] = (
    Unary("exp", "the exponential", "", ("torch.exp",), ("exp",)),
    Unary("log", "the logarithm", "", ("torch.log",), ("log",), domain="positive"),
    Unary("sqrt", "the square root", "", ("torch.sqrt",), ("sqrt",), ("{x} ** 0.5",), domain="positive"),
    Unary("rsqrt", "the reciprocal square root", "", ("torch.rsqrt",), ("rsqrt",),
          ("1.0 / torch.sqrt({x})",), domain="positive"),
    Unary("abs", "the absolute value", "", ("torch.abs",), ("abs",)),
    Unary("square", "the square", "", ("torch.square",), ("square",), ("{x} * {x}", "{x} ** 2", "torch.pow({x}, 2)")),
    Unary("cube", "the cube", "", (), (), ("{x} ** 3", "torch.pow({x}, 3)", "{x} * {x} * {x}")),
    Unary("neg", "negation", "", ("torch.neg",), ("neg",), ("-{x}",)),
    Unary("reciprocal", "the reciprocal", "", ("torch.reciprocal",), ("reciprocal",), ("1.0 / {x}", "1 / {x}"),
          domain="positive"),
    Unary("sin", "the sine", "", ("torch.sin",), ("sin",)),
    Unary("cos", "the cosine", "", ("torch.cos",), ("cos",)),
    Unary("erf", "the error function", "", ("torch.erf",), ("erf",)),
    Unary("log1p", "log(1 + x)", "", ("torch.log1p",), ("log1p",), ("torch.log(1 + {x})",), domain="rand"),
    Unary("expm1", "exp(x) - 1", "", ("torch.expm1",), ("expm1",), ("torch.exp({x}) - 1",)),
    Unary("exp2", "two to the power x", "", ("torch.exp2",), ("exp2",)),
    Unary("log2", "the base-2 logarithm", "", ("torch.log2",), ("log2",), domain="positive"),
    Unary("atan", "the arc tangent", "", ("torch.atan",), ("atan",)),
    Unary("sinh", "the hyperbolic sine", "", ("torch.sinh",), ("sinh",)),
    Unary("cosh", "the hyperbolic cosine", "", ("torch.cosh",), ("cosh",)),
    Unary("floor", "rounding down", "", ("torch.floor",), ("floor",), domain="wide"),
    Unary("ceil", "rounding up", "", ("torch.ceil",), ("ceil",), domain="wide"),
)  # fmt: skip
"""Pointwise mathematics."""
BY_NAME = {op.name: op for op in (*ACTIVATIONS, *MATH)}


def apply(t: Draft, x: DraftTensor, op: Unary, kind: str = "activation") -> DraftTensor:
    """Drafts the operator on a tensor, in the style's spelling where possible, with some options set."""
    values = {name: _value(t, default, others) for name, default, others in op.options}
    changed = {name: v for (name, default, _), v in zip(op.options, values.values(), strict=True) if v != default}
    forms: list[tuple[str, Callable[[], str]]] = []
    if op.module:
        forms.append(("module", lambda: f"{_module(t, op, values)}({x})"))
    if op.functions:
        forms.append(("functional", lambda: _function(t, op, x, values)))
    if op.methods:
        forms.append(("method", lambda: f"{x.atom}.{t.random.choice(op.methods)}()"))
    if op.formulas and not changed:
        forms.append(("formula", lambda: _formula(t, op, x)))
    wished = [make for name, make in forms if name == t.style.spelling]
    make = wished[0] if wished and t.chance(0.75) else t.random.choice(forms)[1]
    text = make()
    t.mark(op.name, **changed)
    t.say(op.phrase)
    return t.step(text, x.shape, kind, dtype=x.dtype, flops=4.0 * x.elements)


def _value(t: Draft, default: Option, others: tuple[Option, ...]) -> Option:
    if default == REQUIRED or t.chance(0.5):
        chosen = t.random.choice(others)
        if isinstance(chosen, float) and t.chance(0.3):  # close to a usual value, so that a model reads the number
            return round(chosen * t.random.uniform(0.5, 1.5), t.random.choice((1, 2, 3))) or chosen
        return chosen
    return default


def _arguments(t: Draft, op: Unary, values: dict[str, Option], where: str) -> list[tuple[str, str | None]]:
    """Returns keyword and text of each option; mostly omits default values."""
    found: list[tuple[str, str | None]] = []
    for name, default, _ in op.options:
        value = values[name]
        if value == default and not t.chance(0.3):
            found.append((name, None))
        else:
            found.append((name, t.option(name, value, default=value if default == REQUIRED else default, where=where)))
    return found


def _module(t: Draft, op: Unary, values: dict[str, Option]) -> str:
    return t.module("Activation", op.module, _arguments(t, op, values, "init"))


def _function(t: Draft, op: Unary, x: DraftTensor, values: dict[str, Option]) -> str:
    name = _library(t, t.random.choice(op.functions))
    parts = [text if not op.keywords else f"{k}={text}" for k, text in _arguments(t, op, values, "forward") if text]
    return f"{name}({', '.join([str(x), *parts])})"


def _formula(t: Draft, op: Unary, x: DraftTensor) -> str:
    formula = t.random.choice(op.formulas)
    if formula.count("{x}") > 1:
        x = t.named_once(x)
    if "math." in formula:
        t.math("")
    return _library(t, formula).format(x=x.atom if "({x}" not in formula else x)


def _library(t: Draft, text: str) -> str:
    """Replaces `F.` by the style's spelling."""
    return text.replace("F.", f"{t.prefix()}.") if "F." in text else text


def family(op: Unary) -> Family:
    """Returns the operator alone, on a tensor of any rank."""

    def make(t: Draft) -> None:
        rank = t.random.choice((1, 2, 2, 2, 3, 3, 4, 4, 5))
        x = memory_bound_input(t, rank, op.domain)
        t.finish(apply(t, x, op))

    active = op in ACTIVATIONS
    return Family(op.name, "activation" if active else "math", op.weight * (0.5 if active else 0.25), make, op.held_out)


def memory_bound_input(t: Draft, rank: int, draw: str = "own", role: str = "x", total: float = 0.0) -> DraftTensor:
    """Drafts an input of `rank` dimensions with a size for a memory-bound operator."""
    extents = sizes.shape(t.random, rank, total or sizes.elements(t.random))
    if rank in (3, 4, 5) and t.chance(0.5):
        extents = sizes.image(t.random, rank - 2, total or sizes.elements(t.random))
        extents[:2] = [max(2, e) for e in extents[:2]]  # with one element a reduction or softmax has no effect
        names = ("batch", "channels", *{3: ("length",), 4: ("height", "width"), 5: ("depth", "height", "width")}[rank])
    else:
        names = {
            1: ("features",),
            2: t.random.choice((("batch", "features"), ("rows", "cols"), ("batch", "features"))),
            3: t.random.choice((("batch", "seq", "features"), ("batch", "extent", "extent"))),
            4: ("batch", "extent", "extent", "extent"),
            5: ("batch", "extent", "extent", "extent", "extent"),
        }[rank]
    return t.input(role, [t.dim(n, e) for n, e in zip(names, extents, strict=True)], draw)
