"""Assigns tasks to splits for training and evaluation, by their operators and never at random."""

from __future__ import annotations

import hashlib

from kernelwright.generate.registry import Family

SPLITS = ("train", "combos", "fused", "families")
HELD_OUT_SHARE = 16
"""One in this many sequences of operators is held out of training."""
CHAINS = ("fused", "elementwise", "block")
"""Groups whose tasks are random chains of operators."""
ANCHORS = ("conv", "matmul", "linear", "bmm")
"""Prefixes of the first operator of a fused task in KernelBench's level-2 style."""


def split_of(operators: tuple[str, ...], family: Family) -> str:
    """Returns `train`, or the split that a task is held out for.

    `families`: the family occurs in training only inside fused tasks. `fused`: a convolution or matrix product with two
    to five followers whose sequence of operators is held out; `combos`: any other held-out sequence of a chain.
    """
    if family.held_out:
        return "families"
    if not _is_chain(family, len(operators)) or not _held_out(operators):
        return "train"
    anchors = operators[0].startswith(ANCHORS) or operators[0].split("_")[0] in ("depthwise", "grouped", "pointwise")
    return "fused" if anchors and 3 <= len(operators) <= 6 and family.group == "fused" else "combos"


def _is_chain(family: Family, length: int) -> bool:
    """Tells whether a family draws its operators, so that some sequences can be held out while the family stays."""
    return length >= 2 and family.group in (*CHAINS, "program") and (family.group != "block" or length >= 4)


def may_yield(family: Family, split: str) -> bool:
    """Tells whether a family can have tasks in a split."""
    if split == "families":
        return family.held_out
    wanted = {"train": True, "combos": family.group in CHAINS, "fused": family.group == "fused"}[split]
    return wanted and not family.held_out


def _held_out(operators: tuple[str, ...]) -> bool:
    digest = hashlib.sha256(" ".join(operators).encode()).digest()
    return digest[0] % HELD_OUT_SHARE == 0
