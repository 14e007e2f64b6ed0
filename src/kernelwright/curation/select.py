"""Picking samples one by one: verified, best of several, the fastest and the like, ConCuR's three rules, RFT.

All are pure functions of samples. Where times are missing, "fastest" falls back to nothing: a method that needs times
raises `ConfigError` when no sample has one, rather than call an arbitrary one fast.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.curation.samples import CuratedSample, Episode, by_task
from kernelwright.errors import ConfigError
from kernelwright.rewards.functions import load_reward


def verified(samples: Sequence[CuratedSample]) -> list[CuratedSample]:
    """Every correct answer."""
    return [s for s in samples if s.correct]


def _need_times(samples: Sequence[CuratedSample], method: str) -> None:
    if samples and not any(s.speedup is not None for s in samples):
        raise ConfigError(
            f"{method} goes by speedups, and nothing in these runs was timed",
            hint="judge them on a GPU, or use --method verified",
        )


def best_of(samples: Sequence[CuratedSample], count: int = 1) -> list[CuratedSample]:
    """The `count` best correct answers of each task: fastest, where none is timed shortest in code, then earliest."""
    chosen: list[CuratedSample] = []
    for group in by_task(verified(samples)).values():
        order = sorted(range(len(group)), key=lambda i: (-(group[i].speedup or 0.0), len(group[i].code), i))
        chosen += [group[i] for i in sorted(order[:count])]
    return chosen


def ranked(samples: Sequence[CuratedSample], by: str, size: int, seed: int = 0) -> list[CuratedSample]:
    """The controls of ConCuR's ablation: `size` correct answers, at most one a task, by `random`, `longest`,
    `shortest` (reasoning) or `fastest`."""
    correct = verified(samples)
    if by == "fastest":
        _need_times(correct, "fastest")
        correct = [s for s in correct if s.speedup is not None]
    keys = {
        "longest": lambda s: -float(s.length),
        "shortest": lambda s: float(s.length),
        "fastest": lambda s: -(s.speedup or 0.0),
    }
    draw = random.Random(seed)
    if by == "random":
        order = {id(s): draw.random() for s in correct}
        best = [min(group, key=lambda s: order[id(s)]) for group in by_task(correct).values()]
        return sorted(best, key=lambda s: order[id(s)])[:size]
    if by not in keys:
        raise ConfigError(f"{by!r} is no order", hint=f"use random, {', '.join(keys)}")
    best = [min(group, key=keys[by]) for group in by_task(correct).values()]
    return sorted(best, key=keys[by])[:size]


@dataclass(frozen=True)
class ConcurPick:
    """One sample that ConCuR's rules keep."""

    sample: CuratedSample
    rule: str
    """`a`: the task's shortest reasoning is also its fastest kernel. `b`: speedup above the threshold. `c`: a task of
    one operator, to balance."""
    reasoning_length: float
    """Mean over the task's answers: ARL, the difficulty."""
    difficulty: str


def concur(
    samples: Sequence[CuratedSample],
    *,
    k_samples: int = 5,
    fast_threshold: float = 5.0,
    balance: float = 544 / (3934 + 414),
    easy: float = 4000.0,
    hard: float = 8500.0,
) -> list[ConcurPick]:
    """ConCuR's selection (arXiv 2510.07356).

    Of each task's first `k_samples` answers: (a) the correct one with the shortest reasoning where it is also the
    fastest; (b) any with a speedup above `fast_threshold`; then (c) correct answers of one-operator tasks that are not
    in yet, the shortest of each, easiest tasks first, up to `balance` of what (a) and (b) gave (in the paper 544 beside
    4,348). `difficulty` is by the mean reasoning length of the task's answers: below `easy`, above `hard`, or `medium`.
    """
    _need_times(verified(samples), "concur")
    groups = {key: group[:k_samples] for key, group in by_task(list(samples)).items()}
    lengths = {key: sum(s.length for s in group) / len(group) for key, group in groups.items()}
    picked: dict[int, ConcurPick] = {}

    def pick(sample: CuratedSample, key: str, rule: str) -> None:
        arl = lengths[key]
        level = "easy" if arl < easy else "hard" if arl > hard else "medium"
        picked.setdefault(id(sample), ConcurPick(sample, rule, arl, level))

    for key, group in groups.items():
        timed = [s for s in group if s.correct and s.speedup is not None]
        if not timed:
            continue
        shortest = min((s for s in group if s.correct), key=_short_and_fast)
        if shortest.speedup == max(s.speedup or 0.0 for s in timed):
            pick(shortest, key, "a")
        for sample in timed:
            if (sample.speedup or 0.0) > fast_threshold:
                pick(sample, key, "b")
    room = round(min(balance * len(picked), len(groups)))
    single = [k for k, g in groups.items() if g[0].one_operator and not any(id(s) in picked for s in g)]
    for key in sorted(single, key=lambda k: lengths[k]):
        correct = [s for s in groups[key] if s.correct]
        if correct and room > 0:
            pick(min(correct, key=_short_and_fast), key, "c")
            room -= 1
    return list(picked.values())


def _short_and_fast(sample: CuratedSample) -> tuple[int, float]:
    """The order in which ConCuR prefers answers: the shortest reasoning, of equally short ones the fastest."""
    return sample.length, -(sample.speedup or 0.0)


def rft(episodes: Sequence[Episode], reward: str = "cuda_agent") -> tuple[list[Episode], dict[str, int]]:
    """Rejection fine-tuning's filters (CUDA Agent, arXiv 2602.24286): whole rollouts with a positive outcome, without
    loops and without answers that no candidate could be read from. Returns them with the reasons for the others.

    The outcome is the reward of the best turn. A loop is a turn that repeats an earlier turn's code.
    """
    pays = load_reward(reward)
    kept: list[Episode] = []
    dropped = {"no-reward": 0, "loop": 0, "invalid": 0}
    for episode in episodes:
        values = [pays(t.evaluation).value for t in episode.turns]
        codes = [t.code for t in episode.turns if t.code]
        if max((v for v in values if v is not None), default=0.0) <= 0:
            dropped["no-reward"] += 1
        elif len(set(codes)) < len(codes):
            dropped["loop"] += 1
        elif any(t.parse_failure for t in episode.turns):
            dropped["invalid"] += 1
        else:
            kept.append(episode)
    return kept, {why: n for why, n in dropped.items() if n}
