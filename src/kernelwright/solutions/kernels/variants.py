"""Lists the schedules that a task's operators know, from the plainest to the best."""

from __future__ import annotations

from dataclasses import replace

from kernelwright.solutions.kernels.schedule import CANONICAL, CONVOLUTIONS, HALVES, PRODUCTS, TUNED, Schedule, choices
from kernelwright.solutions.read.reading import Node, nodes

_PRODUCTS = frozenset(("matmul", "mm", "bmm", "linear", "linear_module"))
_WINDOWS = ("max_pool", "avg_pool", "lp_pool", "adaptive_")
_SAMPLED = frozenset(("embedding", "interpolate", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle"))


def of(root: Node, halves: bool) -> list[Schedule]:
    """Returns the schedules for a lowered expression; `halves`: inputs have 16 bits, which tensor cores take."""
    ops = operators(root)
    products, convolutions = ops & _PRODUCTS, {o for o in ops if o.startswith("conv")}
    pools, sampled = {o for o in ops if o.startswith(_WINDOWS)}, ops & _SAMPLED
    found: list[Schedule] = []
    if products:
        found += [Schedule(product=p) for p in PRODUCTS if p != "tensor" or halves]
        found += [Schedule(product=p) for p in ("split1", "split64", "split128", "split192", "deep4", "deep8")]
        found += [Schedule(product=p) for p in HALVES if halves]
    if convolutions:
        found += [Schedule(conv=way) for way in CONVOLUTIONS]
        found += [Schedule(conv=way) for way in ("split1", "split64", "split128", "read1", "window")]
        found += [Schedule(conv="direct", block=block) for block in (64, 128, 512)]
        found += [Schedule(conv="channels", block=128)]
    if products and convolutions:
        found += [Schedule(product="register64", conv=way) for way in ("gemm64", "channels")]
    if pools or sampled:
        found += [Schedule(block=block) for block in (32, 64, 128, 512, 1024)]
    if any(op.startswith("adaptive_") for op in pools):
        found += [Schedule(pool="block"), Schedule(pool="block", block=128)]
    if not (products or convolutions or pools or sampled):
        found += choices()
    elif "reduce" in ops:
        found += [replace(s, shuffle=True) for s in found[-2:]]
    return list(dict.fromkeys([*_plainest(found), *found, TUNED]))


def _plainest(found: list[Schedule]) -> list[Schedule]:
    """Returns the first schedules of the list: the plainest, then the canonical one."""
    return [found[0], CANONICAL] if found else [CANONICAL]


def operators(root: Node) -> set[str]:
    """Returns the operators of an expression."""
    return {node.op for node in nodes(root)}
