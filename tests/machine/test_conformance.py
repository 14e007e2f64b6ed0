"""The machine against numpy: kernels of the styles that language models write, in every order of blocks and warps."""

from __future__ import annotations

import cases_elementwise  # noqa: F401
import cases_features  # noqa: F401
import cases_products  # noqa: F401
import cases_rows  # noqa: F401
import pytest
from conformance import CASES, KERNELS, check
from machine_launch import ORDERS


@pytest.mark.parametrize("name", sorted(CASES))
def test_case(name: str) -> None:
    for order in ORDERS:
        check(CASES[name], order)


def test_every_kernel_has_a_case() -> None:
    assert {path.stem for path in KERNELS.glob("*.cu")} == set(CASES)
