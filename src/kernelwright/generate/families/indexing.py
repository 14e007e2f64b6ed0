"""Indexing, reordering and resizing: gather, embedding, roll, flip, transposes, concatenation, padding, upsampling."""

from __future__ import annotations

import math
from collections.abc import Callable

from kernelwright.generate import sizes
from kernelwright.generate.draft import Draft
from kernelwright.generate.families.convolution import INPUT_ROLE, SPATIAL
from kernelwright.generate.families.pooling import pool_input
from kernelwright.generate.families.unary import memory_bound_input
from kernelwright.generate.registry import Family, rows


def _total(t: Draft) -> float:
    return sizes.log_uniform(t.random, 5e5, 6e7)


def embedding(t: Draft) -> None:
    """Drafts rows of a learned table by number."""
    vocab, width = t.random.choice((1000, 5000, 10000, 32000, 50257)), t.random.choice((64, 128, 256, 512, 768))
    count, features = t.dim("vocab", vocab), t.dim("features", width)
    lead = t.dim("batch", t.random.choice((4, 16, 32, 64, 128)))
    dims = (lead, t.dim("seq", t.random.choice((32, 128, 200, 512)))) if t.chance(0.8) else (lead,)
    ids = t.input("index", dims, "int", bound=count)
    t.mark("embedding", rank=ids.rank)
    t.say(t.pick("an embedding lookup", "a table lookup", "token embeddings"))
    shape = (*ids.shape, width)
    if t.chance(0.65):
        layer = t.module(
            "Embedding", "Embedding", [("num_embeddings", t.argument(count)), ("embedding_dim", t.argument(features))]
        )
        t.finish(t.step(f"{layer}({ids})", shape, dtype="float32"))
        return
    table = t.parameter("weight", (count, features))
    t.finish(t.step(t.pick(f"{t.prefix()}.embedding({ids}, {table})", f"{table}[{ids}]"), shape, dtype="float32"))


def gather(t: Draft) -> None:
    """Drafts torch.gather along a dimension."""
    rows_, cols = sizes.shape(t.random, 2, _total(t))
    dims = [t.dim("rows", rows_), t.dim("cols", cols)]
    axis = t.random.choice((1, 1, 0, -1))
    picked = t.dim("count", max(1, min(cols if axis else rows_, t.random.choice((16, 64, 128, 1024)))))
    x = t.input("x", dims)
    shape = (dims[0], picked) if axis else (picked, dims[1])
    index = t.input("index", shape, "int", bound=dims[1] if axis else dims[0])
    t.mark("gather", dim=axis)
    t.say("a gather by index")
    dim = t.option("dim", axis, default=1)
    forms = (
        f"torch.gather({x}, {dim}, {index})",
        f"{x}.gather({dim}, {index})",
        f"torch.gather({x}, dim={dim}, index={index})",
    )
    t.finish(t.step(t.pick(*forms), index.shape, dtype=t.dtype))


def select_rows(t: Draft) -> None:
    """Drafts whole rows or columns by number."""
    rank = t.random.choice((2, 2, 3))
    x = memory_bound_input(t, rank, total=_total(t))
    axis = t.random.choice((0, 0, 1, rank - 1))
    count = t.dim(
        "count",
        min(t.random.choice((16, 100, 256, 1000)), max(1, sizes.LARGEST_TENSOR // (x.elements // x.shape[axis]))),
    )
    index = t.input("index", (count,), "int", bound=t.inputs[0].shape[axis])
    t.mark("index_select", dim=f"{axis}of{rank}")
    t.say(t.pick("a selection of rows", "index select", "taking slices by number"))
    dim = t.option("dim", axis, default=0)
    forms = [
        f"torch.index_select({x}, {dim}, {index})",
        f"{x}.index_select({dim}, {index})",
        f"torch.index_select({x}, dim={dim}, index={index})",
    ]
    if axis == 0:
        forms += [f"{x}[{index}]"]
    elif axis == 1:
        forms += [f"{x}[:, {index}]"]
    shape = tuple(count.value if i == axis else e for i, e in enumerate(x.shape))
    t.finish(t.step(t.pick(*forms), shape))


def roll(t: Draft) -> None:
    """Drafts cyclic shifts."""
    rank = t.random.choice((1, 2, 2, 3, 4))
    x = memory_bound_input(t, rank, total=_total(t))
    axis = t.random.randrange(rank)
    shift = t.random.choice((1, -1, 2, 3, 7, -5, 16))
    t.mark("roll", dim=f"{axis}of{rank}")
    t.say("a cyclic shift")
    s, d = t.option(t.pick("shift", "shifts", "offset"), shift, default=1), t.option("dim", axis, default=0)
    t.finish(
        t.step(
            t.pick(f"torch.roll({x}, shifts={s}, dims={d})", f"torch.roll({x}, {s}, {d})", f"{x}.roll({s}, dims={d})"),
            x.shape,
        )
    )


def flip(t: Draft) -> None:
    """Drafts reversal along one or two dimensions."""
    rank = t.random.choice((1, 2, 2, 3, 4))
    x = memory_bound_input(t, rank, total=_total(t))
    axis = t.random.randrange(rank)
    t.mark("flip", dim=f"{axis}of{rank}")
    t.say("a reversal")
    d = t.option("dim", axis, default=0)
    forms = (
        f"torch.flip({x}, dims=[{d}])",
        f"torch.flip({x}, [{d}])",
        f"{x}.flip({d})",
        f"torch.flip({x}, dims=({d},))",
    )
    t.finish(t.step(t.pick(*forms), x.shape))


def transpose(t: Draft) -> None:
    """Drafts a permuted copy."""
    rank = t.random.choice((2, 2, 3, 3, 4, 4))
    x = memory_bound_input(t, rank, total=_total(t))
    t.say(t.pick("a transposed copy", "a permutation of dimensions", "a change of layout"))
    if rank == 2:
        order: tuple[int, ...] = (1, 0)
        text = t.pick(
            f"{x}.t().contiguous()",
            f"{x}.T.contiguous()",
            f"{x}.transpose(0, 1).contiguous()",
            f"torch.transpose({x}, 0, 1).contiguous()",
        )
    else:
        order_list = list(range(rank))
        while order_list == sorted(order_list):
            t.random.shuffle(order_list)
        order = tuple(order_list)
        shown = ", ".join(map(str, order))
        text = t.pick(f"{x}.permute({shown}).contiguous()", f"torch.permute({x}, ({shown})).contiguous()")
    t.mark("permute", order="".join(map(str, order)))
    t.finish(t.step(text, tuple(x.shape[i] for i in order)))


def concat(t: Draft) -> None:
    """Drafts two or three tensors behind each other."""
    rank = t.random.choice((2, 2, 3, 4))
    x = memory_bound_input(t, rank, total=sizes.log_uniform(t.random, 5e5, 4e7))
    axis = t.random.choice((1, rank - 1, 0, t.random.randrange(rank)))
    others = []
    for role in ("other", "third")[: t.random.choice((1, 1, 2))]:
        extent = t.inputs[0].shape[axis] if t.chance(0.5) else t.dim("count", t.random.choice((3, 16, 33, 64)))
        others.append(t.input(role, [extent if i == axis else e for i, e in enumerate(t.inputs[0].shape)]))
    t.mark("cat", dim=f"{axis}of{rank}", count=1 + len(others))
    t.say(t.pick("a concatenation", "joining tensors along a dimension"))
    shown = ", ".join([str(x), *map(str, others)])
    d = t.option("dim", axis - rank if t.chance(0.3) else axis, default=1)
    shape = tuple(sum(o.shape[i] for o in [x, *others]) if i == axis else e for i, e in enumerate(x.shape))
    t.finish(
        t.step(
            t.pick(f"torch.cat([{shown}], dim={d})", f"torch.cat(({shown}), dim={d})", f"torch.cat([{shown}], {d})"),
            shape,
        )
    )


def stack(t: Draft) -> None:
    """Drafts two tensors along a new dimension."""
    rank = t.random.choice((1, 2, 3))
    x = memory_bound_input(t, rank, total=sizes.log_uniform(t.random, 5e5, 4e7))
    y = t.input("other", t.inputs[0].shape)
    axis = t.random.randrange(rank + 1)
    t.mark("stack", dim=f"{axis}of{rank}")
    t.say("stacking along a new dimension")
    d = t.option("dim", axis, default=0)
    shape = (*x.shape[:axis], 2, *x.shape[axis:])
    t.finish(t.step(t.pick(f"torch.stack([{x}, {y}], dim={d})", f"torch.stack(({x}, {y}), dim={d})"), shape))


def pad(t: Draft) -> None:
    """Drafts a constant or reflected border on the last dimensions."""
    rank = t.random.choice((1, 2, 2, 3))
    x = pool_input(t, rank, 8)
    mode = t.pick("constant", "constant", "constant", "reflect", "replicate")
    amounts = tuple(t.random.choice((0, 1, 1, 2, 3)) for _ in range(2 * rank))
    amounts = amounts if any(amounts) else (1,) * (2 * rank)
    if t.chance(0.5):
        amounts = (t.random.choice((1, 2, 3)),) * (2 * rank)
    t.mark("pad", mode=mode, amounts=amounts, rank=rank)
    t.say(f"{'zero' if mode == 'constant' else mode} padding")
    shape = list(x.shape)
    for i in range(rank):
        shape[-1 - i] += amounts[2 * i] + amounts[2 * i + 1]
    if t.style.spelling == "module":
        cls = {"constant": "ConstantPad", "reflect": "ReflectionPad", "replicate": "ReplicationPad"}[mode]
        shown = t.option("padding", amounts[0] if len(set(amounts)) == 1 else amounts, where="init")
        value = [("value", t.pick("0.0", "0", "1.0", "-1.0"))] if mode == "constant" else []
        layer = t.module("Pad", f"{cls}{rank}d", [("padding", shown), *value])
        t.finish(t.step(f"{layer}({x})", shape))
        return
    shown = t.option("padding", amounts, default=(1,) * (2 * rank))
    options = f", mode={t.number(mode)}" if mode != "constant" or t.chance(0.4) else ""
    if mode == "constant" and t.chance(0.3):
        options += f", value={t.pick('0.0', '1.0', '0.5', '0')}"
    t.finish(t.step(f"{t.prefix()}.pad({x}, {shown}{options})", shape))


def _upsample(rank: int) -> Callable[[Draft], None]:
    def make(t: Draft) -> None:
        shape = sizes.image(
            t.random, rank, sizes.log_uniform(t.random, 3e4, 2e7), t.random.choice((1, 3, 8, 16, 32, 64))
        )
        factor = t.random.choice((2, 2, 2, 3, 4) if rank < 3 else (2, 2, 3))
        while math.prod(shape) * factor**rank > sizes.LARGEST_TENSOR:
            at = 2 if shape[2] > 4 else max(range(2 + rank), key=shape.__getitem__)  # else the loop would not end
            shape[at] = max(4, shape[at] // 2) if at == 2 else shape[at] // 2
        roles = ("batch", t.pick("channels", "in_channels"), *SPATIAL[rank])
        x = t.input(INPUT_ROLE[rank], [t.dim(r, s) for r, s in zip(roles, shape, strict=True)])
        t.mark(f"upsample_nearest{rank}d", factor=factor)
        t.say(t.pick("nearest-neighbour upsampling", f"upsampling by {factor}", "nearest interpolation"))
        grown = (*x.shape[:2], *(e * factor for e in x.shape[2:]))
        mode = t.number("nearest")
        if t.style.spelling == "module" or t.chance(0.4):
            f = t.option("scale_factor", factor, default=2, where="init")
            layer = t.module(
                "Upsample", "Upsample", [("size", None), ("scale_factor", f), ("mode", mode if t.chance(0.7) else None)]
            )
            t.finish(t.step(f"{layer}({x})", grown))
            return
        f = t.option("scale_factor", factor, default=2)
        t.finish(t.step(f"{t.prefix()}.interpolate({x}, scale_factor={f}, mode={mode})", grown))

    return make


def repeat(t: Draft) -> None:
    """Drafts every element several times in a row, or the whole tensor several times."""
    rank = t.random.choice((1, 2, 2, 3))
    x = memory_bound_input(t, rank, total=sizes.log_uniform(t.random, 5e5, 2e7))
    count = t.random.choice((2, 2, 3, 4))
    axis = t.random.randrange(rank)
    n = t.option(t.pick("repeats", "n", "times"), count, default=2)
    if t.chance(0.6):
        t.mark("repeat_interleave", dim=f"{axis}of{rank}")
        t.say("repeating every slice")
        d = t.option("dim", axis, default=0)
        text = t.pick(f"torch.repeat_interleave({x}, {n}, dim={d})", f"{x}.repeat_interleave({n}, dim={d})")
    else:
        t.mark("repeat", dim=f"{axis}of{rank}")
        t.say("tiling")
        text = f"{x}.repeat({', '.join(n if i == axis else '1' for i in range(rank))})"
    t.finish(t.step(text, [e * count if i == axis else e for i, e in enumerate(x.shape)]))


def narrow(t: Draft) -> None:
    """Drafts a slice, made contiguous, often scaled."""
    rank = t.random.choice((2, 2, 3))
    x = memory_bound_input(t, rank, total=_total(t))
    step = t.random.choice((1, 2, 2))
    axis = rank - 1 if t.chance(0.6) else 0
    start = t.random.choice((0, 1)) if x.shape[axis] > 4 else 0
    part = f"{start or ''}:" + (f":{step}" if step > 1 else "")
    if step == 1:
        start, part = 1 if x.shape[axis] > 2 else 0, "1:" if x.shape[axis] > 2 else ":"
    t.mark("slice", dim=f"{axis}of{rank}", start=start, step=step)
    t.say("a slice of the input")
    index = f"[..., {part}]" if axis and t.chance(0.5) else f"[{':, ' * axis}{part}]"
    length = (x.shape[axis] - start + step - 1) // step
    shape = [length if i == axis else e for i, e in enumerate(x.shape)]
    tail = t.pick(".contiguous()", f" * {t.pick('2.0', '0.5', '3')}", ".contiguous()")
    t.finish(t.step(f"{x}{index}{tail}", shape))


def families() -> list[Family]:
    """Returns indexing, layout and resizing families."""
    index: list[tuple[str, Callable[[Draft], None]]] = [
        ("embedding", embedding), ("gather", gather), ("index_select", select_rows), ("roll", roll), ("flip", flip),
        ("slice", narrow),
    ]  # fmt: skip
    layout: list[tuple[str, Callable[[Draft], None]]] = [
        ("transpose_copy", transpose),
        ("concat", concat),
        ("stack", stack),
        ("pad", pad),
        ("repeat", repeat),
    ]
    layout += [(f"upsample{rank}d", _upsample(rank)) for rank in (1, 2, 3)]
    return rows("indexing", 4.0, index) + rows("layout", 4.5, layout)
