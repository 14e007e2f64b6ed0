"""Absurd numbers are rejected when the settings are read, not hours later by an overflow."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from kernelwright.training.fine_tune.settings import BenchSettings, DpoSettings, SftSettings
from kernelwright.training.pretrain.settings import PretrainSettings
from kernelwright.training.rl.settings import RejectionSettings, RlSettings


def whole_numbers(table: type[BaseModel], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Returns the paths of fields that take a whole number."""
    for name, field in table.model_fields.items():
        union = typing.get_origin(field.annotation) in (typing.Union, types.UnionType)
        kinds = typing.get_args(field.annotation) if union else (field.annotation,)
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from whole_numbers(kind, (*prefix, name))
            elif kind is int:
                yield (*prefix, name)


TABLES = (PretrainSettings, SftSettings, DpoSettings, RlSettings, RejectionSettings, BenchSettings)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_every_whole_number_has_a_bound(table: type[BaseModel]) -> None:
    paths = list(whole_numbers(table))
    assert paths
    for path in paths:
        settings: dict[str, Any] = {}
        inner = settings
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = 10**30
        with pytest.raises(ValidationError) as refused:
            table.model_validate(settings)
        told = [error for error in refused.value.errors() if error["loc"] == path]
        assert [error["type"] for error in told] in (["less_than_equal"], ["less_than"]), (path, told)
