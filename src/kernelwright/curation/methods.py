"""The table of curation methods: each makes training rows from episodes, and counts what it left out by reason."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kernelwright.corpus.guard import away
from kernelwright.curation import deciles, pairing, reverse, select
from kernelwright.curation.rows import Form, answer_text, completion_of, facts_of, message, prompt_of, sft_row
from kernelwright.curation.samples import CuratedSample, Episode
from kernelwright.errors import ConfigError
from kernelwright.inference.chat import with_speed
from kernelwright.records import Message

Kind = Literal["sft", "preference", "episodes"]


@dataclass(frozen=True)
class CurationSettings:
    """The options of all methods; each method reads its own."""

    form: Form = "plain"
    size: int | None = None
    """The bound on rows, applied after removing duplicates and rows too near to a suite: see `writing.write`."""
    seed: int = 0
    k_samples: int = 5
    """ConCuR: the first answers of each task that are considered."""
    fast_threshold: float = 5.0
    """ConCuR: the speedup above which every answer is kept."""
    balance: float = 544 / 4348
    """ConCuR: one-operator tasks to add, as a share of the others."""
    few_shot: int = 0
    """Demonstrations before each prompt, by `deciles.retrieve`."""
    margin: float = 0.3
    """M-DPO: the least difference of scores."""
    per_task: int = 4
    """Preferences: the bound on pairs per task."""
    faster_by: float | None = None
    """Preferences: also pair correct answers whose speedups differ by at least this factor."""
    reward: str | None = None
    """RFT and M-DPO: the reward; the default is `cuda_agent` for RFT and `kevin` for M-DPO."""
    other_rollouts: bool = True
    """Repairs: allow another rollout's answer as the repair."""
    against: tuple[str, ...] = ()
    """Suites that rows and demonstrations must not be too near to."""
    one_operator: Literal["remove", "keep"] = "remove"

    def __post_init__(self) -> None:
        least = {"--balance": (self.balance, 0.0, True), "--fast-threshold": (self.fast_threshold, 0.0, True)}
        least |= {"--margin": (self.margin, 0.0, False)}
        least |= {"--faster-by": (self.faster_by, 1.0, False)} if self.faster_by is not None else {}
        for flag, (value, low, included) in least.items():
            if not math.isfinite(value) or value < low or (value == low and not included):
                words = f"{low:g} or more" if included else f"more than {low:g}"
                raise ConfigError(f"{flag} is {value}", hint=f"use a number of {words}")


@dataclass
class CuratedRows:
    """The rows of a method."""

    kind: Kind
    rows: list[dict[str, Any]]
    left_out: dict[str, int] = field(default_factory=dict)
    """Counts of samples or episodes without a row, by reason."""


Method = Callable[[Sequence[Episode], CurationSettings], CuratedRows]


def _samples(episodes: Sequence[Episode]) -> list[CuratedSample]:
    return [t for e in episodes for t in e.turns]


def _failed(samples: Sequence[CuratedSample]) -> dict[str, int]:
    """Counts the answers that are not correct, by verdict."""
    found: dict[str, int] = {}
    for sample in samples:
        if not sample.correct:
            found[sample.verdict] = found.get(sample.verdict, 0) + 1
    return found


def _demonstrations(pool: Sequence[CuratedSample], settings: CurationSettings) -> list[CuratedSample]:
    """Returns the answers that may serve as demonstrations: none of a task too near to a suite in `against`."""
    if not settings.few_shot or not settings.against:
        return list(pool)
    kept_away = away(settings.against, settings.one_operator)
    return [s for s in pool if s.correct and not kept_away.near(s.task.source, s.code)[0].reasons]


def _shown(
    row: dict[str, Any], sample: CuratedSample, pool: Sequence[CuratedSample], settings: CurationSettings
) -> dict[str, Any]:
    """Puts demonstrations before a row's prompt, after system messages."""
    if not settings.few_shot:
        return row
    shots = deciles.retrieve(sample, pool, settings.few_shot)
    plain = settings.form == "plain"
    asked = [prompt_of(s, "plain")[0] if plain else message("user", s.task.source.strip()) for s in shots]
    before = [m for ask, s in zip(asked, shots, strict=True) for m in (ask, *completion_of(s, settings.form))]
    system = [m for m in row["prompt"] if m["role"] == "system"]
    rest = [m for m in row["prompt"] if m["role"] != "system"]
    return {**row, "prompt": [*system, *before, *rest], "demonstrations": [s.task.task_id for s in shots]}


def verified(episodes: Sequence[Episode], settings: CurationSettings) -> CuratedRows:
    """Keeps every correct answer."""
    pool = _samples(episodes)
    kept = select.verified(pool)
    shown = _demonstrations(pool, settings)
    rows = [_shown(sft_row(s, settings.form, "verified"), s, shown, settings) for s in kept]
    return CuratedRows("sft", rows, _failed(pool))


def best_of(episodes: Sequence[Episode], settings: CurationSettings) -> CuratedRows:
    """Keeps the best correct answer of each task."""
    pool = _samples(episodes)
    kept = select.best_of(pool)
    shown = _demonstrations(pool, settings)
    rows = [_shown(sft_row(s, settings.form, "best"), s, shown, settings) for s in kept]
    return CuratedRows("sft", rows, {**_failed(pool), "not-the-best": sum(s.correct for s in pool) - len(kept)})


def concur(episodes: Sequence[Episode], settings: CurationSettings) -> CuratedRows:
    """Applies ConCuR's three rules (`select.concur`)."""
    pool = _samples(episodes)
    picks = select.concur(
        pool, k_samples=settings.k_samples, fast_threshold=settings.fast_threshold, balance=settings.balance
    )
    rows = [
        sft_row(p.sample, settings.form, f"concur-{p.rule}", arl=p.reasoning_length, difficulty=p.difficulty)
        for p in picks
    ]
    return CuratedRows("sft", rows, {**_failed(pool), "not-picked": sum(s.correct for s in pool) - len(picks)})


def _ranked(by: str) -> Method:
    def method(episodes: Sequence[Episode], settings: CurationSettings) -> CuratedRows:
        pool = _samples(episodes)
        kept = select.ranked(pool, by, len(pool), settings.seed)
        rows = [sft_row(s, settings.form, by) for s in kept]
        return CuratedRows("sft", rows, {**_failed(pool), "not-picked": sum(s.correct for s in pool) - len(kept)})

    method.__doc__ = f"Keeps one correct answer per task, ordered by {by}: a control for ConCuR's rules."
    return method


def speed_deciles(episodes: Sequence[Episode], settings: CurationSettings) -> CuratedRows:
    """Puts PIE's speed tags before the prompts of correct answers; inference asks for 10/10."""
    pool = _samples(episodes)
    rows = []
    shown = _demonstrations(pool, settings)
    for tagged in deciles.speed_deciles(pool):
        row = sft_row(tagged.sample, settings.form, "speed-decile", tag=tagged.tag)
        asked = with_speed([Message.model_validate(m) for m in row["prompt"]], tagged.tag)
        row["prompt"] = [message(m.role, m.content) for m in asked]
        rows.append(_shown(row, tagged.sample, shown, settings))
    return CuratedRows("sft", rows, {**_failed(pool), "not-timed": sum(s.correct and not s.speedup for s in pool)})


def repair(episodes: Sequence[Episode], settings: CurationSettings) -> CuratedRows:
    """Makes rows from (failed code, log, fix) triples: the fix is the completion."""
    rows = []
    found = pairing.repairs(episodes, settings.other_rollouts)
    for one in found:
        failed, fixed = one.failed, one.fixed
        told = _told(failed, settings.form)
        prompt = [*prompt_of(failed, settings.form), *completion_of(failed, settings.form), message("user", told)]
        row = {"prompt": prompt, "completion": completion_of(fixed, settings.form), **facts_of(fixed)}
        more = {"failed_code": failed.code, "failed_verdict": failed.verdict, "failed_log": _log(failed)}
        rows.append({**row, **more, "same_rollout": one.same_rollout, "why": "repair"})
    pool = _samples(episodes)
    failures = sum(bool(s.code) and s.judgeable and not s.correct for s in pool)
    return CuratedRows("sft", rows, {"failed-and-never-mended": failures - len(found)})


def _told(sample: CuratedSample, form: Form) -> str:
    """Returns the feedback on an answer; in `plain` form the few lines that training rollouts give our own models."""
    from kernelwright.prompts.contexts import brief
    from kernelwright.prompts.messages import feedback
    from kernelwright.tasks import candidate_from_text

    candidate = candidate_from_text(sample.code, sample.policy) if sample.code else None
    if form == "plain":
        return brief(candidate, sample.evaluation, sample.parse_failure)
    return feedback(candidate, sample.evaluation, sample.parse_failure).content


def _log(sample: CuratedSample) -> str:
    return sample.evaluation.log[-3000:] if sample.evaluation else ""


def _asked(settings: CurationSettings) -> pairing.Asked:
    """Returns the function that maps an answer to its prompt's identity; in `plain` form the task alone counts."""
    return lambda sample: json.dumps(prompt_of(sample, "chat")) if settings.form == "chat" else ""


def preferences(episodes: Sequence[Episode], settings: CurationSettings) -> CuratedRows:
    """Pairs correct over failed answers for TRL's `DPOTrainer`, which takes one prompt for both."""

    asked = _asked(settings)
    found = pairing.preferences(episodes, per_task=settings.per_task, faster_by=settings.faster_by, asked=asked)
    rows = [
        {
            "prompt": prompt_of(p.chosen, settings.form),
            "chosen": completion_of(p.chosen, settings.form),
            "rejected": completion_of(p.rejected, settings.form),
            **facts_of(p.chosen),
            "rejected_code": p.rejected.code,
            "rejected_verdict": p.rejected.verdict,
            "rejected_speedup": p.rejected.speedup,
            "why": p.kind,
        }
        for p in found
    ]
    paired = {p.chosen.task.problem_hash for p in found}
    left_out = {"tasks-without-a-pair": len({e.task.problem_hash for e in episodes} - paired)}
    if otherwise := pairing.asked_otherwise(episodes, asked):
        left_out["answers-in-another-conversation"] = otherwise
    return CuratedRows("preference", rows, left_out)


def mdpo(episodes: Sequence[Episode], settings: CurationSettings) -> CuratedRows:
    """Pairs whole rollouts for M-DPO; only the policy's own messages carry loss."""
    reward = settings.reward or "kevin"
    said = [e for e in episodes if all(_said(turn, settings.form).strip() for turn in e.turns)]
    found = pairing.episode_pairs(said, margin=settings.margin, reward=reward, asked=_asked(settings))
    rows = []
    for pair in found:
        better, worse = (_dialogue(e, settings.form) for e in (pair.chosen, pair.rejected))
        rows.append(
            {
                "prompt": prompt_of(pair.chosen.turns[0], settings.form),
                "chosen": better,
                "rejected": worse,
                "chosen_actions": [m["role"] == "assistant" for m in better],
                "rejected_actions": [m["role"] == "assistant" for m in worse],
                "scores": list(pair.scores),
                **facts_of(_best(pair.chosen)),
                "rejected_code": _best(pair.rejected).code,
                "why": "mdpo",
            }
        )
    paired = {p.chosen.task.problem_hash for p in found}
    lost = {"tasks-without-a-pair": len({e.task.problem_hash for e in episodes} - paired)}
    lost |= {"rollouts-with-an-empty-answer": len(episodes) - len(said)} if len(said) < len(episodes) else {}
    return CuratedRows("episodes", rows, lost)


def _best(episode: Episode) -> CuratedSample:
    """Returns the turn that represents a rollout: the fastest correct one, else the last."""
    right = [t for t in episode.turns if t.correct]
    return max(right, key=lambda t: t.speedup or 0.0) if right else episode.turns[-1]


def _said(turn: CuratedSample, form: Form) -> str:
    """Returns a turn's answer text; the raw answer where it held no candidate."""
    return answer_text(turn, form) or turn.answer


def _dialogue(episode: Episode, form: Form) -> list[dict[str, str]]:
    """Returns the answers with their feedback, without the first request and the feedback on the last answer."""
    said: list[dict[str, str]] = []
    for at, turn in enumerate(episode.turns):
        said.append(message("assistant", _said(turn, form)))
        if at + 1 < len(episode.turns):
            said.append(message("user", _told(turn, form)))
    return said


def rft(episodes: Sequence[Episode], settings: CurationSettings) -> CuratedRows:
    """Keeps whole rollouts with a positive reward; only the policy's own messages carry loss."""
    kept, dropped = select.rft(episodes, settings.reward or "cuda_agent")
    rows = []
    for episode in kept:
        asked, said = prompt_of(episode.turns[0], settings.form), _dialogue(episode, settings.form)
        messages = [*asked, *said]
        # An assistant message in the request is an example, not the policy's own.
        actions = [False] * len(asked) + [m["role"] == "assistant" for m in said]
        rows.append({"messages": messages, "actions": actions, **facts_of(_best(episode)), "why": "rft"})
    return CuratedRows("episodes", rows, dropped)


def reverse_(episodes: Sequence[Episode], settings: CurationSettings) -> CuratedRows:
    """Writes statements in words, at three levels, for verified kernels."""
    pool = _samples(episodes)
    rows = []
    unread = [why for s in pool if s.correct and (why := reverse.unreadable(s)) is not None]
    for made in reverse.statements(pool):
        row = sft_row(made.sample, settings.form, "reverse", level=made.level)
        row["prompt"] = [message("user", made.text)]
        rows.append(row)
    return CuratedRows("sft", rows, {**_failed(pool), **Counter(unread)})


METHODS: dict[str, Method] = {
    "verified": verified,
    "best-of": best_of,
    "concur": concur,
    "random": _ranked("random"),
    "longest": _ranked("longest"),
    "shortest": _ranked("shortest"),
    "fastest": _ranked("fastest"),
    "speed-deciles": speed_deciles,
    "repair": repair,
    "preferences": preferences,
    "mdpo": mdpo,
    "reverse": reverse_,
    "rft": rft,
}


FEW_SHOT = ("verified", "best-of", "speed-deciles")
"""Methods that take demonstrations (`few_shot`)."""


def load_method(name: str, few_shot: int = 0) -> Method:
    """Returns a method by name. Raises `ConfigError` for an unknown one, or `few_shot` where it is not in FEW_SHOT."""
    if name not in METHODS:
        raise ConfigError(f"--method {name!r} is not a method", hint=f"use one of {', '.join(METHODS)}")
    if few_shot and name not in FEW_SHOT:
        raise ConfigError(
            f"--method {name} shows no demonstrations", hint=f"--few-shot goes with {', '.join(FEW_SHOT)}"
        )
    return METHODS[name]
