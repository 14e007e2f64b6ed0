"""Picking samples two by two: repairs, preference pairs, and pairs of whole rollouts for M-DPO."""

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
    """A failed answer and one that is right for the same task. `same_rollout`: the policy mended it itself."""

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
    """(failed, fixed) by task, as AscendKernelGen derives them from errors (arXiv 2601.07160).

    A failure is mended by the next correct turn of its rollout; where there is none and with `other_rollouts`, by the
    correct answer of the same task whose code is nearest to it in length. The same code is no repair: it may have been
    judged twice, with two verdicts.
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
    """Two answers to one task, the first to be preferred. `kind` says why: `correct` or `faster`."""

    chosen: CuratedSample
    rejected: CuratedSample
    kind: str


Asked = Callable[[CuratedSample], str]
"""What stands before an answer: only answers to the same text can share a row's prompt."""


def _anything(sample: CuratedSample) -> str:
    return ""


def preferences(
    episodes: Sequence[Episode], *, per_task: int = 4, faster_by: float | None = None, asked: Asked = _anything
) -> list[Preference]:
    """Pairs "compiles and is correct" over "fails" (AscendKernelGen), at most `per_task` a task.

    Code that came several times counts once, so that no two pairs are doubles. Pairs are taken across the two lists in
    turn, so that no single answer is in all of them. With `faster_by`, also pairs of correct answers whose speedups
    differ by at least that factor. No pair has the same code on both sides, and both sides were `asked` the same.
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
    """The right answers of a task and those that failed, by what was asked."""
    found: dict[str, tuple[list[CuratedSample], list[CuratedSample]]] = {}
    for turn in (t for e in group for t in e.turns):
        if turn.correct or _failed(turn):
            found.setdefault(asked(turn), ([], []))[0 if turn.correct else 1].append(turn)
    return list(found.values())


def asked_otherwise(episodes: Sequence[Episode], asked: Asked) -> int:
    """How many answers of tasks that have right and failed ones were given in a conversation that lacks either."""
    count = 0
    for group in _by_task(episodes):
        answered = _by_asked(group, asked)
        if all(any(sides[n] for sides in answered) for n in (0, 1)):
            count += sum(len(right) + len(failed) for right, failed in answered if not (right and failed))
    return count


def _unique(samples: Sequence[CuratedSample]) -> list[CuratedSample]:
    """The first of each code."""
    return list({s.tree: s for s in reversed(samples)}.values())[::-1]


def _grid(
    right: Sequence[CuratedSample], failed: Sequence[CuratedSample]
) -> Iterator[tuple[CuratedSample, CuratedSample]]:
    """All pairs along diagonals: both sides change with every step, and no pair comes twice."""
    for i in range(len(right) * len(failed)):
        yield right[i % len(right)], failed[(i + i // math.lcm(len(right), len(failed))) % len(failed)]


def _faster(right: Sequence[CuratedSample], factor: float) -> list[Preference]:
    timed = _unique(sorted((s for s in right if s.speedup), key=lambda s: -(s.speedup or 0.0)))
    pairs = [(a, b) for i, a in enumerate(timed) for b in timed[i + 1 :]]
    far = [(a, b) for a, b in pairs if (a.speedup or 0.0) >= factor * (b.speedup or 1.0)]
    return [Preference(a, b, "faster") for a, b in far]


@dataclass(frozen=True)
class EpisodePair:
    """Two rollouts on one task, the first the better one, with their scores."""

    chosen: Episode
    rejected: Episode
    scores: tuple[float, float]


def episode_score(episode: Episode, reward: str = "kevin") -> float | None:
    """The best reward of any turn; None where no turn could be judged."""
    pays = load_reward(reward)
    values = [pays(t.evaluation).value for t in episode.turns]
    known = [v for v in values if v is not None]
    return max(known) if known else None


def episode_pairs(
    episodes: Sequence[Episode], *, margin: float = 0.3, reward: str = "kevin", asked: Asked = _anything
) -> list[EpisodePair]:
    """The best and the worst rollout of each task by `episode_score`, where they differ by at least `margin`.

    Of rollouts with equal scores the shorter one is better, and the longer one worse: M-DPO (arXiv 2409.02392) compares
    what the policy did, and needless turns are something that it did. Two rollouts with the same code are no pair, nor
    are two whose first turns were not `asked` the same: of a task's conversations the one whose two are farthest apart.
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
    """The best rollout and the worst with other code."""
    scored = [(s, e) for e in episodes if (s := episode_score(e, reward)) is not None]
    if not scored:
        return None
    best = max(scored, key=lambda p: (p[0], -len(p[1].turns)))
    others = [p for p in scored if [t.tree for t in p[1].turns] != [t.tree for t in best[1].turns]]
    if not others:
        return None
    worst = min(others, key=lambda p: (p[0], -len(p[1].turns)))
    return EpisodePair(best[1], worst[1], (best[0], worst[0]))
