"""Rejection fine-tuning, the warm-up of CUDA Agent (arXiv 2602.24286): a sequence of resumable stages.

    warm_up/     reinforcement learning on single turns: `training.rl.loop`
    collected/   multi-turn rollouts of the warmed-up model: a run folder, as `bench` writes it
    chosen.jsonl the answers of the successful rollouts, each with its prompt: `curation.select.rft`
    fine_tune/   supervised fine-tuning of the warmed-up model on these answers: the result

A finished stage is skipped; a stopped stage is resumed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from kernelwright.bench.job import BenchOptions, BenchSuite, exchange_of, play
from kernelwright.curation import gather
from kernelwright.curation.samples import Episode
from kernelwright.curation.select import rft
from kernelwright.errors import ConfigError, StoreError
from kernelwright.evaluation import EvalOptions
from kernelwright.executor import Executor, load_executor
from kernelwright.report.terminal import stopped_line
from kernelwright.training.checkpoint import write_json
from kernelwright.training.fine_tune.settings import BaseModelSettings, SftSettings, TextSettings
from kernelwright.training.pretrain.progress import writing
from kernelwright.training.rl.settings import RejectionSettings, RlSettings

WARM_UP, COLLECTED, CHOSEN, FINE_TUNE = "warm_up", "collected", "chosen.jsonl", "fine_tune"
_BEGUN = (f"{WARM_UP}/rollouts", f"{WARM_UP}/training.json", COLLECTED, "collected.json", CHOSEN, FINE_TUNE)
"""Files and folders of which one exists once a stage has begun."""


def train_rejection(
    settings: RlSettings, out: Path, processes: int = 1, executor: Executor | None = None
) -> dict[str, Any]:
    """Runs the stages that `out` does not hold. Returns the facts of all stages.

    `processes`: the number of training processes. `executor`: judges candidates; None makes one. Raises `ConfigError`
    if no rollout passes the filters.
    """
    from kernelwright.training.fine_tune.run import begin

    wanted = settings.rejection
    assert wanted is not None
    begin(settings, out, _BEGUN)
    # The next stages load the warm-up's model, so it is merged regardless of the setting for the result.
    model = settings.model.model_copy(update={"merge": True})
    warm_up = settings.model_copy(update={"rejection": None, "model": model})
    warm = _train(warm_up, out / WARM_UP, processes, executor)
    collected = _collect(settings, wanted, out, executor)
    chosen = _choose(wanted, out, collected["rollouts"])
    _say(f"{chosen['rows']} answers of {chosen['kept']} rollouts out of {chosen['rollouts']} are kept")
    tuned = _train(fine_tune_settings(settings, wanted, out), out / FINE_TUNE, processes)
    facts = {**warm, "name": settings.name, "collected": collected, "chosen": chosen, "fine_tune": tuned}
    facts["model"] = str(out / FINE_TUNE)
    write_json(out / "training.json", facts)
    return facts


def _train(
    settings: RlSettings | SftSettings, out: Path, processes: int, executor: Executor | None = None
) -> dict[str, Any]:
    """Runs a training stage in one or several processes; returns the stored facts if it is done."""
    done = out / "training.json"
    if not done.is_file():
        _say(f"{out.name}: {'reinforcement learning' if isinstance(settings, RlSettings) else 'fine-tuning'}")
        from kernelwright.training.processes import train

        return train(settings, out, processes, executor)
    facts: dict[str, Any] = json.loads(done.read_text(encoding="utf-8"))
    return facts


def _collect(settings: RlSettings, wanted: RejectionSettings, out: Path, executor: Executor | None) -> dict[str, Any]:
    """Plays the missing rollouts."""
    from kernelwright.training.rl.loop import judging_jobs, load_tasks
    from kernelwright.training.rl.rollouts import fitting

    done = out / "collected.json"
    if done.is_file():
        known: dict[str, Any] = json.loads(done.read_text(encoding="utf-8"))
        return known
    _say(f"{COLLECTED}: rollouts of the warmed-up model")
    c, judging = wanted.collect, settings.judging
    policy = _policy(settings, wanted, out)
    tasks = fitting([t.at(judging.precision) for t in load_tasks(settings.tasks)], policy)[: c.limit]
    options = BenchOptions(
        policy="warm_up",
        suite="collected",
        samples=c.rollouts,
        temperature=c.temperature,
        turns=c.turns,
        seed=settings.seed,
        context=c.context,
        filter=judging.filter,
    )
    kept = {"backend", "trials", "timeout", "timing_seconds", "small_sizes", "precision"}
    wanted_of = {**judging.model_dump(include=kept), "baselines": judging.timed_beside()}
    judged = EvalOptions.model_validate(wanted_of)
    jobs = judging_jobs(settings)

    def judges() -> AbstractContextManager[Executor]:
        return nullcontext(executor) if executor else load_executor("apart", jobs, judging.backend)

    suite = BenchSuite(tasks, exchange_of(options, policy), judges)
    facts = {"tasks": len(tasks), "rollouts": len(tasks) * c.rollouts}

    def stopped(finished: int, in_flight: int) -> None:
        kept = f"; what is finished is kept in {out / COLLECTED}"
        _say(f"stopped: {stopped_line('rollouts', (finished, in_flight), facts['rollouts'], kept)}")

    play(suite, policy, options, judged, out / COLLECTED, on_stop=stopped)
    write_json(done, facts)
    return facts


def _policy(settings: RlSettings, wanted: RejectionSettings, out: Path) -> Any:
    from kernelwright.generation import load_backend
    from kernelwright.policies.starter import ConversationPolicy

    model = settings.model
    backend = load_backend(
        settings.rollout.backend,
        str(out / WARM_UP),
        tempered=True,
        attention=model.attention,
        trust_remote_code=model.trust_remote_code,
    )
    return ConversationPolicy(
        backend,
        "warm_up",
        temperature=wanted.collect.temperature,
        top_p=settings.rollout.top_p,
        max_tokens=settings.rollout.max_tokens,
    )


def _choose(wanted: RejectionSettings, out: Path, played: int) -> dict[str, Any]:
    """Writes the answers of the rollouts that pass CUDA Agent's filters, and counts the others by reason."""
    try:
        episodes = gather([out / COLLECTED])
    except StoreError:  # no answer at all
        episodes = []
    kept, dropped = rft(episodes, wanted.reward)
    if played > len(episodes):
        dropped = {**dropped, "no-answer": played - len(episodes)}
    rows = chosen_rows(kept)
    facts = {"rollouts": played, "kept": len(kept), "dropped": dropped, "rows": len(rows)}
    if not rows:
        why = ", ".join(f"{n} {reason}" for reason, n in dropped.items())
        raise ConfigError(
            f"none of {played} rollouts is worth fine-tuning on: {why}",
            hint="in another --out, warm up for longer (train.steps) or collect more (rejection.collect.rollouts)",
        )
    part = out / f"{CHOSEN}.part"
    with writing(part):
        part.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        os.replace(part, out / CHOSEN)
        write_json(out / "chosen.json", facts)
    return facts


def chosen_rows(kept: Sequence[Episode]) -> list[dict[str, Any]]:
    """Converts every turn of the kept rollouts to a row: the exact prompt and the answer, without duplicates.

    The loss is on the policy's own tokens only, as CUDA Agent's is on the tokens of actions.
    """
    rows: dict[str, dict[str, Any]] = {}
    for episode in kept:
        for turn in episode.turns:
            asked = [{"role": m.role, "content": m.content} for m in turn.messages]
            messages = [*asked, {"role": "assistant", "content": turn.answer}]
            name = f"{turn.rollout} · turn {turn.turn}"
            rows.setdefault(json.dumps(messages), {"row_id": name, "messages": messages, "verdict": turn.verdict})
    return list(rows.values())


def fine_tune_settings(settings: RlSettings, wanted: RejectionSettings, out: Path) -> SftSettings:
    """Returns the settings of the fine-tuning stage: the warmed-up model on the chosen answers."""
    model = BaseModelSettings(**{**settings.model.model_dump(), "path": str(out / WARM_UP)})
    return SftSettings(
        name=f"{settings.name}_fine_tune",
        seed=settings.seed,
        model=model,
        data=TextSettings(path=str(out / CHOSEN), length=wanted.length),
        loss=wanted.loss,
        train=wanted.train,
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
