"""What a step of reinforcement learning was like: a row of the log, and alarms where something looks broken.

Pure functions over rows of rollouts. Drift and entropy are held against the first step of the run, which played at the
weights of the model that training began with.
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
"""The commonest first tokens that a row of the log names."""
DRAWS = 100
"""By which what chance gives is estimated."""
FAST = (1.0, 1.5, 2.0)
"""The p of fast_p: answers that are right and more than p times as fast as eager."""


class LoggedRow(LoggedStep):
    """What later steps, the table and the curves look at in a row of the log."""

    correct: float
    parts: dict[str, float | None]
    alarms: list[str]
    step_s: float
    first_tokens: dict[str, float]
    entropy: float | None
    verdicts: dict[str, int]
    judge_weight: float = 0.0


def describe(rows: Sequence[RolloutRow], timed: bool = False) -> dict[str, Any]:
    """Rewards and their parts, verdicts, speed, lengths, and the measures that alarms look at.

    `timed`: right answers are timed beside eager, so that where none is right none is fast. Else shares of fast ones
    are null where no answer has a speedup.
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
    """The mean of each part of the reward, over rows that have a reward."""
    parts: dict[str, float] = {}
    for row in rows:
        for name, value in row.parts.items():
            parts[name] = parts.get(name, 0.0) + value / max(paid, 1)
    return {name: round(value, 5) for name, value in sorted(parts.items())}


def first_tokens(rows: Sequence[RolloutRow]) -> dict[str, float]:
    """The share of the answers that begin with each token, of the commonest ones."""
    found = Counter(row.token_ids[0] for row in rows if row.token_ids)
    return {str(token): round(count / len(rows), 5) for token, count in found.most_common(FIRST_TOKENS)}


def drift(now: Mapping[str, float], then: Mapping[str, float]) -> float:
    """Total variation distance of two such tables: 0 for equal ones, 1 for those that share nothing.

    What only one names may be in the other's unnamed rest, so that the distance is never more than the true one.
    """
    return max(_gained(now, then), _gained(then, now))


def chance_drift(now: Mapping[str, float], then: Mapping[str, float], sizes: tuple[int, int]) -> tuple[float, float]:
    """The drift of two such tables, of samples of these sizes, that chance alone gives: its mean, and what it seldom
    exceeds, in one of twenty draws.

    Of seeded draws in which the answers of both are dealt out anew. What neither names is taken for tokens as common as
    the least common one that is named.
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
    """Whether first tokens drifted by more than chance makes them, and by how much more than a limit: a share of what
    chance leaves, so that 1 stays 1 and with many answers it is the distance itself."""
    now, then = facts["first_tokens"], first["first_tokens"]
    whole = drift(now, then)
    sizes = (sum(facts["verdicts"].values()), sum(first["verdicts"].values()))
    if whole <= limit:  # which chance can only lower
        return False
    mean, most = chance_drift(now, then, sizes)
    return whole > most and whole - mean > limit * (1.0 - mean)


def judged(rows: Sequence[RolloutRow]) -> dict[str, Any]:
    """What came of asking a judge: counted from the rows, since those of a session before a kill are among them."""
    counts = {n: int(sum(row.facts.get(n, 0) for row in rows)) for n in ("judge_asked", "judge_failed")}
    asked = counts["judge_asked"]
    return {**counts, "judge_failed_share": counts["judge_failed"] / asked if asked else None}


def _gained(more: Mapping[str, float], less: Mapping[str, float]) -> float:
    """How much more likely tokens have at least become, added up over those that have."""
    shared = sum(max(0.0, more[t] - less[t]) for t in more.keys() & less.keys())
    new = sum(share for t, share in more.items() if t not in less)
    return shared + max(0.0, new - max(0.0, 1.0 - sum(less.values())))


def repetition(ids: Sequence[int], n: int = 8) -> float:
    """The share of an answer's runs of `n` tokens that were there before."""
    runs = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return 1.0 - len(set(runs)) / len(runs) if runs else 0.0


def alarms(facts: Mapping[str, Any], first: Mapping[str, Any], limits: AlarmSettings) -> list[str]:
    """Names of what looks broken in a step, held against the run's first step where a measure needs that."""
    found = [
        name for name in ("hacked", "unpaid", "cut", "unreadable", "repetition") if facts[name] > getattr(limits, name)
    ]
    if (facts.get("judge_failed_share") or 0.0) > limits.judge_failed:
        found.append("judge_failed")
    if _drifted(facts, first, limits.first_token):
        found.append("first_token")
    then = first["entropy"] or 0.0  # null in the log where it was no number
    if not limits.entropy_low * then <= facts["entropy"] <= max(limits.entropy_high * then, limits.entropy_floor):
        found.append("entropy")
    return found


def standing(rows: Sequence[Mapping[str, Any]], steps: int) -> list[str]:
    """Alarms that each of the log's last `steps` rows has; none where there are fewer rows, or `steps` is 0."""
    if not steps or len(rows) < steps:
        return []
    last = [set(row["alarms"]) for row in rows[-steps:]]
    return sorted(set.intersection(*last))
