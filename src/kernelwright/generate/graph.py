"""The operator graph from which fused chains are drawn.

As in QueST (arXiv 2510.17715), an edge's weight combines the affinity of two operators and the second one's difficulty:

    log w(a -> b) = (1 - A) log affinity(a, b) + A * G * difficulty(b)

so that easy chains do not crowd out the hard ones. `draw_length` overweights chains of three and more operators, where
models fail most; CUDA Agent's own shares (84 % pairs) are easier.
"""

from __future__ import annotations

from random import Random

ALPHA, GAMMA = 0.35, 2.5
DIFFICULTY = {
    "activation": 0.2, "scalar": 0.15, "bias": 0.35, "residual": 0.5, "pool": 0.6, "softmax": 0.75, "norm": 0.8,
    "reduce": 0.8, "center": 0.7, "gate": 0.45, "arg": 0.9, "global_pool": 0.65,
}  # fmt: skip
"""Kinds of followers, with a prior of a model's error rate relative to the worst kind."""
AFFINITY: dict[str, dict[str, float]] = {
    "anchor": {"activation": 4, "scalar": 2.5, "bias": 3, "norm": 2.5, "pool": 1.5, "softmax": 0.6, "reduce": 0.7,
               "residual": 0.6, "center": 0.3, "global_pool": 0.4, "gate": 0.4},
    "norm": {"activation": 4, "scalar": 1.5, "pool": 1.2, "residual": 1, "reduce": 0.7, "softmax": 0.4, "gate": 0.5},
    "activation": {"scalar": 2.5, "norm": 1.5, "pool": 1.5, "bias": 1.5, "residual": 1.2, "reduce": 0.8,
                   "activation": 0.6, "softmax": 0.5, "global_pool": 0.6, "center": 0.3},
    "scalar": {"activation": 3, "scalar": 0.8, "bias": 0.8, "norm": 1.2, "pool": 0.8, "softmax": 0.7, "reduce": 0.8,
               "residual": 1, "global_pool": 0.4, "center": 0.3},
    "bias": {"activation": 3.5, "scalar": 1.5, "norm": 1.2, "pool": 0.7, "softmax": 0.6, "reduce": 0.5,
    "residual": 0.7},
    "residual": {"activation": 3, "norm": 1.5, "scalar": 1, "pool": 0.7, "reduce": 0.5},
    "pool": {"activation": 2, "scalar": 1, "norm": 1, "bias": 0.8, "reduce": 0.6, "softmax": 0.5, "global_pool": 0.4},
    "softmax": {"scalar": 1.5, "bias": 1, "activation": 0.6, "pool": 0.5, "arg": 0.2},
    "reduce": {"activation": 2, "scalar": 2, "reduce": 0.3},
    "global_pool": {"activation": 2, "scalar": 1.5, "bias": 1, "softmax": 0.5, "reduce": 0.5},
    "center": {"activation": 2, "scalar": 1.5, "reduce": 0.3, "residual": 0.5},
    "gate": {"scalar": 1.5, "norm": 1, "pool": 0.7, "bias": 0.7},
    "arg": {},
}  # fmt: skip
"""Relative frequency of one kind after another in people's code."""
LENGTHS = ((1, 0.22), (2, 0.30), (3, 0.26), (4, 0.14), (5, 0.08))
"""(number of followers after the anchor, share)."""


def draw_length(random: Random) -> int:
    """Draws the number of followers of one chain: 1 to 5."""
    return random.choices([n for n, _ in LENGTHS], [w for _, w in LENGTHS])[0]


def weight(before: str, after: str) -> float:
    """Returns an edge's weight; 0 where the graph has none."""
    affinity = AFFINITY[before].get(after, 0.0)
    if not affinity:
        return 0.0
    return float(affinity ** (1 - ALPHA) * 2.718281828 ** (ALPHA * GAMMA * DIFFICULTY[after]))


def follower(random: Random, before: str, usable: set[str]) -> str:
    """Draws the next kind of operator; empty where no usable kind follows."""
    kinds = [k for k in DIFFICULTY if k in usable and weight(before, k)]
    if not kinds:
        return ""
    return random.choices(kinds, [weight(before, k) for k in kinds])[0]
