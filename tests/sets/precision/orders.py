"""Computes a reference's matrix products in float32 by sums in a chosen order, element for element."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kernelwright.tasks.rounded_products import Products

FORWARD, BACKWARD, PARTS = "forward", "backward", "parts"
ORDERS = (FORWARD, BACKWARD, PARTS)
"""From the first term to the last; from the last to the first; 32 sums of every 32nd term, then their sum."""


class InOrder(Products):
    """Runs matrix products by rounded products and sums of float32 in one order."""

    def __init__(self, order: str = FORWARD) -> None:
        super().__init__()
        self.order = order

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        packet = func.overloadpacket
        if packet not in (torch.ops.aten.mm, torch.ops.aten.addmm):
            return func(*args, **(kwargs or {}))
        made = torch.from_numpy(_product(args[-2].numpy(), args[-1].numpy(), self.order))
        return made + args[0] if packet is torch.ops.aten.addmm else made


def _product(a: np.ndarray, b: np.ndarray, order: str) -> np.ndarray:
    """Returns the product of a [m, k] and b [k, n] in float32."""
    terms = range(a.shape[1])
    parts = [np.zeros((a.shape[0], b.shape[1]), np.float32) for _ in range(32 if order == PARTS else 1)]
    for k in reversed(terms) if order == BACKWARD else terms:
        parts[k % len(parts)] += a[:, k : k + 1] * b[k]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
