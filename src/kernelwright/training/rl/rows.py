"""Flat rows of rollouts, one row a turn: reading them, and sums over groups of them, for advantages and filters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelwright.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Array = Any
"""A one-dimensional list, numpy array or torch tensor."""


_EXACT = {bool: "b", int: "iu", float: "f"}
"""The kinds of numpy dtypes that hold a Python type without conversion."""
_NUMBERS = (Real, np.bool_)
_LAST_TURN = 2**62
"""The bound on turn numbers: differences of turns then fit in 64 bits."""


class ColumnError(ConfigError, ValueError):
    """A column holds values of a wrong type."""


@dataclass(frozen=True)
class TurnRows:
    """Rows of turns as numpy arrays of one length. Groups and trajectories are numbered from 0.

    Example: two rollouts of one task, the second stopped after a turn, its missing turn padded:
    `TurnRows(score=[0, 1.5, 0.3, nan], group=[0, 0, 0, 0], trajectory=[0, 0, 1, 1], turn=[0, 1, 0, 1],
    real=[True, True, True, False])`.
    """

    score: NDArray[np.float64]
    """NaN for no score, after a harness error."""
    group: NDArray[np.int64]
    trajectory: NDArray[np.int64]
    """Unique over all groups."""
    turn: NDArray[np.int64]
    real: NDArray[np.bool_]
    """False for padding. Padding has score NaN and 0 in the other columns."""


def read_rows(score: Array, group: Array, trajectory: Array, turn: Array, mask: Array | None) -> TurnRows:
    """Converts a caller's columns to rows. Scores may be None; trajectories must be unique within their group only.

    Padding may hold anything. Raises `ConfigError` for different lengths, infinite scores and repeated turns, and its
    subclass `ColumnError` for values of a wrong type.
    """
    names = {"score": score, "group": group, "trajectory": trajectory, "turn": turn}
    columns = {name: as_numpy(column) for name, column in names.items()}
    length = len(columns["score"])
    real = np.ones(length, dtype=bool) if mask is None else flags(mask, "mask")
    for name, column in [*columns.items(), ("mask", real)]:
        if column.shape != (length,):
            raise ConfigError(f"{length} scores of rows and {name} of shape {column.shape}")
    held = {name: column[real] for name, column in columns.items()}
    values = scores(held["score"])
    _check_labelling(held)
    if np.isinf(values).any():
        raise ConfigError(f"the score of row {int(np.flatnonzero(real)[np.isinf(values)][0])} is infinite")
    groups = numbered(held["group"])
    trajectories = numbered(groups * (length + 1) + numbered(held["trajectory"]))
    turns = np.asarray([int(number) for number in held["turn"].tolist()], dtype=np.int64)
    _check_single(trajectories, turns)
    padded = [_padded(numbers, real) for numbers in (groups, trajectories, turns)]
    whole = np.full(length, np.nan)
    whole[real] = values
    return TurnRows(whole, padded[0], padded[1], padded[2], real)


def _padded(numbers: NDArray[np.int64], real: NDArray[np.bool_]) -> NDArray[np.int64]:
    whole = np.zeros(len(real), dtype=np.int64)
    whole[real] = numbers
    return whole


def _check_labelling(held: dict[str, NDArray[Any]]) -> None:
    for name in ("group", "trajectory"):
        labels = held[name].tolist()
        if any(label is None for label in labels):
            raise ColumnError(f"the column {name} holds None", hint="give each row a number or a name")
        if held[name].dtype == object:
            _check_labels(labels, f"the column {name}")
    if not all(_is_whole(number) for number in held["turn"].tolist()):
        raise ColumnError("the column turn holds what is no whole number", hint="give the turns' numbers")


def _is_whole(number: Any) -> bool:
    """Tells whether a value is a valid turn number; NaN and infinity fail the bound."""
    real = isinstance(number, Real) and not isinstance(number, bool)
    return real and bool(abs(number) < _LAST_TURN) and bool(number == math.floor(number))


def _check_single(trajectory: NDArray[np.int64], turn: NDArray[np.int64]) -> None:
    pairs = np.stack([trajectory, turn], axis=1)
    if len(np.unique(pairs, axis=0)) != len(pairs):
        raise ConfigError(
            "a turn of a trajectory is there twice", hint="give each rollout of a group a number of its own"
        )


def as_numpy(column: Array) -> NDArray[Any]:
    """Converts a column to a one-dimensional numpy array. Raises `ConfigError` for other shapes.

    The array has dtype object if numpy would convert a list's values: integers beyond 64 bits to floats, or numbers
    next to text to text.
    """
    if isinstance(column, Sequence) and not isinstance(column, (str, bytes)):
        values = [_plain(value) for value in column]
        kinds = {type(value) for value in values}
        array = np.asarray(values) if not values or (len(kinds) == 1 and kinds <= _EXACT.keys()) else None
        if array is not None and (not values or array.dtype.kind in _EXACT[kinds.pop()]):
            return array
        return np.fromiter(values, dtype=object, count=len(values))
    array = unwrapped(column)
    if array.ndim != 1:
        raise ConfigError(f"a column of shape {array.shape}", hint="give flat rows, one a turn")
    return array


def _plain(value: Any) -> Any:
    """Converts a numpy or torch scalar to a Python value, so that equal scalars have the same type."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def unwrapped(column: Array) -> NDArray[Any]:
    """Converts to a numpy array; floating-point tensors become float64, since numpy has no bfloat16."""
    if hasattr(column, "detach"):
        column = column.detach().cpu()
        column = (column.double() if column.is_floating_point() else column).numpy()
    return np.asarray(column)


def scores(column: Array, name: str = "score") -> NDArray[np.float64]:
    """Converts scores to float64, None to NaN. Raises `ColumnError` for values that are not numbers, text included."""
    values = as_numpy(column)
    if values.dtype.kind not in "biuf" and not all(isinstance(v, _NUMBERS) or v is None for v in values.tolist()):
        raise ColumnError(f"the column {name} holds what is no number", hint=f"give numbers, None for no {name}")
    try:
        return values.astype(np.float64)
    except OverflowError as error:
        raise ColumnError("a number is beyond float64", hint="scale the numbers") from error


def flags(column: Array, name: str) -> NDArray[np.bool_]:
    """Converts booleans, 1 and 0 to a boolean array; None is false. Raises `ColumnError` for other values.

    Python's truth value would make text such as "false" and any other number true.
    """
    values = as_numpy(column)
    if values.dtype.kind != "b" and not all(
        v is None or (isinstance(v, _NUMBERS) and v in (0, 1)) for v in values.tolist()
    ):
        raise ColumnError(
            f"the column {name} holds what is neither true nor false", hint="give true or false, or 1 or 0"
        )
    return values.astype(bool)


def numbered(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Numbers labels of any type from 0. Two labels are the same if they are equal and of the same Python type."""
    if labels.dtype.kind in "biuf":
        return np.unique(labels, return_inverse=True)[1].reshape(-1).astype(np.int64)
    values = [_plain(label) for label in labels.tolist()]
    _check_labels(values, "a column of labels")
    numbers: dict[Any, int] = {}
    # all NaNs count as one label, as in numpy's unique
    keys = [(type(v), None if isinstance(v, float) and math.isnan(v) else v) for v in values]
    return np.asarray([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def _check_labels(labels: Sequence[Any], where: str) -> None:
    """Raises `ColumnError` for unhashable labels, and for tuples, which numpy would turn into columns."""
    for label in labels:
        try:
            hash(label)
        except TypeError:
            pass
        else:
            if not isinstance(label, tuple):
                continue
        raise ColumnError(f"{where} holds a {type(label).__name__}", hint="give each row a number or a name")


def sums(values: NDArray[np.float64], key: NDArray[np.int64], where: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Returns for each row the sum of `values` over the rows with the same key for which `where` holds."""
    total = np.bincount(key, weights=np.where(where, values, 0.0), minlength=1)
    return np.asarray(total[key], dtype=np.float64)


def counts(key: NDArray[np.int64], where: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Returns for each row the number of rows with the same key for which `where` holds."""
    return sums(np.ones(len(key)), key, where)


def like(result: NDArray[Any], column: Array) -> Array:
    """Converts a result to the caller's kind: a tensor on the same device for a tensor, else the numpy array.

    Raises `ConfigError` if a number is out of range for the caller's dtype.
    """
    if not hasattr(column, "detach"):
        return _representable(result, np.isfinite(result))
    import torch

    dtype = column.dtype if column.is_floating_point() and result.dtype != bool else None
    tensor = torch.from_numpy(result).to(device=column.device, dtype=dtype)
    return _representable(tensor, tensor.isfinite())


def _representable(result: Any, finite: Any) -> Any:
    if not finite.all():
        raise ConfigError(
            f"a result is beyond the range of {result.dtype}", hint="scale the scores, or widen their type"
        )
    return result
