"""Selects pairs of samples: repairs, preference pairs, and pairs of whole rollouts for M-DPO."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from kernelwright.curation.samples import CuratedSample, Episode
from kernelwright.errors import ConfigError
from kernelwright.rewards.functions import load_reward


@dataclass(frozen=True)
class Repair:
    """A failed and a correct answer to one task. `same_rollout`: the policy repaired it in the same rollout."""

    failed: CuratedSample
    fixed: CuratedSample
    same_rollout: bool


def _failed(sample: CuratedSample) -> bool:
    return bool(sample.code) and sample.judgeable and not sample.correct


def _by_task(episodes: Sequence[Episode]) -> list[list[Episode]]:
    found: dict[str, list[Episode]] = {}
    for episode in episodes:
        found.setdefault(episode.task.problem_hash, []).append(episode)
    return list(found.values())


def repairs(episodes: Sequence[Episode], other_rollouts: bool = True) -> list[Repair]:
    """Pairs failed answers with fixes by task, as AscendKernelGen derives them from errors (arXiv 2601.07160).

    The fix of a failure is the next correct turn of its rollout. Without one, and with `other_rollouts`, it is the
    correct answer of the same task with the nearest code length. Equal code is no fix: one code may have been judged
    twice, with two verdicts.
    """
    found: list[Repair] = []
    for group in _by_task(episodes):
        right = [t for e in group for t in e.turns if t.correct]
        for episode in group:
            for at, turn in enumerate(episode.turns):
                if not _failed(turn):
                    continue
                later = next((t for t in episode.turns[at + 1 :] if t.correct and t.tree != turn.tree), None)
                others = [s for s in right if s.tree != turn.tree] if other_rollouts else []
                if later is not None:
                    found.append(Repair(turn, later, True))
                elif others:
                    near = min(others, key=lambda s: abs(len(s.code) - len(turn.code)))
                    found.append(Repair(turn, near, False))
    return found


@dataclass(frozen=True)
class Preference:
    """A preferred and a rejected answer to one task. `kind` is the reason: `correct` or `faster`."""

    chosen: CuratedSample
    rejected: CuratedSample
    kind: str


Asked = Callable[[CuratedSample], str]
"""Maps an answer to its prompt's identity: only answers to the same prompt can share a row."""


def _anything(sample: CuratedSample) -> str:
    return ""


def preferences(
    episodes: Sequence[Episode], *, per_task: int = 4, faster_by: float | None = None, asked: Asked = _anything
) -> list[Preference]:
    """Pairs correct over failed answers (AscendKernelGen), at most `per_task` per task.

    Repeated code counts once, so that no two pairs are equal. Pairs alternate over both lists, so that no single answer
    is in all of them. With `faster_by`, correct answers whose speedups differ by at least that factor are also paired.
    The two sides of a pair have different code and the same prompt (`asked`). Raises `ConfigError` for `per_task` < 1.
    """
    if per_task < 1:
        raise ConfigError(f"{per_task} pairs a task", hint="allow at least one")
    found: list[Preference] = []
    for group in _by_task(episodes):
        answered = _by_asked(group, asked)
        grids = chain.from_iterable(_grid(_unique(right), _unique(failed)) for right, failed in answered)
        pairs = list(islice((p for p in grids if p[0].tree != p[1].tree), per_task))
        found += [Preference(a, b, "correct") for a, b in pairs]
        if faster_by is not None:
            faster = [pair for right, _ in answered for pair in _faster(right, faster_by)]
            found += faster[: per_task - len(pairs)]
    return found


def _by_asked(group: Sequence[Episode], asked: Asked) -> list[tuple[list[CuratedSample], list[CuratedSample]]]:
    """Groups a task's answers by prompt: (correct, failed) lists for each."""
    found: dict[str, tuple[list[CuratedSample], list[CuratedSample]]] = {}
    for turn in (t for e in group for t in e.turns):
        if turn.correct or _failed(turn):
            found.setdefault(asked(turn), ([], []))[0 if turn.correct else 1].append(turn)
    return list(found.values())


def asked_otherwise(episodes: Sequence[Episode], asked: Asked) -> int:
    """Counts answers that cannot be paired for their prompt alone.

    Their task has correct and failed answers, but their own prompt has only one of the two.
    """
    count = 0
    for group in _by_task(episodes):
        answered = _by_asked(group, asked)
        if all(any(sides[n] for sides in answered) for n in (0, 1)):
            count += sum(len(right) + len(failed) for right, failed in answered if not (right and failed))
    return count


def _unique(samples: Sequence[CuratedSample]) -> list[CuratedSample]:
    """Keeps the first sample of each code."""
    return list({s.tree: s for s in reversed(samples)}.values())[::-1]


def _grid(
    right: Sequence[CuratedSample], failed: Sequence[CuratedSample]
) -> Iterator[tuple[CuratedSample, CuratedSample]]:
    """Yields all pairs along diagonals: both sides change with every step, and no pair repeats."""
    for i in range(len(right) * len(failed)):
        yield right[i % len(right)], failed[(i + i // math.lcm(len(right), len(failed))) % len(failed)]


def _faster(right: Sequence[CuratedSample], factor: float) -> list[Preference]:
    timed = _unique(sorted((s for s in right if s.speedup), key=lambda s: -(s.speedup or 0.0)))
    pairs = [(a, b) for i, a in enumerate(timed) for b in timed[i + 1 :]]
    far = [(a, b) for a, b in pairs if (a.speedup or 0.0) >= factor * (b.speedup or 1.0)]
    return [Preference(a, b, "faster") for a, b in far]


@dataclass(frozen=True)
class EpisodePair:
    """A better and a worse rollout on one task, with their scores."""

    chosen: Episode
    rejected: Episode
    scores: tuple[float, float]


def episode_score(episode: Episode, reward: str = "kevin") -> float | None:
    """Returns the best reward of any turn; None where no turn could be judged."""
    pays = load_reward(reward)
    values = [pays(t.evaluation).value for t in episode.turns]
    known = [v for v in values if v is not None]
    return max(known) if known else None


def episode_pairs(
    episodes: Sequence[Episode], *, margin: float = 0.3, reward: str = "kevin", asked: Asked = _anything
) -> list[EpisodePair]:
    """Pairs the best and the worst rollout of each task, where their `episode_score` differs by at least `margin`.

    At equal scores the rollout with fewer turns is better: M-DPO (arXiv 2409.02392) compares actions, and needless
    turns are actions. The two rollouts of a pair have different code and the same first prompt (`asked`). A task with
    several prompts gives the pair with the largest difference.
    """
    found: list[EpisodePair] = []
    for group in _by_task(episodes):
        begun: dict[str, list[Episode]] = {}
        for episode in group:
            begun.setdefault(asked(episode.turns[0]), []).append(episode)
        pairs = [pair for same in begun.values() if (pair := _farthest(same, reward)) is not None]
        pairs = [pair for pair in pairs if pair.scores[0] - pair.scores[1] >= margin]
        found += sorted(pairs, key=lambda pair: pair.scores[1] - pair.scores[0])[:1]
    return found


def _farthest(episodes: Sequence[Episode], reward: str) -> EpisodePair | None:
    """Returns the best rollout, and the worst one with different code; None where there is no pair."""
    scored = [(s, e) for e in episodes if (s := episode_score(e, reward)) is not None]
    if not scored:
        return None
    best = max(scored, key=lambda p: (p[0], -len(p[1].turns)))
    others = [p for p in scored if [t.tree for t in p[1].turns] != [t.tree for t in best[1].turns]]
    if not others:
        return None
    worst = min(others, key=lambda p: (p[0], -len(p[1].turns)))
    return EpisodePair(best[1], worst[1], (best[0], worst[0]))
