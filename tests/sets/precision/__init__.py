"""Makes products of float32 matrices in several arithmetics, as candidates, and tasks that contain one product.

`PRODUCTS` names the arithmetics: float32 in several orders of summation, split operands on tensor cores, and one
product of TF32, FP16 or BF16 operands. `CHAINS` names what follows the product. Every kernel is plain: a warp computes
a tile of 16 x 8 with `mma.sync`, or a thread one element.
"""

from __future__ import annotations

from kernelwright.records import Candidate, SourceFile, Task

from .arithmetics import EXACT, PRODUCTS
from .chains import CHAINS, Chain

__all__ = ["CHAINS", "EXACT", "PRODUCTS", "Chain", "candidate", "task"]


def task(chain: str, m: int, k: int, n: int) -> Task:
    """Returns the task whose product has [m, k] and [k, n] operands."""
    return Task(task_id=f"{chain}_{m}x{k}x{n}", source=CHAINS[chain].task(m, k, n))


def candidate(product: str, chain: str) -> Candidate:
    """Returns the candidate that computes the chain's product in the arithmetic of that name."""
    text = CHAINS[chain].candidate(PRODUCTS[product])
    return Candidate(language="cuda", sources=(SourceFile(path="candidate.py", content=text),))
