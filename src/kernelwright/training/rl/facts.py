"""Statistics of a reinforcement-learning step: a row of the log, and alarms for signs of collapse.

Pure functions over rollout rows. Drift and entropy are compared with the first step of the run, which sampled from the
initial weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kernelwright.training.pretrain.progress import LoggedStep
from kernelwright.training.rl.filters import varied_groups
from kernelwright.training.rl.rollouts import RolloutRow
from kernelwright.training.rl.settings import AlarmSettings

FIRST_TOKENS = 16
"""The number of most frequent first tokens in a row of the log."""
DRAWS = 100
"""Random draws that estimate the drift expected by chance."""
FAST = (1.0, 1.5, 2.0)
"""The p of fast_p: the share of answers that are correct and more than p times as fast as eager."""


class LoggedRow(LoggedStep):
    """The fields of a log row that later steps, the table and the curves read."""

    correct: float
    parts: dict[str, float | None]
    alarms: list[str]
    step_s: float
    first_tokens: dict[str, float]
    entropy: float | None
    verdicts: dict[str, int]
    judge_weight: float = 0.0


def describe(rows: Sequence[RolloutRow], timed: bool = False) -> dict[str, Any]:
    """Computes rewards with their parts, verdicts, speed, lengths, and the inputs of the alarms.

    `timed`: correct answers are timed against eager, so a step without correct answers has fast_p 0. Otherwise fast_p
    is None if no answer has a speedup.
    """
    paid = [row.reward for row in rows if row.reward is not None]
    verdicts = Counter(row.verdict for row in rows)
    best: dict[tuple[int, int], bool] = {}
    for row in rows:
        key = (row.group, row.trajectory)
        best[key] = best.get(key, False) or row.verdict == "correct"
    lengths = [len(row.token_ids) for row in rows]
    log_probs = [p for row in rows for p in row.log_probs]
    speedups = [row.facts["speedup"] for row in rows if row.verdict == "correct" and "speedup" in row.facts]
    varied = varied_groups([row.reward for row in rows], [row.group for row in rows])
    groups = {row.group for row in rows}
    return {
        "reward": sum(paid) / len(paid) if paid else None,
        "parts": _parts(rows, len(paid)),
        "correct": verdicts["correct"] / len(rows),
        "correct_rollouts": sum(best.values()) / len(best),
        **{f"fast_{p:g}": sum(s > p for s in speedups) / len(rows) if timed or speedups else None for p in FAST},
        "speedup": sum(speedups) / len(speedups) if speedups else None,
        "hacked": sum(row.verdict == "rejected" or "rules_broken" in row.facts for row in rows) / len(rows),
        "unreadable": verdicts["unreadable"] / len(rows),
        "unpaid": 1.0 - len(paid) / len(rows),
        "verdicts": dict(sorted(verdicts.items())),
        "alike": 1.0 - len({row.group for row, kept in zip(rows, varied, strict=True) if kept}) / len(groups),
        "length": sum(lengths) / len(lengths),
        "cut": sum(row.finish_reason == "length" for row in rows) / len(rows),
        "entropy": -sum(log_probs) / max(len(log_probs), 1),
        "first_tokens": first_tokens(rows),
        "repetition": sum(repetition(row.token_ids) for row in rows) / len(rows),
    }


def _parts(rows: Sequence[RolloutRow], paid: int) -> dict[str, float]:
    """Returns the mean of each part of the reward over rows with a reward."""
    parts: dict[str, float] = {}
    for row in rows:
        for name, value in row.parts.items():
            parts[name] = parts.get(name, 0.0) + value / max(paid, 1)
    return {name: round(value, 5) for name, value in sorted(parts.items())}


def first_tokens(rows: Sequence[RolloutRow]) -> dict[str, float]:
    """Returns the share of answers that begin with each of the most frequent first tokens."""
    found = Counter(row.token_ids[0] for row in rows if row.token_ids)
    return {str(token): round(count / len(rows), 5) for token, count in found.most_common(FIRST_TOKENS)}


def drift(now: Mapping[str, float], then: Mapping[str, float]) -> float:
    """Returns the total variation distance of two tables of first tokens: 0 if equal, 1 if disjoint.

    A token named by one table only may be in the other's unnamed rest, so the result is a lower bound.
    """
    return max(_gained(now, then), _gained(then, now))


def chance_drift(now: Mapping[str, float], then: Mapping[str, float], sizes: tuple[int, int]) -> tuple[float, float]:
    """Returns the mean and the 95 % quantile of the drift expected by chance for two samples of these sizes.

    A permutation test with seeded draws: each redistributes the pooled answers over both samples. Unnamed answers are
    modelled as tokens as frequent as the least frequent named token.
    """
    names = sorted(now.keys() | then.keys())
    pool = [round(now.get(name, 0.0) * sizes[0]) + round(then.get(name, 0.0) * sizes[1]) for name in names]
    least = max(1, min(pool, default=1))
    left = max(0, sum(sizes) - sum(pool))
    pool += [least] * (left // least) + [left % least]
    random = np.random.default_rng(0)
    found = []
    for _ in range(DRAWS):
        dealt = random.multivariate_hypergeometric(pool, min(sizes[0], sum(pool)), method="marginals")
        found.append(drift(_commonest(dealt, sizes[0]), _commonest(np.asarray(pool) - dealt, sizes[1])))
    return sum(found) / DRAWS, float(np.quantile(found, 0.95))


def _commonest(counts: np.ndarray, size: int) -> dict[str, float]:
    return {str(n): int(counts[n]) / size for n in np.argsort(-counts, kind="stable")[:FIRST_TOKENS] if counts[n]}


def _drifted(facts: Mapping[str, Any], first: Mapping[str, Any], limit: float) -> bool:
    """Tells whether first tokens drifted beyond the 95 % quantile of chance and beyond a limit.

    The limit is on (drift - mean) / (1 - mean), with the mean drift by chance: full drift stays 1, and with many
    answers this is the drift itself.
    """
    now, then = facts["first_tokens"], first["first_tokens"]
    whole = drift(now, then)
    sizes = (sum(facts["verdicts"].values()), sum(first["verdicts"].values()))
    if whole <= limit:  # subtracting the chance drift only lowers it
        return False
    mean, most = chance_drift(now, then, sizes)
    return whole > most and whole - mean > limit * (1.0 - mean)


def judged(rows: Sequence[RolloutRow]) -> dict[str, Any]:
    """Counts opinions asked for and failed. Counts from rows, which include those of a session before a kill."""
    counts = {n: int(sum(row.facts.get(n, 0) for row in rows)) for n in ("judge_asked", "judge_failed")}
    asked = counts["judge_asked"]
    return {**counts, "judge_failed_share": counts["judge_failed"] / asked if asked else None}


def _gained(more: Mapping[str, float], less: Mapping[str, float]) -> float:
    """Returns a lower bound on the probability gained, summed over tokens that became more likely."""
    shared = sum(max(0.0, more[t] - less[t]) for t in more.keys() & less.keys())
    new = sum(share for t, share in more.items() if t not in less)
    return shared + max(0.0, new - max(0.0, 1.0 - sum(less.values())))


def repetition(ids: Sequence[int], n: int = 8) -> float:
    """Returns the share of an answer's n-grams of tokens that occurred before in the same answer."""
    runs = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return 1.0 - len(set(runs)) / len(runs) if runs else 0.0


def alarms(facts: Mapping[str, Any], first: Mapping[str, Any], limits: AlarmSettings) -> list[str]:
    """Returns the names of a step's alarms. Drift and entropy are compared with the run's first step."""
    found = [
        name for name in ("hacked", "unpaid", "cut", "unreadable", "repetition") if facts[name] > getattr(limits, name)
    ]
    if (facts.get("judge_failed_share") or 0.0) > limits.judge_failed:
        found.append("judge_failed")
    if _drifted(facts, first, limits.first_token):
        found.append("first_token")
    then = first["entropy"] or 0.0  # null in the log if it was not finite
    if not limits.entropy_low * then <= facts["entropy"] <= max(limits.entropy_high * then, limits.entropy_floor):
        found.append("entropy")
    return found


def standing(rows: Sequence[Mapping[str, Any]], steps: int) -> list[str]:
    """Returns the alarms common to the last `steps` rows of the log; empty for fewer rows or `steps` = 0."""
    if not steps or len(rows) < steps:
        return []
    last = [set(row["alarms"]) for row in rows[-steps:]]
    return sorted(set.intersection(*last))
