"""Muon: orthogonalised momentum for the matrices of a network; AdamW updates the other parameters.

Keller Jordan, "Muon: An optimizer for hidden layers in neural networks" (2024). Matrices of one shape are
orthogonalised in one batch: a few large products instead of many small ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic Newton-Schulz iteration: the steepest slope at zero that still converges near one."""


def orthogonalised(matrices: Tensor, steps: int = 5) -> Tensor:
    """Returns approximately the nearest semi-orthogonal matrices: singular values between about 0.7 and 1.2.

    `matrices`: (count, rows, columns). Computed in bfloat16 on a GPU, in float32 on the CPU.
    """
    a, b, c = _COEFFICIENTS
    x = matrices.bfloat16() if matrices.is_cuda else matrices.float()
    tall = x.size(-2) > x.size(-1)
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum. Parameters must be matrices."""

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        compiled: bool = False,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self._orthogonalised = torch.compile(orthogonalised, dynamic=False) if compiled else orthogonalised

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Makes one update; `closure` is not used."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes[parameter.shape].append(parameter)
            for shape, parameters in shapes.items():
                self._update(group, shape, parameters)

    def _update(self, group: dict[str, Any], shape: torch.Size, parameters: list[Tensor]) -> None:
        gradients = [p.grad for p in parameters if p.grad is not None]
        for parameter in parameters:
            if "momentum" not in self.state[parameter]:
                self.state[parameter]["momentum"] = torch.zeros_like(parameter)
        buffers = [self.state[p]["momentum"] for p in parameters]
        momentum, lr = group["momentum"], group["lr"]
        torch._foreach_lerp_(buffers, gradients, 1 - momentum)
        ahead = torch._foreach_lerp(gradients, buffers, momentum)  # Nesterov's
        updates = self._orthogonalised(torch.stack(list(ahead))).to(parameters[0].dtype)
        if group["weight_decay"]:
            torch._foreach_mul_(parameters, 1 - lr * group["weight_decay"])
        scale = max(1.0, shape[0] / shape[1]) ** 0.5
        torch._foreach_add_(parameters, list(updates.unbind()), alpha=-lr * scale)
