import torch
from torch import Tensor

__all__ = ["mymuladd", "myadd_out"]


def mymuladd(a: Tensor, b: Tensor, c: float) -> Tensor:
    """Performs a * b + c in an efficient fused kernel"""
    return torch.ops.muladd_ext.mymuladd.default(a, b, c)


def mymul_out(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Writes a * b into out"""
    torch.ops.muladd_ext.mymul_out.default(a, b, out)


@torch.library.register_fake("muladd_ext::mymuladd")
def _(a, b, c):
    torch._check(a.shape == b.shape)
    torch._check(a.dtype == torch.float)
    return torch.empty_like(a)
