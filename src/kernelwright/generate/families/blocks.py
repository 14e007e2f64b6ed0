"""Small blocks of networks (level 3 in miniature): MLPs, convolution stages, residuals, attention, gated units."""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.generate import sizes
from kernelwright.generate.draft import Dim, Draft, DraftTensor
from kernelwright.generate.families import convolution, norms, pooling, softmaxes, unary
from kernelwright.generate.families.convolution import SPATIAL, ConvWindow
from kernelwright.generate.families.fused import Flow, choose_activation, extend, linear, linear_anchor
from kernelwright.generate.families.matmul import product
from kernelwright.generate.families.unary import Unary
from kernelwright.generate.registry import Family, rows


def main_activation(t: Draft) -> Unary:
    names = ("relu", "relu", "gelu", "gelu", "silu", "tanh", "sigmoid", "leaky_relu", "elu")
    return unary.BY_NAME[t.random.choice(names)]


def linear_layer(t: Draft) -> None:
    """Drafts a linear layer alone."""
    flow = linear_anchor(t)
    t.finish(flow.x)


def bilinear(t: Draft) -> None:
    """Drafts x W y for every row."""
    rows_, a, b = (
        t.dim("batch", t.random.choice((128, 256, 1024))),
        t.dim("in_features", t.random.choice((16, 32, 64))),
        t.dim("K", t.random.choice((16, 32, 48))),
    )
    out = t.dim("out_features", t.random.choice((8, 16, 32, 64)))
    x, y = t.input("x", (rows_, a)), t.input("other", (rows_, b))
    t.mark("bilinear")
    t.say("a bilinear form")
    layer = t.module(
        "Bilinear",
        "Bilinear",
        [("in1_features", t.argument(a)), ("in2_features", t.argument(b)), ("out_features", t.argument(out))],
    )
    t.finish(
        t.step(f"{layer}({x}, {y})", (rows_.value, out.value), "linear", flops=2.0 * x.elements * b.value * out.value)
    )


def row_input(t: Draft, width: tuple[float, float], *, sequence: float = 0.3) -> tuple[DraftTensor, Dim]:
    """Drafts rows of features, or a batch of sequences of them."""
    features = t.dim("features", sizes.around(t.random, sizes.log_uniform(t.random, *width), 8))
    if t.chance(sequence):
        lead = (t.dim("batch", t.random.choice((2, 4, 8, 16))), t.dim("seq", t.random.choice((32, 64, 128, 256))))
        return t.input("x", (*lead, features)), features
    rows_ = t.dim("batch", sizes.around(t.random, sizes.log_uniform(t.random, 16, 2048), 4))
    return t.input("x", (rows_, features)), features


def mlp(t: Draft) -> None:
    """Drafts two to four linear layers with activations between them."""
    x, inside = row_input(t, (64, 1024))
    act = main_activation(t)
    count = t.random.choice((2, 2, 2, 3, 4))
    for number in range(count):
        role = "hidden" if number < count - 1 else "out_features"
        outside = t.dim(role, t.random.choice((64, 128, 256, 512, 1024)))
        x = linear(t, x, inside, outside)
        inside = outside
        if number < count - 1 or t.chance(0.1):
            x = unary.apply(t, x, act)
    t.finish(x)


def transformer_ffn(t: Draft) -> None:
    """Drafts norm, wide linear layer, activation, narrow linear layer, residual."""
    x, width = row_input(t, (64, 768), sequence=0.8)
    hidden = t.dim("hidden", width.value * t.random.choice((2, 4, 4, 3)))
    residual = t.keep(x) if t.chance(0.7) else None
    before = t.chance(0.5)
    h = norms.layer_norm(t, x, (width,)) if before else x
    h = linear(t, h, width, hidden)
    h = unary.apply(t, h, main_activation(t))
    h = linear(t, h, hidden, width)
    if residual is not None:
        h = add_residual(t, h, residual)
    t.finish(h if before else norms.layer_norm(t, h, (width,)))


def add_residual(t: Draft, x: DraftTensor, residual: DraftTensor) -> DraftTensor:
    t.mark("residual_add")
    t.say("a residual connection")
    return t.step(t.pick(f"{x.atom} + {residual}", f"{residual} + {x.atom}", f"torch.add({x}, {residual})"), x.shape)


def gated_unit(t: Draft) -> None:
    """Drafts act(x W) * (x V), and back: SwiGLU and its relatives."""
    x, width = row_input(t, (64, 1024), sequence=0.5)
    hidden = t.dim("hidden", width.value * t.random.choice((1, 2, 2)))
    x = t.keep(x)
    gate = linear(t, x, width, hidden)
    gate = t.named(
        unary.apply(t, gate, unary.BY_NAME[t.random.choice(("silu", "silu", "gelu", "sigmoid", "relu"))]), "gate"
    )
    up = linear(t, x, width, hidden)
    t.mark("mul")
    t.say("a product of gate and value")
    h = t.step(t.pick(f"{gate} * {up.atom}", f"{up.atom} * {gate}"), up.shape)
    t.finish(linear(t, h, hidden, width) if t.chance(0.7) else h)


def self_attention(t: Draft) -> None:
    """Drafts single-head self-attention with learned projections."""
    batch, length = t.random.choice((2, 4, 8, 16)), t.random.choice((64, 128, 256, 512))
    width = t.dim("features", t.random.choice((32, 64, 128, 256)))
    x = t.keep(t.input("x", (t.dim("batch", batch), t.dim("seq", length), width)))
    parts = [t.named(linear(t, x, width, width)) for _ in range(3)]
    q, k, v = parts
    if t.chance(0.5):
        causal = t.chance(0.4)
        t.mark("attention", causal=int(causal) or None)
        t.say("softmax attention")
        tail = ", is_causal=True" if causal else ""
        out = t.step(
            f"{t.prefix()}.scaled_dot_product_attention({q}, {k}, {v}{tail})", x.shape, flops=4.0 * x.elements * length
        )
    else:
        dot = product(t, q, k, b_t=True)
        scale = t.pick(f"/ math.sqrt({width.value})", f"/ ({width.value} ** 0.5)", f"* {width.value} ** -0.5")
        t.math(scale) if "math" in scale else None
        t.mark("scale")
        weights = softmaxes.softmax(t, t.step(f"{dot.atom} {scale}", dot.shape, "scores"), 2)
        out = product(t, weights, v)
    out = linear(t, out, width, width) if t.chance(0.5) else out
    t.finish(add_residual(t, out, x) if t.chance(0.3) else out)


def image_input(t: Draft, rank: int, channels: tuple[int, ...], total: float) -> tuple[DraftTensor, Dim]:
    """Drafts a batch of images (or sequences, volumes) for a block."""
    inside = t.dim("in_channels", t.random.choice(channels))
    shape = sizes.image(t.random, rank, total, inside.value)
    dims = [t.dim(r, max(8, s)) for r, s in zip(SPATIAL[rank], shape[2:], strict=True)]
    lead = t.dim("batch", max(1, shape[0]))
    return t.input(convolution.INPUT_ROLE[rank], (lead, inside, *dims)), inside


def same_window(rank: int, kernel: int, stride: int = 1) -> ConvWindow:
    """Returns a window that keeps the extents where the stride is 1."""
    return ConvWindow((kernel,) * rank, (stride,) * rank, (kernel // 2,) * rank, (1,) * rank, (0,) * rank)


def normed_channels(t: Draft, x: DraftTensor, channels: Dim) -> DraftTensor:
    if t.chance(0.75):
        return norms.batch_norm(t, x, channels)
    groups = [g for g in (2, 4, 8) if channels.value % g == 0]
    return norms.group_norm(t, x, channels, t.random.choice(groups)) if groups else norms.batch_norm(t, x, channels)


def _conv_block(rank: int) -> Callable[[Draft], None]:
    def make(t: Draft) -> None:
        """Drafts convolution, norm, activation; once, twice or three times."""
        x, inside = image_input(t, rank, (3, 8, 16, 32), sizes.log_uniform(t.random, 3e5, 8e6))
        act = main_activation(t)
        for _ in range(t.random.choice((1, 2, 2, 3))):
            outside = t.dim("out_channels", t.random.choice((8, 16, 32, 64)))
            t.say(convolution.phrase("conv", rank))
            x = convolution.convolve(t, x, inside, outside, same_window(rank, t.random.choice((1, 3, 3, 5))))
            x = unary.apply(t, normed_channels(t, x, outside), act)
            inside = outside
        if t.chance(0.3) and min(x.shape[2:]) >= 8:
            x = pooling.pool(t, x, t.pick("max", "avg"), small=True)
        t.finish(x)

    return make


def residual_block(t: Draft) -> None:
    """Drafts two convolutions with norms, and the input added before the last activation."""
    rank = t.random.choice((1, 2, 2, 2, 3))
    x, channels = image_input(t, rank, (8, 16, 32, 64), sizes.log_uniform(t.random, 3e5, 8e6))
    act = main_activation(t)
    kernel = t.random.choice((3, 3, 5))
    kept = t.keep(x)
    h = kept
    t.say("two convolutions")
    h = convolution.convolve(t, h, channels, channels, same_window(rank, kernel))
    h = unary.apply(t, normed_channels(t, h, channels), act)
    h = convolution.convolve(t, h, channels, channels, same_window(rank, kernel))
    h = normed_channels(t, h, channels) if t.chance(0.8) else h
    t.finish(unary.apply(t, add_residual(t, h, kept), act))


def bottleneck(t: Draft) -> None:
    """Drafts 1x1, 3x3 and 1x1 convolutions with a residual; sometimes the middle one is depthwise."""
    x, channels = image_input(t, 2, (16, 32, 64), sizes.log_uniform(t.random, 3e5, 8e6))
    middle = t.dim("hidden", channels.value * t.random.choice((1, 2)) if t.chance(0.5) else channels.value // 2)
    kept = t.keep(x)
    act = main_activation(t)
    t.say("a bottleneck of three convolutions")
    h = convolution.convolve(t, kept, channels, middle, same_window(2, 1))
    h = unary.apply(t, h, act)
    groups = -1 if t.chance(0.5) else 1
    h = convolution.convolve(
        t, h, middle, middle, same_window(2, 3), groups, name="conv_depthwise2d" if groups == -1 else ""
    )
    h = unary.apply(t, h, act)
    t.finish(add_residual(t, convolution.convolve(t, h, middle, channels, same_window(2, 1)), kept))


def squeeze_excite(t: Draft) -> None:
    """Drafts channels weighted by a small network on their means."""
    x, channels = image_input(t, 2, (16, 32, 64, 128), sizes.log_uniform(t.random, 1e5, 8e6))
    x = t.keep(x)
    small = t.dim("hidden", max(2, channels.value // t.random.choice((2, 4, 8))))
    t.say("squeeze and excitation")
    if t.chance(0.5):
        t.mark("mean", dim="spatial")
        s = t.step(
            t.pick(f"{x}.mean(dim=(2, 3))", f"torch.mean({x}, dim=[2, 3])", f"{x}.mean(dim=[2, 3])"),
            x.shape[:2],
            "pool",
            flops=float(x.elements),
        )
        s = unary.apply(t, linear(t, s, channels, small), unary.BY_NAME["relu"])
        s = unary.apply(t, linear(t, s, small, channels), unary.BY_NAME["sigmoid"])
        shown = t.pick(f"{s.atom}[:, :, None, None]", f"{s.atom}.unsqueeze(-1).unsqueeze(-1)")
    else:
        s = pooling.adaptive(t, x, "avg", 1)
        s = unary.apply(t, convolution.convolve(t, s, channels, small, same_window(2, 1)), unary.BY_NAME["relu"])
        s = unary.apply(t, convolution.convolve(t, s, small, channels, same_window(2, 1)), unary.BY_NAME["sigmoid"])
        shown = s.atom
    t.mark("mul")
    t.finish(t.step(t.pick(f"{x} * {shown}", f"{shown} * {x}"), x.shape))


def classifier(t: Draft) -> None:
    """Drafts convolution, activation, pooling to one value a channel, linear layer."""
    x, inside = image_input(t, 2, (1, 3, 8, 16), sizes.log_uniform(t.random, 3e5, 8e6))
    outside, classes = (
        t.dim("out_channels", t.random.choice((8, 16, 32, 64))),
        t.dim("classes", t.random.choice((10, 100, 16))),
    )
    t.say("a convolution")
    h = convolution.convolve(t, x, inside, outside, same_window(2, t.random.choice((3, 5)), t.random.choice((1, 2))))
    h = unary.apply(t, h, main_activation(t))
    if t.chance(0.5):
        t.mark("mean", dim="spatial")
        h = t.step(t.pick(f"{h.atom}.mean(dim=(2, 3))", f"torch.mean({h}, dim=(2, 3))"), h.shape[:2], "pool")
    else:
        h = t.named(pooling.adaptive(t, h, "avg", 1))
        flat = t.pick(f"torch.flatten({h}, 1)", f"{h}.flatten(1)", f"{h}.view({h}.size(0), -1)")
        h = t.step(flat, h.shape[:2], "shape", flops=0.0)
    t.finish(linear(t, h, outside, classes))


def norm_linear(t: Draft) -> None:
    """Drafts a norm, a linear layer, a chain: the head of a transformer's branch."""
    x, width = row_input(t, (64, 1024), sequence=0.4)
    h = norms.layer_norm(t, x, (width,)) if t.chance(0.6) else norms.rms_norm(t, x, width, -1)
    outside = t.dim("out_features", t.random.choice((64, 128, 256, 512)))
    h = linear(t, h, width, outside)
    t.finish(
        extend(
            t,
            Flow(unary.apply(t, h, choose_activation(t)), outside, False, "activation"),
            t.random.choice((0, 1, 1, 2)),
        ).x
    )


def two_products(t: Draft) -> None:
    """Drafts a product of products, or a low-rank one."""
    m, k, r, n = (t.dim(role, sizes.around(t.random, sizes.log_uniform(t.random, *span), 4)) for role, span in
                  (("M", (64, 2048)), ("K", (64, 1024)), ("hidden", (8, 256)), ("N", (64, 1024))))  # fmt: skip
    a, b, c = t.input("A", (m, k)), t.input("B", (k, r)), t.input("third", (r, n))
    t.kept |= {a.text, b.text, c.text}
    t.say("two matrix products in a row")
    first = product(t, a, b)
    if t.chance(0.5):
        first = unary.apply(t, first, main_activation(t))
    t.finish(product(t, first, c))


def families() -> list[Family]:
    """Returns all blocks, and linear layers alone."""
    single: list[tuple[str, Callable[[Draft], None]]] = [("linear", linear_layer), ("bilinear", bilinear)]
    makers: list[tuple[str, Callable[[Draft], None]]] = [
        ("mlp", mlp), ("transformer_ffn", transformer_ffn), ("gated_unit", gated_unit), ("self_attention",
        self_attention),
        ("residual_block", residual_block), ("bottleneck", bottleneck), ("squeeze_excite", squeeze_excite),
        ("classifier", classifier), ("norm_linear", norm_linear), ("two_products", two_products),
    ]  # fmt: skip
    makers += [(f"conv_block{rank}d", _conv_block(rank)) for rank in (1, 2, 3)]
    return rows("linear", 2.0, single) + rows("block", 8.0, makers)
