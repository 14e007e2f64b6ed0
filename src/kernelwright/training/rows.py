"""Flat rows of rollouts, one row a turn: reading them, and sums over groups of them, for advantages and filters."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelwright.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Array = Any
"""What callers give: a list, a numpy array or a torch tensor, of one dimension."""


class ColumnError(ConfigError, ValueError):
    """A column holds what it cannot."""


@dataclass(frozen=True)
class Rows:
    """Rows of turns as numpy arrays of one length. Groups and trajectories are numbered from 0.

    Example: two rollouts of one task, the second stopped after a turn, its missing turn padded:
    `Rows(score=[0, 1.5, 0.3, nan], group=[0, 0, 0, 0], trajectory=[0, 0, 1, 1], turn=[0, 1, 0, 1],
    real=[True, True, True, False])`.
    """

    score: NDArray[np.float64]
    """NaN where there is none: a harness fault."""
    group: NDArray[np.int64]
    trajectory: NDArray[np.int64]
    """Unique over all groups."""
    turn: NDArray[np.int64]
    real: NDArray[np.bool_]
    """False for padding, which takes part in nothing."""


def read_rows(score: Array, group: Array, trajectory: Array, turn: Array, mask: Array | None) -> Rows:
    """Rows from what a caller has. Scores may be None; trajectories need be unique within their group only.

    Raises `ConfigError` for lengths that differ, infinite scores and a turn that is there twice, and `ColumnError`,
    which is one, for a column that holds what it cannot.
    """
    _check_columns(score, group, trajectory, turn)
    values = scores(score)
    real = np.ones(len(values), dtype=bool) if mask is None else as_numpy(mask).astype(bool)
    names = {"group": group, "trajectory": trajectory, "turn": turn}
    columns = {name: as_numpy(column) for name, column in names.items()}
    for name, column in [*columns.items(), ("mask", real)]:
        if column.shape != values.shape:
            raise ConfigError(f"{len(values)} scores of rows and {name} of shape {column.shape}")
    if np.isinf(values[real]).any():
        raise ConfigError(f"the score of row {int(np.flatnonzero(np.isinf(values) & real)[0])} is infinite")
    groups = numbered(columns["group"])
    pairs = groups * (len(values) + 1) + numbered(columns["trajectory"])
    trajectories = numbered(pairs)
    turns = columns["turn"].astype(np.int64)
    _check_single(trajectories[real], turns[real])
    return Rows(values, groups, trajectories, turns, real)


def _check_columns(score: Array, group: Array, trajectory: Array, turn: Array) -> None:
    if any(not isinstance(value, (Real, np.bool_, type(None))) for value in as_numpy(score).tolist()):
        raise ColumnError("the column score holds what is no number", hint="give numbers, None for no score")
    for name, column in (("group", group), ("trajectory", trajectory)):
        if any(label is None for label in as_numpy(column).tolist()):
            raise ColumnError(f"the column {name} holds None", hint="give each row a number or a name")
    turns = as_numpy(turn)
    whole = turns.dtype.kind in "iu" or (turns.dtype.kind == "f" and bool((turns == np.floor(turns)).all()))
    if not whole:
        raise ColumnError("the column turn holds what is no whole number", hint="give the turns' numbers")


def _check_single(trajectory: NDArray[np.int64], turn: NDArray[np.int64]) -> None:
    pairs = np.stack([trajectory, turn], axis=1)
    if len(np.unique(pairs, axis=0)) != len(pairs):
        raise ConfigError(
            "a turn of a trajectory is there twice", hint="give each rollout of a group a number of its own"
        )


def as_numpy(column: Array) -> NDArray[Any]:
    """A column as a numpy array of one dimension."""
    array = unwrapped(column)
    if array.ndim != 1:
        raise ConfigError(f"a column of shape {array.shape}", hint="give flat rows, one a turn")
    return array


def unwrapped(column: Array) -> NDArray[Any]:
    """What a caller gives as a numpy array; floating tensors in float64, since numpy has no bfloat16."""
    if hasattr(column, "detach"):
        column = column.detach().cpu()
        column = (column.double() if column.is_floating_point() else column).numpy()
    return np.asarray(column)


def scores(column: Array) -> NDArray[np.float64]:
    """Scores as float64, NaN for None."""
    return as_numpy(column).astype(np.float64)


def numbered(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Labels of any kind as numbers from 0."""
    return np.unique(labels, return_inverse=True)[1].reshape(-1).astype(np.int64)


def sums(values: NDArray[np.float64], key: NDArray[np.int64], where: NDArray[np.bool_]) -> NDArray[np.float64]:
    """For each row, the sum of `values` over all rows with its key for which `where` holds."""
    total = np.bincount(key, weights=np.where(where, values, 0.0), minlength=1)
    return np.asarray(total[key], dtype=np.float64)


def counts(key: NDArray[np.int64], where: NDArray[np.bool_]) -> NDArray[np.float64]:
    """For each row, how many rows with its key `where` holds for."""
    return sums(np.ones(len(key)), key, where)


def like(result: NDArray[Any], column: Array) -> Array:
    """The result as what the caller gave: a tensor on the same device for a tensor, else the numpy array."""
    if not hasattr(column, "detach"):
        return result
    import torch

    dtype = column.dtype if column.is_floating_point() and result.dtype != bool else None
    return torch.from_numpy(result).to(device=column.device, dtype=dtype)
