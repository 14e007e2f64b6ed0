"""Evaluation by execution during fine-tuning: `kernelwright bench` on the current weights.

Every `bench.every` updates, the checkpoint is saved first; then the weights are written as a model, a policy answers
the suite, and the answers are judged into a run folder of `bench`. A run killed meanwhile resumes from that checkpoint
and reuses the folder. With several processes, rank 0 measures and the others wait.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback

from kernelwright.bench import job
from kernelwright.bench import numbers as benchfacts
from kernelwright.errors import ConfigError
from kernelwright.evaluation import EvalOptions
from kernelwright.policies import Policy, load_policy
from kernelwright.records import Message
from kernelwright.runs.store import Store
from kernelwright.training.fine_tune.merging import save_tokenizer_files, write_model
from kernelwright.training.fine_tune.samples import load_tokenizer
from kernelwright.training.fine_tune.settings import BaseModelSettings, BenchSettings
from kernelwright.training.pretrain.progress import BENCHES, read_log


class ExecutionCallback(TrainerCallback):
    """Measures every `settings.every` updates and after the last one. Set `trainer` before training."""

    trainer: Any = None

    def __init__(self, settings: BenchSettings, name: str, model: BaseModelSettings, out: Path) -> None:
        """Takes the base model. Raises `ConfigError` and `TaskError` for an unreadable suite and for a model without a
        chat template: before training, not after the first updates."""
        self.settings, self.name, self.tokenizer, self.out = settings, name, model.path, out
        if load_tokenizer(model.path, model.trust_remote_code).chat_template is None:
            raise ConfigError(f"{model.path!r} has no chat template: bench cannot ask it", hint="leave bench out")
        self._options(0)
        self._suite()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
        first = state.global_step == 0 and self.settings.at_start
        if first or (state.global_step > 0 and self._due(state)):  # the run was killed during a measurement
            self._measure(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
        if self._due(state):
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
        if self._due(state):
            self._measure(state)

    def _due(self, state: Any) -> bool:
        return bool(state.global_step % self.settings.every == 0 or state.global_step >= state.max_steps)

    def _measure(self, state: Any) -> None:
        """Measures the current weights. All processes call it; rank 0 judges, and its errors end the run."""
        step = int(state.global_step)
        known = read_log(self.out / BENCHES)
        if any(row["step"] == step for row in known):
            return
        folder = self.out / "bench" / f"step-{step:06d}"
        write_model(self.trainer, folder / "model")
        if state.is_world_process_zero:
            row = self._bench(folder, step)
            Trainer.log(self.trainer, {f"eval_{k}": v for k, v in row.items() if isinstance(v, float)})
            text = "".join(json.dumps(r) + "\n" for r in [*known, row])  # the last line may be partial
            (self.out / BENCHES).write_text(text, encoding="utf-8")
        self.trainer.accelerator.wait_for_everyone()

    def _bench(self, folder: Path, step: int) -> dict[str, Any]:
        import torch

        threads = torch.get_num_threads()
        self.trainer.processing_class.save_pretrained(str(folder / "model"))
        save_tokenizer_files(self.tokenizer, folder / "model")  # the original files, if the base model is a folder
        with torch.random.fork_rng():  # measuring must not change dropout
            policy = model_policy(folder / "model", self.trainer.processing_class, self.settings)
            job.play(self._suite(), policy, self._options(step), judging_options(self.settings), folder)
        del policy
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        torch.set_num_threads(threads)
        shutil.rmtree(folder / "model")
        with Store.open(folder, writable=False) as store:
            return {"step": step, **numbers(benchfacts.summarise(benchfacts.read(store)))}

    def _options(self, step: int) -> job.BenchOptions:
        s = self.settings
        return job.BenchOptions(
            policy=f"{self.name} at update {step}",
            suite=s.suite,
            samples=s.samples,
            greedy=s.greedy,
            temperature=s.temperature,
            top_p=s.top_p,
            seed=s.seed,
        )

    def _suite(self) -> job.BenchSuite:
        s = self.settings
        return job.load_bench_suite(
            self._options(0),
            judging_options(s),
            s.jobs or len(os.sched_getaffinity(0)),
            limit=s.limit,
            reference_field=s.reference_field,
            id_field=s.id_field,
        )


def judging_options(settings: BenchSettings) -> EvalOptions:
    """Returns the options for judging candidates."""
    return EvalOptions(
        backend=settings.backend,
        trials=settings.trials,
        timeout=settings.timeout,
        baselines=tuple(settings.baselines),
        timing_seconds=1.0 if settings.baselines else 0.0,
    )


def model_policy(folder: Path, tokenizer: Any, settings: BenchSettings) -> Policy:
    """Loads a policy: our engine if it supports the model and its chat template, else transformers."""
    kind = "starter" if _engine_can(folder, tokenizer) else "hf"
    return load_policy(f"{kind}:{folder}", temperature=settings.temperature, top_p=settings.top_p)


def _engine_can(folder: Path, tokenizer: Any) -> bool:
    from kernelwright.inference.decoder import DecoderConfig
    from kernelwright.inference.tokenizer import ChatTokenizer

    try:
        DecoderConfig.read(folder)
        ours = ChatTokenizer.load(folder).prompt([Message(role="user", content="x")])
    except ConfigError:
        return False
    asked = [{"role": "user", "content": "x"}]  # a template may add text, e.g. a system message
    text = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    return bool(ours == list(tokenizer(text, add_special_tokens=False)["input_ids"]))


def numbers(summary: dict[str, Any]) -> dict[str, Any]:
    """Returns the log entries of a bench: `compiled@k` and `pass@k`, with their intervals as `_low` and `_high`."""
    row: dict[str, Any] = {}
    for kind, name in (("compiled", "compiled"), ("correct", "pass")):
        for k, found in summary[kind].items():
            if found is not None:
                row[f"{name}@{k}"] = float(found["value"])
                row[f"{name}@{k}_low"], row[f"{name}@{k}_high"] = float(found["low"]), float(found["high"])
    if summary["greedy"] is not None:
        for kind, name in (("compiled", "greedy_compiled"), ("correct", "greedy_pass")):
            row[name] = float(summary["greedy"][kind]["value"])
    return {**row, "counts": summary["counts"], "verdicts": summary["verdicts"]}
