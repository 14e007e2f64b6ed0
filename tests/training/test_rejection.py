"""Rejection fine-tuning end to end on a tiny model, stopped between and within its stages."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from undecided_model import rl_table  # noqa: E402

from kernelwright.bench.job import BenchRun  # noqa: E402
from kernelwright.errors import ConfigError  # noqa: E402
from kernelwright.executor import Executor, load_executor  # noqa: E402
from kernelwright.records import Evaluation, Message, Task, WorkloadResult  # noqa: E402
from kernelwright.runs.store import Store  # noqa: E402
from kernelwright.training.rl.settings import RlSettings  # noqa: E402


@pytest.fixture(scope="module")
def judges() -> Iterator[Executor]:
    with load_executor("local", 2, "cpu") as executor:
        yield executor


def settings(home: Path, **collect: Any) -> RlSettings:
    table = rl_table(
        home,
        name="rft",
        rollout={"rollouts": 2},
        reward={"name": "cuda_agent"},
        train={"steps": 1},
        rejection={
            "collect": {"rollouts": 4, "turns": 2, **collect},
            "length": 512,
            "train": {"steps": 2, "batch": 2, "micro_batch": 2, "lr": 1e-3, "warm_up": 0.0},
        },
    )
    return RlSettings.model_validate(table)


@pytest.mark.slow
def test_every_stage_resumes_and_only_what_paid_off_is_learnt(
    undecided: Path, judges: Executor, tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    from kernelwright.curation import gather
    from kernelwright.training.rejection import train_rejection

    out, asked = tmp_path / "rft", 0
    ask = BenchRun.ask

    def stopping(self: BenchRun, *words: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 4:
            raise KeyboardInterrupt
        return ask(self, *words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BenchRun, "ask", stopping)
        with pytest.raises(KeyboardInterrupt):
            train_rejection(settings(undecided), out, executor=judges)
    warm = (out / "warm_up" / "log.jsonl").read_text()
    facts = train_rejection(settings(undecided), out, executor=judges)
    assert (out / "warm_up" / "log.jsonl").read_text() == warm  # that stage was done
    chosen = facts["chosen"]
    assert chosen["rollouts"] == 8 and chosen["kept"] + sum(chosen["dropped"].values()) == 8 and chosen["kept"] >= 1
    with Store.open(out / "collected", writable=False) as store:
        assert store.meta["filter"] and store.meta["options"]["small_sizes"]  # as the warm-up is judged
    rows = [json.loads(line) for line in (out / "chosen.jsonl").read_text().splitlines()]
    said = {t.answer for e in gather([out / "collected"]) if any(t.correct for t in e.turns) for t in e.turns}
    assert rows and {row["messages"][-1]["content"] for row in rows} <= said
    tuned, base = (load_file(out / name / "model.safetensors") for name in ("fine_tune", "warm_up"))
    assert facts["fine_tune"]["updates"] >= 1 and any(not torch.equal(tuned[n].float(), base[n].float()) for n in base)
    before = (out / "fine_tune" / "model.safetensors").stat().st_mtime_ns
    assert train_rejection(settings(undecided), out, executor=judges) == facts
    assert (out / "fine_tune" / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.parametrize("done", ["warm_up/training.json", "warm_up/rollouts/step-000000.jsonl", "chosen.jsonl"])
def test_stages_of_other_settings_are_not_gone_on_with(tmp_path: Path, done: str) -> None:
    from kernelwright.config import dump_config
    from kernelwright.training.rejection import train_rejection

    begun, other = settings(tmp_path), settings(tmp_path, rollouts=5)
    (tmp_path / "settings.toml").write_text(dump_config(begun))
    (tmp_path / done).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / done).write_text("{}")
    with pytest.raises(ConfigError, match="other settings"):
        train_rejection(other, tmp_path)
    assert (tmp_path / "settings.toml").read_text() == dump_config(begun)


def test_rows_are_what_was_asked_and_answered_and_loops_are_left_out(tmp_path: Path) -> None:
    from kernelwright.curation.samples import CuratedSample, Episode
    from kernelwright.curation.select import rft
    from kernelwright.training.rejection import chosen_rows

    def episode(name: str, *turns: tuple[str, str]) -> Episode:
        task = Task(task_id="t", source="x = 1")
        samples = []
        for number, (code, verdict) in enumerate(turns):
            right = verdict == "correct"
            judged = Evaluation(
                task_id="t",
                task_hash="0",
                candidate_id=code,
                verdict="correct" if right else "wrong",
                reason="" if right else "other values",
                workloads=(WorkloadResult(name="w", passed=right),),
            )
            asked = (Message(role="user", content=f"{name} {number}"),)
            samples.append(CuratedSample(task, f"<{code}>", code, judged, "run", name, number, asked))
        return Episode(tuple(samples))

    good = episode("good", ("a", "wrong"), ("b", "correct"))
    episodes = [good, episode("loop", ("a", "correct"), ("a", "correct")), episode("poor", ("a", "wrong"))]
    kept, dropped = rft(episodes)
    assert kept == [good] and dropped == {"loop": 1, "no-reward": 1}
    assert [row["messages"] for row in chosen_rows([good, good])] == [
        [{"role": "user", "content": f"good {n}"}, {"role": "assistant", "content": f"<{code}>"}]
        for n, code in enumerate("ab")
    ]


@pytest.mark.slow
def test_nothing_worth_keeping_is_an_error_that_says_so(undecided: Path, judges: Executor, tmp_path: Path) -> None:
    from kernelwright.training.rejection import train_rejection

    shutil.copytree(undecided / "base", tmp_path / "warm_up")  # a model whose answers are unreadable
    (tmp_path / "warm_up" / "training.json").write_text("{}")
    with pytest.raises(ConfigError, match="none of 1 rollouts is worth") as error:
        train_rejection(settings(undecided, rollouts=1, turns=1, limit=1), tmp_path, executor=judges)
    assert "warm up for longer" in str(error.value.hint)
