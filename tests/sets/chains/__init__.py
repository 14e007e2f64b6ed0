"""Chains of our own: a product or convolution, then two to six elementwise, reducing, norming or pooling operators.

`chains()` writes 200 tasks in KernelBench's format, in the style of its level 2, at sizes of 1 to 500 MB: the same text
for the same seed. `heads.py` and `steps.py` hold the pieces.

    PYTHONPATH=tests python -m sets.chains OUT.jsonl [--count 200] [--seed 43]
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from sets.chains.draft import FLOAT_BYTES, Draft
from sets.chains.heads import HEADS, Misfit
from sets.chains.steps import STEPS

SEED, COUNT = 43, 200
BYTES = (1e6, 500e6)
MOST_FLOPS = 2e11
MOST_DRAFTS = 100_000
NEAR = 1.7
"""The most that a chain's bytes differ from a size drawn evenly by magnitude."""
TAILS = ("pooling", "reduction", "norm", "elementwise")
"""Kinds of steps; a chain's family is named after the first of these that it has."""


@dataclass(frozen=True)
class Chain:
    """A task. `bytes`: of inputs, weights and the head's result; `weights`: of weights; `flops`: of the head."""

    name: str
    family: str
    source: str
    bytes: int
    weights: int
    flops: int


def chains(count: int = COUNT, seed: int = SEED) -> Iterator[Chain]:
    """Yields chains with distinct texts; a longer run begins with a shorter one."""
    seen: set[str] = set()
    while len(seen) < count:
        random = Random(f"chain {seed} {len(seen)}")
        head = random.choices(list(HEADS), [weight for _, weight, _ in HEADS.values()])[0]
        size = math.exp(random.uniform(*map(math.log, BYTES)))
        draft = next(d for _ in range(MOST_DRAFTS) if (d := _draft(random, head, size)) and d.source() not in seen)
        seen.add(draft.source())
        tail = next(t for t in TAILS if t in draft.kinds)
        name = f"chain{len(seen):03d}_{head}_{'_'.join(draft.kinds)}"
        yield Chain(
            name, f"{HEADS[head][0]}, {tail}", draft.source(), draft.bytes, FLOAT_BYTES * draft.weights, draft.flops
        )


def _draft(random: Random, head: str, size: float) -> Draft | None:
    """Returns a chain of about `size` bytes; None where the sizes drawn do not go together or are out of bounds."""
    draft = Draft(random, variable=random.choice(("x", "x", "h", "y")))
    try:
        HEADS[head][2](draft)
    except Misfit:
        return None
    low, high = max(BYTES[0], size / NEAR), min(BYTES[1], size * NEAR)
    if not (low <= draft.bytes <= high and draft.flops <= MOST_FLOPS):
        return None
    wanted = random.choice((2, 3, 3, 4, 4, 5, 6))
    last = ""
    while len(draft.kinds) < wanted:
        name = random.choices(list(STEPS), [weight for weight, _ in STEPS.values()])[0]
        if name != last and STEPS[name][1](draft):
            draft.kinds.append(name.split()[0])
            last = name
    return draft
