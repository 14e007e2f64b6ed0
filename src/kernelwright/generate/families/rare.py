"""Drafts rare operators and options; drawn only by name, or as a share of pairs.

Each occurs alone or with a few operators around it, so that a model has seen the name in training.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.generate import sizes
from kernelwright.generate.draft import Dim, Draft, DraftTensor
from kernelwright.generate.families import norms, pooling, softmaxes, unary
from kernelwright.generate.families.blocks import image_input, main_activation
from kernelwright.generate.families.fused import linear
from kernelwright.generate.families.networks import WEIGHT
from kernelwright.generate.programs.program import DrawnProgram
from kernelwright.generate.programs.programs import extend
from kernelwright.generate.registry import Family, rows


def _rows(t: Draft, low: float = 16, high: float = 1024) -> tuple[DraftTensor, Dim, Dim]:
    """Drafts an input of rows, how many they are, and how long."""
    width = t.dim("features", sizes.around(t.random, sizes.log_uniform(t.random, low, high), 4))
    count = t.dim("batch", sizes.around(t.random, sizes.log_uniform(t.random, 16, 2048), 4))
    return t.input("x", (count, width)), count, width


def _finish(t: Draft, x: DraftTensor, image: bool = False) -> None:
    """Finishes the draft, sometimes after one to three more operators."""
    if x.rank and t.chance(0.5):
        p = DrawnProgram(t, t.named(x), image, [])
        p.values.append(p.x)
        extend(p, t.random.choice((1, 1, 2, 3)))
        return p.finish()
    t.finish(x)


def pixel_shuffled(t: Draft) -> None:
    """Drafts channels into space, or back."""
    r = t.random.choice((2, 2, 3, 4))
    back = t.chance(0.5)
    channels = t.dim("channels", t.random.choice((1, 2, 4, 8)) * (1 if back else r * r))
    side = [t.dim(role, t.random.choice((4, 8, 12, 16)) * (r if back else 1)) for role in ("height", "width")]
    x = t.input("image", (t.dim("batch", t.random.choice((2, 4, 8))), channels, *side))
    name, cls = ("pixel_unshuffle", "PixelUnshuffle") if back else ("pixel_shuffle", "PixelShuffle")
    c, h, w = x.shape[1:]
    shape = (x.shape[0], c * r * r, h // r, w // r) if back else (x.shape[0], c // (r * r), h * r, w * r)
    t.mark(name, factor=r)
    t.say("a pixel shuffle")
    factor = t.option(t.pick("factor", "upscale_factor", "r", "scale"), r, where="init")
    if t.style.spelling == "module" or t.chance(0.5):
        key = "downscale_factor" if back else "upscale_factor"
        call = f"{t.module('Upsample', cls, [(key, factor)])}({x})"
    else:
        shown = factor if factor.isdigit() else t.store(factor)
        call = f"{t.prefix()}.{name}({x}, {shown})"
    _finish(t, t.step(call, shape), True)


def bags(t: Draft) -> None:
    """Drafts rows of a table, brought together for each bag of indices."""
    vocab, width = t.dim("vocab", t.random.choice((100, 1000, 5000))), t.dim("features", t.random.choice((16, 64, 100)))
    bag = t.input(
        "index", (t.dim("batch", t.random.choice((32, 64, 256))), t.dim("count", t.random.choice((4, 10, 20)))),
        "int", bound=vocab,
    )  # fmt: skip
    mode = t.pick("mean", "mean", "sum", "max")
    given = [("num_embeddings", t.argument(vocab)), ("embedding_dim", t.argument(width))]
    t.mark("embedding_bag", mode=mode)
    t.say("an embedding bag")
    layer = t.module("Embedding", "EmbeddingBag", [*given, ("max_norm", None), ("mode", t.number(mode))])
    _finish(t, t.named(t.step(f"{layer}({bag})", (bag.shape[0], width.value))))


def added_rows(t: Draft) -> None:
    """Drafts rows added at the positions of an index."""
    x, lead, width = _rows(t, 8, 256)
    count = t.dim("classes", t.random.choice((10, 32, 100, 256)))
    index = t.input("index", (lead,), "int", bound=count)
    t.mark("index_add")
    t.say("a sum by segments")
    held = t.store(t.argument(count, always=True))
    zeros = t.pick(f"torch.zeros({held}, {x}.shape[1], device={x}.device)", f"{x}.new_zeros({held}, {x}.size(1))")
    if t.chance(0.5):
        text = t.pick(f"{zeros}.index_add(0, {index}, {x})", f"torch.index_add({zeros}, 0, {index}, {x})")
    else:
        spread = t.pick(f"{index}.unsqueeze(1).expand_as({x})", f"{index}[:, None].expand(-1, {x}.shape[1])")
        text = f"{zeros}.scatter_add(0, {spread}, {x})"
    _finish(t, t.step(text, (count.value, width.value)))


def distances(t: Draft) -> None:
    """Drafts distances between all rows of two inputs."""
    x, _, width = _rows(t, 8, 128)
    other = t.input("other", (t.dim("rows", t.random.choice((16, 64, 100, 256))), width))
    p = t.random.choice((2.0, 2.0, 1.0))
    tail = "" if p == 2.0 and t.chance(0.7) else f", p={p}"
    t.mark("cdist", p=p)
    t.say("distances of all pairs")
    _finish(t, t.step(f"torch.cdist({x}, {other}{tail})", (x.shape[0], other.shape[0]), flops=3.0 * x.elements))


def likelihoods(t: Draft) -> None:
    """Drafts negative log-likelihoods of counts."""
    x, *shape = _rows(t)
    reduction = t.pick("mean", "mean", "sum", "none")
    tail = "" if reduction == "mean" and t.chance(0.6) else f", reduction={t.number(reduction)}"
    result = x.shape if reduction == "none" else ()
    target = t.input("targets", shape, "rand")
    log = "" if t.chance(0.6) else ", log_input=True"
    t.mark("poisson_nll_loss", reduction=reduction)
    t.say("a Poisson likelihood")
    t.finish(t.step(f"{t.prefix()}.poisson_nll_loss({x}, {target}{log}{tail})", result))


def odd_pooling(t: Draft) -> None:
    """Drafts pooling whose windows reach over the edge, or count without padding."""
    x = pooling.pool_input(t, t.random.choice((1, 2, 2)), low=9)
    rank = x.rank - 2
    kernel, stride = t.random.choice((2, 3, 3)), t.random.choice((2, 2, 3))
    padding = t.random.choice((0, 1)) if kernel == 3 else 0
    ceil, kind = t.chance(0.6), t.pick("avg", "avg", "max")
    options: list[tuple[str, str | None]] = [
        ("kernel_size", str(kernel)),
        ("stride", str(stride)),
        ("padding", str(padding)),
    ]
    inside = kind == "avg" and (not ceil or t.chance(0.5))
    options += [("by_name", None)] + [("ceil_mode", "True")] * ceil + [("count_include_pad", "False")] * inside
    shape = []
    for extent in x.shape[2:]:
        over = extent + 2 * padding - kernel
        out = (-(-over // stride) if ceil else over // stride) + 1
        shape.append(out - 1 if ceil and (out - 1) * stride >= extent + padding else out)
    given = {name: value for name, value in options if value is not None}
    t.mark(f"{kind}_pool{rank}d", **given)
    t.say("pooling over the edge")
    cls = f"{kind.title()}Pool{rank}d"
    if t.chance(0.6):
        call = f"{t.module('AvgPool' if kind == 'avg' else 'MaxPool', cls, options)}({x})"
    else:
        call = f"{t.prefix()}.{kind}_pool{rank}d({x}, {', '.join(f'{k}={v}' for k, v in given.items())})"
    _finish(t, t.step(call, (*x.shape[:2], *shape), "pool"), True)


def edge_convolution(t: Draft) -> None:
    """Drafts a convolution that pads otherwise than with zeros."""
    rank = t.random.choice((1, 2, 2))
    x, inside = image_input(t, rank, (4, 8, 16), sizes.log_uniform(t.random, 1e5, 2e6))
    outside = t.dim("out_channels", t.random.choice((8, 16, 32)))
    kernel, mode = t.random.choice((3, 3, 5)), t.pick("circular", "reflect", "replicate")
    t.mark(f"conv{rank}d", padding_mode=mode)
    t.say(f"a convolution with {mode} padding")
    given: list[tuple[str, str | None]] = [("in_channels", t.argument(inside)), ("out_channels", t.argument(outside))]
    given.append(("kernel_size", str(kernel)))
    shape = (x.shape[0], outside.value, *x.shape[2:])
    if t.chance(0.6):
        padded = [*given, ("stride", None), ("padding", str(kernel // 2)), ("padding_mode", t.number(mode))]
        h = t.step(f"{t.module('Conv', f'Conv{rank}d', padded)}({x})", shape, "conv")
    else:
        layer = t.module("Conv", f"Conv{rank}d", given)
        pads = ", ".join([str(kernel // 2)] * (2 * rank))
        h = t.step(f"{layer}({t.prefix()}.pad({x}, ({pads}), mode={t.number(mode)}))", shape, "conv")
    _finish(t, unary.apply(t, h, main_activation(t)) if t.chance(0.5) else h, True)


def sloped(t: Draft) -> None:
    """Drafts a PReLU, with one slope or one a channel, behind a layer or alone."""
    image = t.chance(0.5)
    if image:
        x, channels = image_input(t, 2, (8, 16, 32), sizes.log_uniform(t.random, 1e5, 4e6))
    else:
        x, _, channels = _rows(t)
        x = linear(t, x, channels, channels) if t.chance(0.5) else x
    each = t.chance(0.6)
    given = [("num_parameters", t.argument(channels) if each else None)]
    given += [("init", t.pick("0.1", "0.2", "0.3"))] if t.chance(0.3) else []
    t.mark("prelu", each=int(each))
    t.say("a PReLU")
    layer = t.module("Activation", "PReLU", given)
    _finish(t, t.step(f"{layer}({x})", x.shape, "activation"), image)


def plain_norm(t: Draft) -> None:
    """Drafts a layer norm without bias, or without weights."""
    x, width = _row_input_of_rank(t)
    shown = t.argument(width)
    kind = t.pick("bias", "affine", "function")
    t.mark("layer_norm", without=kind)
    t.say("layer normalization")
    if kind == "function":
        call = f"{t.prefix()}.layer_norm({x}, ({x}.shape[-1],))"
    else:
        option = ("bias", "False") if kind == "bias" else ("elementwise_affine", "False")
        call = f"{t.module('LayerNorm', 'LayerNorm', [('normalized_shape', shown), ('eps', None), option])}({x})"
    _finish(t, t.step(call, x.shape, "norm"))


def _row_input_of_rank(t: Draft) -> tuple[DraftTensor, Dim]:
    if t.chance(0.5):
        x, _, width = _rows(t)
        return x, width
    width = t.dim("features", t.random.choice((32, 64, 100, 256)))
    lead = (t.dim("batch", t.random.choice((2, 4, 8))), t.dim("seq", t.random.choice((16, 64, 100))))
    return t.input("x", (*lead, width)), width


def masked_attention(t: Draft) -> None:
    """Drafts attention with a mask that is given or made."""
    batch, length = t.dim("batch", t.random.choice((2, 4, 8))), t.dim("seq", t.random.choice((32, 64, 100)))
    width = t.dim("head_dim", t.random.choice((16, 32, 64)))
    q, k, v = (t.keep(t.input(role, (batch, length, width), "randn")) for role in "qkv")
    t.mark("attention", mask=1)
    t.say("attention under a mask")
    shape = (q.shape[0], q.shape[1], q.shape[1])
    turned = t.pick(f"{k}.transpose(1, 2)", f"{k}.transpose(-2, -1)", f"{k}.mT")
    dot = t.pick(f"torch.bmm({q}, {turned})", f"torch.matmul({q}, {turned})", f"({q} @ {turned})")
    scale = t.pick(f" / ({q}.size(-1) ** 0.5)", f" * {q}.shape[-1] ** -0.5", " * 0.125", "")
    scores = t.named(t.step(f"{dot}{scale}", shape, "scores", flops=2.0 * q.elements * length.value))
    low = t.pick("-1e9", "float('-inf')", "-1e4")
    if t.chance(0.5):
        mask = t.input("mask", (batch, length, length), "bool")
        text = t.pick(f"{scores}.masked_fill(~{mask}, -1e9)", f"{scores}.masked_fill({mask}, -1e4)")
    else:
        ones = t.pick(
            f"torch.ones({scores}.size(-2), {scores}.size(-1), dtype=torch.bool, device={scores}.device).triu(1)",
            f"torch.triu(torch.ones({scores}.shape[1], {scores}.shape[2], device={scores}.device), diagonal=1).bool()",
        )
        text = f"{scores}.masked_fill({ones}, {low})"
    weights = softmaxes.softmax(t, t.named(t.step(text, shape, "mask")), 2)
    t.finish(t.step(t.pick(f"torch.bmm({weights}, {v})", f"torch.matmul({weights}, {v})"), q.shape))


def bilinear_form(t: Draft) -> None:
    """Drafts a bilinear form of two inputs, one number per row."""
    x, lead, width = _rows(t, 8, 128)
    y = t.input("other", (lead, width))
    w = t.parameter("weight", (width, width), "torch.randn({}) * 0.05")
    t.mark("bilinear_form")
    t.say("a bilinear form")
    text = t.pick(
        f"({x} @ {w} * {y}).sum(dim=-1)",
        f"(({x} @ {w}) * {y}).sum(dim=1)",
        f"torch.einsum('bi,ij,bj->b', {x}, {w}, {y})",
        f"torch.sum(torch.matmul({x}, {w}) * {y}, dim=1)",
    )
    t.finish(t.step(text, x.shape[:1], "reduction", flops=2.0 * x.elements * width.value))


def turned_scan(t: Draft) -> None:
    """Drafts a reversed cumulative sum along any dimension."""
    shape = [t.dim("batch", t.random.choice((4, 8, 16))), t.dim("extent", t.random.choice((16, 64, 100)))]
    shape += [t.dim("extent", t.random.choice((8, 32, 50)))] if t.chance(0.6) else []
    x = t.input("x", shape)
    axis = t.random.randrange(1, x.rank)
    t.mark("reverse_cumsum", dim=f"{axis}of{x.rank}")
    t.say("a sum from behind")
    inner = t.pick(f"{x}.flip({axis})", f"torch.flip({x}, dims=[{axis}])", f"torch.flip({x}, [{axis}])")
    text = f"torch.cumsum({inner}, dim={axis})"
    _finish(t, t.step(t.pick(f"{text}.flip({axis})", f"torch.flip({text}, dims=[{axis}])"), x.shape))


def directions(t: Draft) -> None:
    """Drafts normalised rows and their cosine similarity to others."""
    x, lead, width = _rows(t)
    t.mark("normalize")
    t.say("unit rows")
    dim = t.pick("dim=1", "dim=-1", "p=2, dim=1")
    h = t.step(f"{t.prefix()}.normalize({x}, {dim})", x.shape, "norm")
    kind = t.random.random()
    if kind < 0.3:
        return _finish(t, h)
    if kind < 0.65:
        w = t.parameter("weight", (t.dim("classes", t.random.choice((10, 64, 100))), width))
        scale = t.option("scale", t.random.choice((10.0, 16.0, 30.0)), where="forward")
        return t.finish(t.step(f"{scale} * {t.prefix()}.linear({h}, {t.prefix()}.normalize({w}, dim=1))",
                               (x.shape[0], w.shape[0]), "linear"))  # fmt: skip
    y = t.input("other", (lead, width))
    return t.finish(t.step(f"({h} * {t.prefix()}.normalize({y}, dim=1)).sum(dim=1)", x.shape[:1], "reduction"))


def picked(t: Draft) -> None:
    """Drafts values that an index of the same rank picks, or rows of a table of weights."""
    x, lead, width = _rows(t)
    if t.chance(0.5):
        count = t.dim("count", t.random.choice((4, 8, 16)))
        index = t.input("index", (lead, count), "int", bound=width)
        t.mark("gather", dim="1of2")
        t.say("values by index")
        text = t.pick(f"torch.gather({x}, 1, {index})", f"{x}.gather(1, {index})", f"torch.gather({x}, -1, {index})")
        return _finish(t, t.step(text, (x.shape[0], count.value)))
    classes = t.dim("classes", t.random.choice((10, 32, 100)))
    index = t.input("index", (lead,), "int", bound=classes)
    w = t.parameter("weight", (classes, width))
    t.mark("rows_by_class")
    t.say("rows by class")
    text = t.pick(f"{w}[{index}]", f"{t.prefix()}.embedding({index}, {w})", f"torch.index_select({w}, 0, {index})")
    return t.finish(t.step(t.pick(f"{x} + {text}", f"{x} * {text}"), x.shape))


def group_affine(t: Draft) -> None:
    """Drafts a group norm with a scale and a shift of its own a channel."""
    x, channels = image_input(t, 2, (8, 16, 32), sizes.log_uniform(t.random, 1e5, 2e6))
    h = norms.group_norm(t, x, channels, t.random.choice((2, 4)))
    scale, shift = (t.parameter(role, (channels, 1, 1)) for role in ("scale", "bias"))
    t.mark("affine")
    t.say("a channel's own scale and shift")
    _finish(t, t.step(f"{h.atom} * {scale} + {shift}", x.shape), True)


def families() -> list[Family]:
    """Returns all rare families."""
    makers: list[Callable[[Draft], None]] = [
        pixel_shuffled, bags, added_rows, distances, likelihoods, odd_pooling, edge_convolution, sloped, plain_norm,
        masked_attention, bilinear_form, turned_scan, directions, picked, group_affine,
    ]  # fmt: skip
    return rows("rare", WEIGHT, [(f"rare_{make.__name__}", make) for make in makers])
