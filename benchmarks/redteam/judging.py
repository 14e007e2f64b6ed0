"""Judges attacks and honest candidates through the package's public surface, one record for each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

import kernelwright
from kernelwright import Candidate, EvalOptions, Evaluation, Evaluator, Task, TaskError
from redteam.compose import Attack
from redteam.honest import HonestCase
from redteam.pieces import Part, Tier
from redteam.repair import REPAIRS, repaired

BATCH = 16
"""Attacks of one batch: repaired together, and written when the batch is done."""


class Row(BaseModel):
    """One judged candidate."""

    key: str
    tier: Tier
    kind: Literal["attack", "honest", "near-miss"] = "attack"
    part: Part | Literal[""] = ""
    family: str = ""
    door: str = ""
    cover: str = ""
    disguises: tuple[str, ...] = ()
    task: str = ""
    verdict: str = ""
    rules: tuple[str, ...] = ()
    reason: str = ""
    tries: tuple[str, ...] = ()
    """Verdicts of the attempts before the last."""
    plain: str = ""
    """In plain torch without guards: `works`, `wrong`, the name of an exception, or `untried`."""
    road: str = ""
    seconds: float = 0.0
    speedup: float | None = None

    @property
    def works(self) -> bool:
        """Tells whether the attack gives the right answer where nothing stops it."""
        return self.plain == "works"


def options_for(tier: Tier, seed: int | None) -> EvalOptions:
    """Returns the options under which candidates are judged: the package's own, with less time."""
    return EvalOptions(backend=tier, timeout=20.0, build_timeout=60.0, timing_seconds=0.3, seed=seed)


def outcome(found: Evaluation | TaskError | None) -> dict[str, object]:
    """Returns what a row keeps of an evaluation."""
    if not isinstance(found, Evaluation):
        return {"verdict": "task_error", "reason": str(found)[:200]}
    return {
        "verdict": found.verdict,
        "rules": tuple(sorted({f.rule for f in found.findings if f.severity in ("reject", "fault")})),
        "reason": found.reason[:160],
        "road": str(getattr(found.environment, "road", "") or ""),
        "seconds": found.seconds.total,
        "speedup": found.timing.speedup if found.timing else None,
    }


def pair(attack: Attack) -> tuple[Task, Candidate]:
    """Returns the task and the candidate of an attack."""
    from kernelwright.tasks import candidate_from_text

    task = Task(task_id=attack.task.name, source=attack.task.reference())
    return task, candidate_from_text(attack.text(), attack.key)


def judged(attacks: Iterable[Attack], evaluator: Evaluator, tier: Tier, jobs: int) -> Iterator[Row]:
    """Judges attacks, repairs each up to `REPAIRS` times by its feedback, and yields the rows batch by batch."""
    left = iter(attacks)
    while batch := list(islice(left, BATCH)):
        last: dict[str, Evaluation | TaskError] = {}
        current = {a.key: a for a in batch}
        tries: dict[str, list[str]] = {a.key: [] for a in batch}
        going = dict(current)
        for attempt in range(REPAIRS + 1):
            results = kernelwright.evaluate_many((pair(a) for a in going.values()), pool=evaluator, jobs=jobs)
            following: dict[str, Attack] = {}
            for (key, attack), found in zip(going.items(), results, strict=True):
                current[key], last[key] = attack, found
                if attempt == REPAIRS or not isinstance(found, Evaluation) or found.verdict == "correct":
                    continue
                if (repair := repaired(attack, found)) is not None:
                    tries[key].append(f"{found.verdict} {found.reason.split(':')[0][:40]}")
                    following[key] = repair
            if not following:
                break
            going = following
        plain = plainly(current)
        for key, attack in current.items():
            made = _row(attack, last[key], tier, tuple(tries[key]), plain[key])
            yield made.model_copy(update={"key": key})


def _row(attack: Attack, found: Evaluation | TaskError, tier: Tier, tries: tuple[str, ...], plain: str) -> Row:
    return Row.model_validate(
        {
            "key": attack.key,
            "tier": tier,
            "part": attack.part,
            "family": attack.door.family,
            "door": attack.door.name,
            "cover": attack.cover.name if attack.cover else "",
            "disguises": tuple(d.name for d in attack.disguises),
            "task": attack.task.name,
            "tries": tries,
            "plain": plain,
            **outcome(found),
        }
    )


def plainly(attacks: dict[str, Attack]) -> dict[str, str]:
    """Tries attacks by key in plain torch on a CPU, in one process whose forks run one attack each."""
    found = dict.fromkeys(attacks, "untried")
    jobs = [
        {
            "key": key,
            "text": a.text(),
            "reference": a.task.reference(),
            "answer": a.task.function("answer", a.task.torch),
            "weights": a.task.weights,
            "inputs": len(a.task.names),
            "same_inputs": a.door.same_inputs,
        }
        for key, a in attacks.items()
        if a.door.plain
    ]
    if not jobs:
        return found
    folder = Path(__file__).resolve().parents[1]
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    said = subprocess.run(
        [sys.executable, "-m", "redteam.plain_run"],
        input="".join(json.dumps(job) + "\n" for job in jobs),
        text=True,
        capture_output=True,
        env=environment,
        check=False,
    ).stdout
    found.update((row["key"], row["plain"]) for row in map(json.loads, said.splitlines()))
    return found


def judged_honest(cases: Iterable[HonestCase], evaluator: Evaluator, tier: Tier, jobs: int) -> Iterator[Row]:
    """Judges honest candidates and yields their rows."""
    known = list(cases)
    results = kernelwright.evaluate_many(((c.task, c.candidate) for c in known), pool=evaluator, jobs=jobs)
    for case, found in zip(known, results, strict=True):
        made = {"key": case.key, "kind": case.kind, "tier": tier, "task": case.key, **outcome(found)}
        yield Row.model_validate(made)
