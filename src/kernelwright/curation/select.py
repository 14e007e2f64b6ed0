"""Selects single samples: verified, best of several, ranked (fastest, longest, …), ConCuR's three rules, RFT.

All are pure functions of samples. A method that needs times raises `ConfigError` when no sample has one; it never
picks an arbitrary sample as the fastest.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.curation.samples import CuratedSample, Episode, by_task
from kernelwright.errors import ConfigError
from kernelwright.rewards.functions import load_reward


def verified(samples: Sequence[CuratedSample]) -> list[CuratedSample]:
    """Returns every correct answer."""
    return [s for s in samples if s.correct]


def _need_times(samples: Sequence[CuratedSample], method: str) -> None:
    if samples and not any(s.speedup is not None for s in samples):
        raise ConfigError(
            f"{method} goes by speedups, and nothing in these runs was timed",
            hint="judge them on a GPU, or use --method verified",
        )


def best_of(samples: Sequence[CuratedSample], count: int = 1) -> list[CuratedSample]:
    """Returns the `count` best correct answers of each task: the fastest, then the shortest code, then the earliest."""
    chosen: list[CuratedSample] = []
    for group in by_task(verified(samples)).values():
        order = sorted(range(len(group)), key=lambda i: (-(group[i].speedup or 0.0), len(group[i].code), i))
        chosen += [group[i] for i in sorted(order[:count])]
    return chosen


def ranked(samples: Sequence[CuratedSample], by: str, size: int, seed: int = 0) -> list[CuratedSample]:
    """Returns `size` correct answers, at most one per task: the controls of ConCuR's ablation.

    `by` is `random`, `longest` or `shortest` (reasoning), or `fastest`. Raises `ConfigError` for another order, and for
    `fastest` where nothing was timed.
    """
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
    one operator, for balance."""
    reasoning_length: float
    """The mean over the task's answers (ARL), which measures difficulty."""
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
    """Selects by ConCuR's rules (arXiv 2510.07356), from each task's first `k_samples` answers.

    (a) The correct answer with the shortest reasoning, where it is also the fastest. (b) Every answer with a speedup
    above `fast_threshold`. (c) Then one-operator tasks without a pick, easiest first, each with its shortest correct
    answer, up to `balance` times the picks of (a) and (b) (in the paper 544 beside 4,348).

    `difficulty` goes by the mean reasoning length of the task's answers: below `easy`, above `hard`, or `medium`.
    Raises `ConfigError` where nothing was timed.
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
    """The sort key of ConCuR's preference: shortest reasoning, then fastest."""
    return sample.length, -(sample.speedup or 0.0)


def rft(episodes: Sequence[Episode], reward: str = "cuda_agent") -> tuple[list[Episode], dict[str, int]]:
    """Filters whole rollouts for rejection fine-tuning (CUDA Agent, arXiv 2602.24286).

    Keeps rollouts with a positive outcome, without loops and without unparsable answers; returns them with counts of
    the others by reason. The outcome is the reward of the best turn. A loop is a turn that repeats an earlier turn's
    code.
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
