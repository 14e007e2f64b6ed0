"""Runs a reference with its products in another arithmetic: operands rounded to fewer bits, or sums in any order.

A product is a matrix product, a convolution or attention. Everything else of the reference is computed as before. So a
run tells what rounding inside products alone does to an output, however much of it the rest of the reference lets
through. Calls a task's code, so it runs only where such code may run; imports torch. It compares nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.tasks import metric, reference_runs

_aten = torch.ops.aten
_OPERANDS: dict[Any, tuple[int, ...]] = {
    _aten.mm: (0, 1),
    _aten.bmm: (0, 1),
    _aten.mv: (0, 1),
    _aten.dot: (0, 1),
    _aten.addmm: (1, 2),
    _aten.addbmm: (1, 2),
    _aten.addmv: (1, 2),
    _aten.addmm_: (1, 2),
    _aten.baddbmm: (1, 2),
    _aten.baddbmm_: (1, 2),
    _aten.convolution: (0, 1),
    _aten.convolution_backward: (0, 1, 2),
    _aten._scaled_dot_product_flash_attention_for_cpu: (0, 1, 2),
    _aten._scaled_dot_product_efficient_attention: (0, 1, 2),
    _aten.mkldnn_rnn_layer: (0, 1, 2, 5),
    _aten._cudnn_rnn: (0, 1, 4),
}
"""The places of a product's operands among the arguments, by operator; operators that torch composes of these appear as
these."""

_MOVES = frozenset(
    getattr(_aten, name)
    for name in (
        "clone _to_copy cat stack index index_select gather embedding constant_pad_nd repeat roll flip tril triu "
        "scatter max_pool2d_with_indices max_pool3d_with_indices topk sort amax amin max min argmax argmin"
    ).split()
)
"""Operators that are not elementwise and round nothing."""

TF32, BFLOAT16 = 11, 8
"""Significant bits of an operand. FP16 has as many as TF32."""
UNIT = 2.0**-24
"""The rounding unit of float32."""
WALK = 0.5
"""The error of a float32 sum of n terms over UNIT sqrt(n) and the sum's own size: a random walk in the worst order. A
sum from first to last of terms of both signs has 0.4, of positive terms 0.33 (root mean square)."""

Change = Callable[[torch.Tensor], torch.Tensor]


def nearest(bits: int) -> Change:
    """Returns the rounding of float32 and float64 values to significant bits, to nearest with ties to even."""

    def rounded(tensor: torch.Tensor) -> torch.Tensor:
        mantissa, exponent = torch.frexp(tensor)
        return torch.where(
            tensor.isfinite(), torch.ldexp(torch.round(mantissa * 2.0**bits) / 2.0**bits, exponent), tensor
        )

    return rounded


def chopped(bits: int) -> Change:
    """Returns the rounding of values to significant bits toward zero, as a tensor core does with raw float32."""

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        mantissa, exponent = torch.frexp(tensor)
        return torch.where(
            tensor.isfinite(), torch.ldexp(torch.trunc(mantissa * 2.0**bits) / 2.0**bits, exponent), tensor
        )

    return cut


class Products(TorchDispatchMode):
    """Changes the operands of products, or adds to results what float32 sums in another order may be off by."""

    def __init__(self, operands: Change | None = None, noise_seed: int | None = None) -> None:
        super().__init__()
        self.operands = operands
        self.noise_seed = noise_seed
        self.count = 0
        """Products that were computed."""
        self.noised = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Tells torch not to wrap the mode for its compiler, which nothing here uses and which takes 5 s to import."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        packet, kwargs = func.overloadpacket, kwargs or {}
        places = _OPERANDS.get(packet)
        if places is not None:
            self.count += 1
            if self.operands is not None:
                args = [_changed(a, self.operands) if i in places else a for i, a in enumerate(args)]
        made = func(*args, **kwargs)
        if self.noise_seed is None or packet in _MOVES or torch.Tag.pointwise in func.tags or _aliases(func):
            return made
        terms = _product_terms(packet, args) if places is not None else _other_terms(args, made)
        if isinstance(made, torch.Tensor):
            return self._noisy(made, terms)
        return type(made)(self._noisy(t, terms) for t in made) if isinstance(made, (tuple, list)) else made

    def _noisy(self, made: Any, terms: float) -> Any:
        """Returns a result moved by the error of float32 sums of so many terms."""
        if not isinstance(made, torch.Tensor) or not made.is_floating_point() or not made.numel() or terms <= 1:
            return made
        self.noised += 1
        generator = torch.Generator(made.device).manual_seed((self.noise_seed or 0) * 1000 + self.noised)
        noise = torch.randn(made.shape, generator=generator, dtype=made.dtype, device=made.device)
        size = made.nan_to_num(0.0, 0.0, 0.0)
        return made + WALK * UNIT * math.sqrt(terms) * (size.abs() + size.square().mean().sqrt()) * noise


def _changed(value: Any, change: Change) -> Any:
    if isinstance(value, (list, tuple)):
        return [_changed(v, change) for v in value]
    wide = isinstance(value, torch.Tensor) and value.dtype in (torch.float32, torch.float64)
    return change(value) if wide else value


def _aliases(func: Any) -> bool:
    """Tells whether an operator's result shares memory with an argument: a view, or a change in place."""
    return any(r.alias_info is not None for r in func._schema.returns)


def _product_terms(packet: Any, args: Sequence[Any]) -> float:
    """Returns the number of terms of each sum of a product."""
    if packet is _aten.convolution:
        weight, transposed = args[1], args[6]
        return float(weight.numel() // max(1, weight.shape[1 if transposed else 0]))
    if packet in (_aten.convolution_backward, _aten.mkldnn_rnn_layer, _aten._cudnn_rnn):
        return float(args[0].numel())
    places = _OPERANDS[packet]
    return float(max(args[places[0]].shape[-1], args[places[1]].shape[-2] if len(places) == 3 else 1))


def _other_terms(args: Sequence[Any], made: Any) -> float:
    """Returns the most terms that a sum of an operator other than a product can have.

    A reduction has as many as elements for one result; a norm, a scan or an operator that is not known has those of a
    row of the first dimension or the second.
    """
    given = [a for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()]
    results = [t for t in (made if isinstance(made, (tuple, list)) else [made]) if isinstance(t, torch.Tensor)]
    if not given or not results:
        return 1.0
    large = max(given, key=lambda t: t.numel())
    fewest = max(1, min((t.numel() for t in results if t.numel()), default=1))
    if max(t.numel() for t in results) < large.numel():
        return large.numel() / fewest
    return max([large.numel() / max(1, extent) for extent in large.shape[:2]], default=1.0)


def errors(outputs: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> list[tuple[float, float] | None]:
    """Returns the largest and the root mean square error of each output (`metric.summary`); None for integers."""
    return [
        metric.summary(a.to(torch.float64).numpy(), b.numpy()) if b.is_floating_point() and a.shape == b.shape else None
        for a, b in zip(outputs, exact, strict=True)
    ]


def outputs(
    model: Any, inputs: Sequence[Any], call_seed: int, *, operands: Change | None = None, noise_seed: int | None = None
) -> list[torch.Tensor] | None:
    """Returns the reference's outputs in float64 with its products changed; None if it computes none."""
    with Products(operands, noise_seed) as mode:
        made = reference_runs.reference_outputs(model, inputs, torch.float64, call_seed)
    return made if mode.count else None
