"""Makes the outputs of null kernels that need no further run of the reference.

A task that a null kernel passes everywhere does not test a kernel. Each function maps one draw to named outputs; a name
stands for one fixed kernel, the same at every size. A null that does not apply (no input of the output's shape, an axis
of extent 1) returns no outputs. Nulls that run the reference again are in `tasks.shortcuts`.

The list follows KernelBench's issue threads and robust-kbench's filters, with identity, rank-1, sampled and truncated
nulls added. numpy only; nothing here compares or decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Arrays = tuple[np.ndarray, ...]

MAX_SOURCES = 8
"""Inputs and weights that are tried as factors or as passed-through values."""
FEWEST = 16
"""Fewest elements of an output that the sampled null applies to; a smaller output would be its own sample."""
SHARE = 8
"""The sampled null has one right output element in this many."""


@dataclass(frozen=True)
class Draw:
    """One call: input tensors, weights, and the reference's outputs in its own dtype."""

    inputs: Arrays
    weights: Arrays
    outputs: Arrays


def outputs_without_work(draw: Draw, other: Draw, seed: int) -> dict[str, Arrays]:
    """Returns every null that applies, by name; shapes and dtypes are those of `draw.outputs`.

    `other` is an earlier call of the same model at the same size on other inputs; a kernel may have cached it.
    """
    found = {"zeros": zeros(draw), "ones": ones(draw)}
    if len(other.outputs) == len(draw.outputs):
        found["constant"] = constant(draw, other)
    if [o.shape for o in other.outputs] == [o.shape for o in draw.outputs]:
        found["replay"] = tuple(_as(o, want) for o, want in zip(other.outputs, draw.outputs, strict=True))
    for many in (identity(draw), axis_means(draw), rank_ones(draw), truncated(draw), sampled(draw, seed)):
        found.update(many)
    return found


def zeros(draw: Draw) -> Arrays:
    """Returns zeros."""
    return tuple(np.zeros_like(o) for o in draw.outputs)


def ones(draw: Draw) -> Arrays:
    """Returns ones."""
    return tuple(np.ones_like(o) for o in draw.outputs)


def constant(draw: Draw, other: Draw) -> Arrays:
    """Returns each output filled with the mean of that output in another call."""
    return tuple(
        _as(np.full(want.shape, _mean(seen)), want) for seen, want in zip(other.outputs, draw.outputs, strict=True)
    )


def identity(draw: Draw) -> dict[str, Arrays]:
    """Returns an input unchanged, for each input that has the shape of every output."""
    return {
        f"identity-input{i}": tuple(_as(given, want) for want in draw.outputs)
        for i, given in enumerate(draw.inputs[:MAX_SOURCES])
        if all(given.shape == want.shape for want in draw.outputs)
    }


def axis_means(draw: Draw) -> dict[str, Arrays]:
    """Returns an input's mean over one axis, spread over the output: mean of V for attention.

    Applies only where the mean is broadcast; a mean of the output's own size may be the task itself.
    """
    found: dict[str, Arrays] = {}
    for i, given in enumerate(draw.inputs[:MAX_SOURCES]):
        if given.dtype.kind != "f" or not given.size:
            continue
        for axis in range(given.ndim):
            for keep in (True, False):
                if given.shape[axis] < 2:
                    continue
                mean = given.mean(axis=axis, keepdims=keep, dtype=np.float64)
                if all(_spreads(mean.shape, want.shape) for want in draw.outputs):
                    name = f"mean-input{i}-axis{axis}" + ("" if keep else "-squeezed")
                    found[name] = tuple(_as(np.broadcast_to(mean, want.shape), want) for want in draw.outputs)
    return found


def rank_ones(draw: Draw) -> dict[str, Arrays]:
    """Returns row sums of one factor times column sums of another, over the summed extent, for a single output.

    For positive factors this is close to their product. Tries inputs and weights, each as it is and transposed.
    """
    if len(draw.outputs) != 1 or draw.outputs[0].ndim < 2:
        return {}
    want = draw.outputs[0]
    sources = [
        (name, _transposed(array, turned))
        for name, array in _factors(draw)
        for turned in (False, True)
        for name in [name + ("T" if turned else "")]
    ]
    found: dict[str, Arrays] = {}
    for left_name, left in sources:
        for right_name, right in sources:
            extent = left.shape[-1]
            if left_name.rstrip("T") == right_name.rstrip("T") or extent != right.shape[-2] or extent < 2:
                continue
            shape = np.broadcast_shapes(left.shape[:-2], right.shape[:-2]) if _joins(left, right) else None
            if shape is None or (*shape, left.shape[-2], right.shape[-1]) != want.shape:
                continue
            rows, columns = left.sum(axis=-1, dtype=np.float64), right.sum(axis=-2, dtype=np.float64)
            product = rows[..., :, None] * columns[..., None, :] / extent
            found[f"rank1-{left_name}-{right_name}"] = (_as(product, want),)
    return found


def truncated(draw: Draw) -> dict[str, Arrays]:
    """Returns the right outputs in the first half along one axis, zeros in the rest."""
    found: dict[str, Arrays] = {}
    for axis in range(min(o.ndim for o in draw.outputs)):
        if all(o.shape[axis] >= 2 for o in draw.outputs):
            halves = []
            for output in draw.outputs:
                half = output.copy()
                half[(slice(None),) * axis + (slice(output.shape[axis] // 2, None),)] = 0
                halves.append(half)
            found[f"truncated-output-axis{axis}"] = tuple(halves)
    return found


def sampled(draw: Draw, seed: int) -> dict[str, Arrays]:
    """Returns outputs with one right element in eight; the others have the mean of these."""
    if any(o.size < FEWEST for o in draw.outputs):
        return {}
    rng = np.random.default_rng(seed)
    filled = []
    for output in draw.outputs:
        known = rng.random(output.shape) < 1 / SHARE
        known.flat[0] = True
        filled.append(np.where(known, output, _as(np.full(output.shape, _mean(output[known])), output)))
    return {"sampled-output": tuple(filled)}


def _mean(values: np.ndarray) -> float | complex:
    """Returns the mean of the finite values; 0 where there are none."""
    wide = values.astype(np.complex128 if values.dtype.kind == "c" else np.float64).reshape(-1)
    finite = wide[np.isfinite(wide)]
    return finite.mean() if finite.size else 0.0  # type: ignore[no-any-return]


def _as(values: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Returns the values in another array's dtype: rounded for integers, compared with 0.5 for booleans."""
    with np.errstate(all="ignore"):
        if values.dtype.kind == "c" and like.dtype.kind != "c":
            values = values.real
        if like.dtype.kind == "b":
            return values.astype(np.float64) > 0.5
        if like.dtype.kind in "iu" and values.dtype.kind == "f":
            limits = np.iinfo(like.dtype)
            return np.clip(np.rint(np.nan_to_num(values)), limits.min, limits.max).astype(like.dtype)
        return values.astype(like.dtype)


def _spreads(shape: tuple[int, ...], onto: tuple[int, ...]) -> bool:
    """Tells whether an array of one shape broadcasts to another with repetition."""
    if len(shape) > len(onto) or np.prod(shape, dtype=np.int64) >= np.prod(onto, dtype=np.int64):
        return False
    tail = onto[len(onto) - len(shape) :]
    return all(a in (1, b) for a, b in zip(shape, tail, strict=True))


def _factors(draw: Draw) -> list[tuple[str, np.ndarray]]:
    """Returns inputs and weights of at least two dimensions."""
    named = [(f"input{i}", a) for i, a in enumerate(draw.inputs)]
    named += [(f"weight{i}", a) for i, a in enumerate(draw.weights)]
    return [(name, a) for name, a in named if a.ndim >= 2 and a.dtype.kind == "f"][:MAX_SOURCES]


def _transposed(array: np.ndarray, turned: bool) -> np.ndarray:
    return np.swapaxes(array, -1, -2) if turned else array


def _joins(left: np.ndarray, right: np.ndarray) -> bool:
    """Tells whether the leading dimensions of two factors broadcast."""
    pairs = zip(reversed(left.shape[:-2]), reversed(right.shape[:-2]), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)
