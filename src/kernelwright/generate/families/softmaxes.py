"""Softmax and its relatives along any dimension; attention with softmax; gated units that split a tensor."""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.generate import sizes
from kernelwright.generate.draft import Dim, Draft, DraftTensor
from kernelwright.generate.families import unary
from kernelwright.generate.families.matmul import product
from kernelwright.generate.families.unary import memory_bound_input
from kernelwright.generate.registry import Family, rows

CLASSES = {"softmax": "Softmax", "log_softmax": "LogSoftmax", "softmin": "Softmin"}


def softmax(t: Draft, x: DraftTensor, axis: int, kind: str = "softmax") -> DraftTensor:
    """Drafts a softmax of x along `axis` (counted from the front)."""
    value = axis - x.rank if t.chance(0.5) else axis
    t.mark(kind, dim=f"{axis}of{x.rank}")
    t.say({"softmax": "softmax", "log_softmax": "log-softmax", "softmin": "softmin"}[kind])
    forms: list[Callable[[], str]] = [lambda: f"{t.prefix()}.{kind}({x}, dim={t.option('dim', value, default=-1)})"]
    if t.style.spelling == "module":
        forms = [
            lambda: f"{t.module('Activation', CLASSES[kind], [('dim', t.option('dim', value, where='init'))])}({x})"
        ]
    elif kind != "softmin":
        forms.append(lambda: f"torch.{kind}({x}, dim={t.option('dim', value, default=-1)})")
        forms.append(lambda: f"{x.atom}.{kind}(dim={t.option('dim', value, default=-1)})")
        forms.append(lambda: f"torch.{kind}({x}, {value})")
    return t.step(t.random.choice(forms)(), x.shape, "softmax", dtype=x.dtype, flops=5.0 * x.elements)


def by_hand(t: Draft, x: DraftTensor, axis: int) -> DraftTensor:
    """Drafts softmax by formula: with or without the subtraction of the maximum."""
    x = t.named(x)
    dim = t.option("dim", axis - x.rank if t.chance(0.4) else axis, default=-1)
    t.mark("softmax", dim=f"{axis}of{x.rank}")
    t.say("softmax by its formula")
    if t.chance(0.7):
        peak = t.pick(
            f"{x}.max(dim={dim}, keepdim=True)[0]",
            f"torch.max({x}, dim={dim}, keepdim=True).values",
            f"{x}.amax(dim={dim}, keepdim=True)",
        )
        shifted = f"{x} - {peak}"
    else:
        shifted = str(x)
    e = t.named(t.step(f"torch.exp({shifted})", x.shape), "value")
    return t.step(
        t.pick(f"{e} / {e}.sum(dim={dim}, keepdim=True)", f"{e} / torch.sum({e}, dim={dim}, keepdim=True)"),
        x.shape,
        "softmax",
    )


def _plain(kind: str) -> Callable[[Draft], None]:
    def make(t: Draft) -> None:
        rank = t.random.choice((2, 2, 2, 3, 3, 4))
        x = memory_bound_input(t, rank)
        axis = t.random.choice((rank - 1, rank - 1, 1, t.random.randrange(rank)))
        t.finish(by_hand(t, x, axis) if kind == "softmax" and t.chance(0.15) else softmax(t, x, axis, kind))

    return make


# Attention


def _heads(t: Draft) -> tuple[list[Dim], int, int]:
    """Returns (batch, heads) or (batch,), with a sequence length and a head size."""
    batch, heads = t.random.choice((1, 2, 4, 8, 16, 32)), t.random.choice((4, 8, 12, 16, 32))
    length, size = t.random.choice((128, 256, 512, 1024, 2048)), t.random.choice((32, 64, 64, 128, 256))
    while batch * heads * length * length > 1.5e8 and batch > 1:
        batch //= 2
    while batch * heads * length * length > 1.5e8:
        length //= 2
    lead = [t.dim("batch", batch)] + ([t.dim("heads", heads)] if t.chance(0.75) else [])
    return lead, length, size


def scaled_dot_product(t: Draft, causal: bool, mode: str) -> None:
    """Drafts F.scaled_dot_product_attention, or the same by hand."""
    lead, length, size = _heads(t)
    seq, width = t.dim("seq", length), t.dim("head_dim", size)
    other = seq
    if not causal and t.chance(0.15):
        other = t.dim("length", max(8, length // 2))
    q = t.input("q", (*lead, seq, width))
    k, v = (t.input(r, (*lead, other, width)) for r in ("k", "v"))
    t.kept |= {q.text, k.text, v.text}
    scale = t.random.choice((0.125, 0.1, 0.0883883, 0.05)) if mode == "scale" else None
    t.mark("attention", causal=int(causal) or None, scale=scale, rank=q.rank)
    t.say(
        t.pick("scaled dot-product attention", "attention", "softmax attention")
        + (" with a causal mask" if causal else "")
    )
    flops = 4.0 * q.elements * k.shape[-2]
    if t.chance(0.6):
        options = [f"is_causal={t.option('is_causal', True, default=False, expose=0.2)}"] if causal else []
        if scale:
            options.append(f"scale={t.option('scale', scale, default=scale)}")
        text = f"{t.prefix()}.scaled_dot_product_attention({', '.join([str(q), str(k), str(v), *options])})"
        t.finish(t.step(text, q.shape, "value", flops=flops))
        return
    _by_hand(t, q, k, v, causal, scale)


def _by_hand(t: Draft, q: DraftTensor, k: DraftTensor, v: DraftTensor, causal: bool, scale: float | None) -> None:
    marks = list(t.marks)
    size = q.shape[-1]
    by = t.pick(
        f" / math.sqrt({size})",
        f" / ({size} ** 0.5)",
        f" * ({size} ** -0.5)",
        f" / math.sqrt({q}.size(-1))",
        f" / ({q}.shape[-1] ** 0.5)",
    )
    if scale:
        by = f" * {t.option('scale', scale, default=scale)}"
    if "math." in by:
        t.math(by)
    dot = product(t, q, k, b_t=True)
    scores = t.step(f"{dot.atom}{by}", dot.shape, "scores")
    if causal:
        length = q.shape[-2]
        mask = f"torch.tril(torch.ones({length}, {length}, device={q}.device))"
        if t.chance(0.5):
            attribute = t.name(("mask", "causal_mask", "tril"), t.attributes)
            ones = f"torch.ones({t.argument_of(length)}, {t.argument_of(length)})"
            t.init_lines.append(f"self.register_buffer({t.number(attribute)}, torch.tril({ones}))")
            mask = f"self.{attribute}"
        fill = f"float({t.number('-inf')})"
        scores = t.step(f"{scores.atom}.masked_fill({mask} == 0, {fill})", dot.shape, "scores")
    weights = softmax(t, scores, dot.rank - 1)
    out = product(t, weights, v)
    t.marks = [(marks[0][0], marks[0][1])]
    t.finish(out)


# Gates


def glu(t: Draft) -> None:
    """Drafts a tensor split in two, one half gating the other."""
    rank = t.random.choice((2, 2, 3, 4))
    x = memory_bound_input(t, rank, total=sizes.log_uniform(t.random, 5e5, 8e7))
    last = t.inputs[0].shape[-1]
    assert isinstance(last, Dim)
    width = last.value // 2 * 2
    t.inputs[0] = type(t.inputs[0])(
        t.inputs[0].name, (*t.inputs[0].shape[:-1], t.widen(last, max(2, width))), "own", t.dtype
    )
    shape = (*x.shape[:-1], max(2, width) // 2)
    kind = t.random.choice(("sigmoid", "sigmoid", "silu", "gelu", "relu", "tanh"))
    if kind == "sigmoid" and t.chance(0.4):
        t.mark("glu", kind=kind)
        t.say("a gated linear unit's gate")
        t.finish(t.step(f"{t.prefix()}.glu({x}, dim=-1)", shape))
        return
    t.mark("glu", kind=kind)
    t.say(t.pick(f"a {kind} gate on half of the features", f"a gated unit with {kind}"))
    a, g = (
        t.name(("a", "b", "value", "gate", "u", "g", "first", "second", "left_half", "right_half")) for _ in range(2)
    )
    t.lines.append(f"{a}, {g} = {t.pick(f'{x}.chunk(2, dim=-1)', f'torch.chunk({x}, 2, dim=-1)')}")
    act = unary.apply(t, DraftTensor(g, shape), unary.BY_NAME[kind])
    t.marks.pop()
    t.finish(t.step(t.pick(f"{a} * {act.atom}", f"{act.atom} * {a}"), shape))


def gate_inputs(t: Draft) -> None:
    """Drafts an activation of one input times another."""
    x = memory_bound_input(t, t.random.choice((2, 3)), total=sizes.log_uniform(t.random, 5e5, 8e7))
    g = t.input("gate", t.inputs[0].shape)
    t.kept |= {x.text, g.text}
    kind = t.random.choice(("silu", "gelu", "sigmoid", "relu", "tanh"))
    t.say("one tensor gated by another")
    act = unary.apply(t, g, unary.BY_NAME[kind])
    t.mark("mul")
    t.finish(t.step(t.pick(f"{act.atom} * {x}", f"{x} * {act.atom}"), x.shape))


def families() -> list[Family]:
    """Returns softmax, attention and gates."""
    plain = [(kind, _plain(kind)) for kind in ("softmax", "log_softmax")]
    attention: list[tuple[str, Callable[[Draft], None]]] = [
        ("attention", lambda t: scaled_dot_product(t, False, "")),
        ("attention_causal", lambda t: scaled_dot_product(t, True, "")),
        ("attention_scaled", lambda t: scaled_dot_product(t, t.chance(0.3), "scale")),
    ]
    gates: list[tuple[str, Callable[[Draft], None]]] = [("glu", glu), ("gated_input", gate_inputs)]
    held = Family("softmin", "softmax", 0.5, _plain("softmin"), held_out=True)
    return [*rows("softmax", 4.0, plain), held, *rows("attention", 3.0, attention), *rows("gate", 1.5, gates)]
