"""Drafts networks of several equal layers, as in KernelBench's level 3; drawn only by name, or as a share of pairs.

Their answers launch one kernel for equal layers, so that a model can learn this.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.generate import sizes
from kernelwright.generate.draft import Dim, Draft, DraftTensor
from kernelwright.generate.families import convolution, norms, pooling, softmaxes, unary
from kernelwright.generate.families.blocks import (
    add_residual,
    image_input,
    main_activation,
    normed_channels,
    row_input,
    same_window,
)
from kernelwright.generate.families.fused import linear
from kernelwright.generate.families.matmul import product
from kernelwright.generate.registry import Family, rows

WEIGHT = 1e-9
"""Weight zero: never drawn among all families, so that a seed's suites stay the same."""


def _sequence(t: Draft) -> tuple[DraftTensor, Dim, int, int]:
    """Drafts a batch of sequences whose width divides into heads: input, width, heads, width of a head."""
    heads, size = t.random.choice((2, 4, 4, 8)), t.random.choice((8, 16, 32))
    width = t.dim("features", heads * size)
    lead = (t.dim("batch", t.random.choice((2, 4, 8))), t.dim("seq", t.random.choice((32, 64, 128, 256))))
    return t.input("sequence", (*lead, width)), width, heads, size


def _attended(t: Draft, x: DraftTensor, width: Dim, heads: int, size: int) -> DraftTensor:
    """Drafts attention of several heads with projections, of a value that may be read again."""
    shown = t.option("num_heads", heads, where="forward")
    of_head = t.option("head_dim", size, where="forward", expose=0.3)
    causal = t.chance(0.3)
    parts = []
    for _ in range(3):
        y = t.named(linear(t, x, width, width))
        split = (x.shape[0], heads, x.shape[1], size)
        view = t.pick("view", "view", "reshape")
        text = f"{y}.{view}({y}.{t.pick('size(0)', 'shape[0]')}, {y}.{t.pick('size(1)', 'shape[1]')}, {shown}, "
        text += f"{t.pick(of_head, '-1', of_head)}).transpose(1, 2)"
        parts.append(t.named(t.step(text, split, "shape", flops=0.0)))
    q, k, v = parts
    cost = 4.0 * x.elements * x.shape[1]
    t.mark("attention", heads=1, causal=int(causal) or None)
    t.say("attention of several heads")
    if t.chance(0.5) or causal:
        tail = ", is_causal=True" if causal else ""
        out = t.step(f"{t.prefix()}.scaled_dot_product_attention({q}, {k}, {v}{tail})", q.shape, flops=cost)
    else:
        scale = t.pick(f"/ math.sqrt({of_head})", f"/ ({of_head} ** 0.5)", f"* {of_head} ** -0.5")
        t.math(scale) if "math" in scale else None
        turned = f"{k}.transpose(-2, -1)"
        scores = t.pick(f"torch.matmul({q}, {turned}) {scale}", f"({q} @ {turned}) {scale}")
        shape = (*q.shape[:2], x.shape[1], x.shape[1])
        weights = softmaxes.softmax(t, t.step(scores, shape, "scores", flops=cost / 2), 3)
        out = t.step(t.pick(f"torch.matmul({weights}, {v})", f"{weights.atom} @ {v}"), q.shape, flops=cost / 2)
    text = t.pick(".transpose(1, 2).reshape({0}.size(0), {0}.size(1), -1)", ".transpose(1, 2).flatten(2)",
                  ".transpose(1, 2).contiguous().view({0}.shape[0], {0}.shape[1], -1)")  # fmt: skip
    merged = t.step(f"{out.atom}{text.format(x)}", x.shape, "shape", flops=0.0)
    return linear(t, merged, width, width) if t.chance(0.8) else merged


def multi_head(t: Draft) -> None:
    """Drafts attention of several heads, sometimes behind a norm and with the input added."""
    x, width, heads, size = _sequence(t)
    kept = t.keep(x)
    h = t.named(norms.layer_norm(t, kept, (width,))) if t.chance(0.4) else kept
    out = _attended(t, h, width, heads, size)
    t.finish(add_residual(t, out, kept) if t.chance(0.5) else out)


def mixer(t: Draft) -> None:
    """Drafts a network along the sequence and one along the features, each with a norm and a residual."""
    length, width = t.dim("seq", t.random.choice((16, 32, 64))), t.dim("features", t.random.choice((32, 64, 128)))
    tokens, hidden = t.dim("hidden", t.random.choice((32, 64, 128))), t.dim("hidden", t.random.choice((64, 128, 256)))
    act = main_activation(t)
    kept = t.keep(t.input("sequence", (t.dim("batch", t.random.choice((2, 4, 8, 16))), length, width)))
    for inside, outside, turn in ((length, tokens, True), (width, hidden, False)):
        h = norms.layer_norm(t, kept, (width,))
        if turn:
            h = t.step(f"{h.atom}.transpose(1, 2)", (h.shape[0], h.shape[2], h.shape[1]), "shape", flops=0.0)
        h = linear(t, unary.apply(t, linear(t, h, inside, outside), act), outside, inside)
        if turn:
            h = t.step(f"{h.atom}.transpose(1, 2)", (h.shape[0], h.shape[2], h.shape[1]), "shape", flops=0.0)
        t.say("a mixer's branch")
        kept = t.named(add_residual(t, h, kept))
    t.finish(kept)


def deep_mlp(t: Draft) -> None:
    """Drafts four to seven linear layers with an activation each, sometimes with norms."""
    x, inside = row_input(t, (32, 512))
    act, normed = main_activation(t), t.chance(0.4)
    hidden = t.dim("hidden", t.random.choice((64, 128, 256)))
    for _ in range(t.random.choice((3, 4, 5, 6))):
        x = linear(t, x, inside, hidden)
        if normed:
            x = norms.layer_norm(t, x, (hidden,))
        x, inside = unary.apply(t, x, act), hidden
    t.finish(linear(t, x, inside, t.dim("classes", t.random.choice((10, 64, 100)))))


def highway(t: Draft) -> None:
    """Drafts layers that mix their output with their input by a gate."""
    x, width = row_input(t, (32, 512), sequence=0.2)
    act = main_activation(t)
    kept = t.keep(x)
    for _ in range(t.random.choice((1, 2, 2, 3))):
        h = t.named(unary.apply(t, linear(t, kept, width, width), act))
        gate = t.named(unary.apply(t, linear(t, kept, width, width), unary.BY_NAME["sigmoid"]), "gate")
        t.mark("highway")
        t.say("a highway layer")
        kept = t.named(
            t.step(t.pick(f"{gate} * {h} + (1 - {gate}) * {kept}", f"{h} * {gate} + {kept} * (1.0 - {gate})"), h.shape)
        )
    t.finish(kept)


def recurrent_cell(t: Draft) -> None:
    """Drafts one step of a gated recurrent cell on a state that is given."""
    lead = t.dim("batch", t.random.choice((16, 32, 64, 128)))
    width, hidden = t.dim("in_features", t.random.choice((32, 64, 128))), t.dim("hidden", t.random.choice((64, 128)))
    x, h = t.keep(t.input("x", (lead, width))), t.keep(t.input("other", (lead, hidden)))
    made = []
    for squash in ("sigmoid", "sigmoid"):
        t.mark("gates")
        total = t.step(f"{linear(t, x, width, hidden).atom} + {linear(t, h, hidden, hidden).atom}", h.shape)
        made.append(t.named(unary.apply(t, total, unary.BY_NAME[squash]), "gate"))
    z, r = made
    inner = linear(t, t.step(f"{r} * {h}", h.shape), hidden, hidden)
    total = t.step(f"{linear(t, x, width, hidden).atom} + {inner.atom}", h.shape)
    n = t.named(unary.apply(t, total, unary.BY_NAME["tanh"]))
    t.say("a gated recurrent step")
    t.finish(t.step(t.pick(f"(1 - {z}) * {n} + {z} * {h}", f"{z} * {h} + (1.0 - {z}) * {n}"), h.shape))


def vgg(t: Draft) -> None:
    """Drafts stages of convolutions that pooling follows, and a linear layer."""
    x, inside = image_input(t, 2, (1, 3, 8), sizes.log_uniform(t.random, 2e5, 3e6))
    act, normed, kind = main_activation(t), t.chance(0.4), t.pick("max", "max", "avg")
    for width in t.random.choice(((16, 32), (8, 16), (16, 32, 64), (32, 64))):
        outside = t.dim("out_channels", width)
        for _ in range(t.random.choice((1, 2))):
            x = convolution.convolve(t, x, inside, outside, same_window(2, 3))
            x = unary.apply(t, normed_channels(t, x, outside) if normed else x, act)
            inside = outside
        if min(x.shape[2:]) >= 6:
            x = pooling.pool(t, x, kind, small=True)
    t.say("stages of convolutions")
    x = t.named(pooling.adaptive(t, x, "avg", 1))
    x = t.step(t.pick(f"torch.flatten({x}, 1)", f"{x}.flatten(1)"), x.shape[:2], "shape", flops=0.0)
    t.finish(linear(t, x, inside, t.dim("classes", t.random.choice((10, 100)))))


def residual_stack(t: Draft) -> None:
    """Drafts two residual blocks of two convolutions each."""
    x, channels = image_input(t, 2, (8, 16, 32), sizes.log_uniform(t.random, 2e5, 2e6))
    act, normed = main_activation(t), t.chance(0.6)
    kept = t.keep(x)
    t.say("residual blocks")
    for _ in range(2):
        h = kept
        for number in range(2):
            h = convolution.convolve(t, h, channels, channels, same_window(2, 3))
            h = normed_channels(t, h, channels) if normed else h
            h = unary.apply(t, h, act) if number == 0 else h
        kept = t.named(unary.apply(t, add_residual(t, h, kept), act))
    t.finish(kept)


def _joined(t: Draft, parts: list[DraftTensor]) -> DraftTensor:
    shape = (parts[0].shape[0], sum(p.shape[1] for p in parts), *parts[0].shape[2:])
    listed = ", ".join(map(str, parts))
    t.mark("cat", of=len(parts), rank=len(shape))
    t.say("a concatenation")
    return t.step(
        t.pick(f"torch.cat([{listed}], dim=1)", f"torch.cat([{listed}], 1)", f"torch.cat(({listed}), dim=1)"), shape
    )


def dense_block(t: Draft) -> None:
    """Drafts convolutions that read everything before them."""
    x, channels = image_input(t, 2, (8, 16, 32), sizes.log_uniform(t.random, 2e5, 2e6))
    growth, act = t.dim("out_channels", t.random.choice((8, 16))), main_activation(t)
    kept = t.keep(x)
    for _ in range(t.random.choice((2, 2, 3))):
        inside = t.dim("in_channels", kept.shape[1]) if kept.shape[1] != channels.value else channels
        h = convolution.convolve(t, unary.apply(t, kept, act), inside, growth, same_window(2, 3))
        kept = t.named(_joined(t, [kept, t.named(h)]))
    t.finish(kept)


def inception(t: Draft) -> None:
    """Drafts branches of different windows beside each other."""
    x, channels = image_input(t, 2, (8, 16, 32), sizes.log_uniform(t.random, 2e5, 2e6))
    kept, act = t.keep(x), main_activation(t)
    parts = []
    for kernel in t.random.choice(((1, 3), (1, 3, 5), (3, 5), (1, 1, 3))):
        out = t.dim("out_channels", t.random.choice((8, 16, 24)))
        h = convolution.convolve(t, kept, channels, out, same_window(2, kernel))
        parts.append(t.named(unary.apply(t, h, act) if t.chance(0.8) else h))
    t.finish(_joined(t, parts))


def inverted_residual(t: Draft) -> None:
    """Drafts a pointwise, a depthwise and a pointwise convolution, each with a norm, and the input added."""
    x, channels = image_input(t, 2, (8, 16, 32), sizes.log_uniform(t.random, 2e5, 2e6))
    middle = t.dim("hidden", channels.value * t.random.choice((2, 4)))
    kept, act = t.keep(x), unary.BY_NAME[t.random.choice(("relu6", "relu6", "relu", "silu", "hardswish"))]
    t.say("an inverted residual")
    h = unary.apply(
        t, normed_channels(t, convolution.convolve(t, kept, channels, middle, same_window(2, 1)), middle), act
    )
    h = convolution.convolve(t, h, middle, middle, same_window(2, 3), -1, name="conv_depthwise2d")
    h = unary.apply(t, normed_channels(t, h, middle), act)
    h = normed_channels(t, convolution.convolve(t, h, middle, channels, same_window(2, 1)), channels)
    t.finish(add_residual(t, h, kept) if t.chance(0.8) else h)


def encoder_decoder(t: Draft) -> None:
    """Drafts pooling, then upsampling by interpolation or transposed convolution, with a skip connection."""
    inside = t.dim("in_channels", t.random.choice((1, 3, 8)))
    side = [t.dim(role, 2 * t.random.choice((12, 16, 20, 32, 48))) for role in ("height", "width")]
    x = t.input("image", (t.dim("batch", t.random.choice((2, 4, 8))), inside, *side))
    width, act = t.dim("out_channels", t.random.choice((8, 16, 32))), main_activation(t)
    first = t.named(unary.apply(t, convolution.convolve(t, x, inside, width, same_window(2, 3)), act))
    t.mark("max_pool2d", kernel="2")
    t.say("a pooled path")
    small = (*first.shape[:2], first.shape[2] // 2, first.shape[3] // 2)
    h = t.step(f"{t.prefix()}.max_pool2d({first}, 2)", small, "pool")
    h = unary.apply(t, convolution.convolve(t, h, width, width, same_window(2, 3)), act)
    t.mark("upsample2d", scale=2)
    h = t.named(
        t.step(f"{t.prefix()}.interpolate({h}, scale_factor=2, mode={t.number('nearest')})", first.shape, "value")
    )
    both = t.dim("in_channels", 2 * width.value)
    joined = _joined(t, [h, first])
    t.finish(convolution.convolve(t, joined, both, t.dim("classes", t.random.choice((1, 2, 4))), same_window(2, 1)))


def gated_convolution(t: Draft) -> None:
    """Drafts convolutions whose results gate each other, with the input added."""
    x, channels = image_input(t, t.random.choice((1, 1, 2)), (8, 16, 32), sizes.log_uniform(t.random, 2e5, 2e6))
    kept, win = t.keep(x), same_window(x.rank - 2, 3)
    for _ in range(t.random.choice((1, 2))):
        a = convolution.convolve(t, kept, channels, channels, win)
        a = t.named(unary.apply(t, a, unary.BY_NAME["tanh"]))
        b = convolution.convolve(t, kept, channels, channels, win)
        b = t.named(unary.apply(t, b, unary.BY_NAME["sigmoid"]), "gate")
        t.mark("mul")
        t.say("gated convolutions")
        h = convolution.convolve(t, t.step(f"{a} * {b}", a.shape), channels, channels, same_window(x.rank - 2, 1))
        kept = t.named(add_residual(t, h, kept))
    t.finish(kept)


def low_rank_heads(t: Draft) -> None:
    """Drafts several products of one input with weights, brought together."""
    x, width = row_input(t, (32, 256), sequence=0.0)
    kept, out = t.keep(x), t.dim("out_features", t.random.choice((32, 64, 128)))
    act = main_activation(t)
    parts = [t.named(unary.apply(t, linear(t, kept, width, out), act)) for _ in range(t.random.choice((2, 3)))]
    if t.chance(0.5):
        return t.finish(_joined(t, parts))
    t.mark("sum_of_branches", of=len(parts))
    t.say("a sum of branches")
    t.finish(product(t, t.step(" + ".join(map(str, parts)), parts[0].shape), parts[0], b_t=True))


def families() -> list[Family]:
    """Returns all networks."""
    makers: list[Callable[[Draft], None]] = [
        multi_head, mixer, deep_mlp, highway, recurrent_cell, vgg, residual_stack, dense_block,
        inception, inverted_residual, encoder_decoder, gated_convolution, low_rank_heads,
    ]  # fmt: skip
    return rows("network", WEIGHT, [(f"{make.__name__}_network", make) for make in makers])
