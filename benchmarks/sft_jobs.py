"""Runs one job of `sft_methods.py` in a process of its own: data, an arm (training, then answers), or a cost.

    python benchmarks/sft_jobs.py OUT/jobs/NAME/job.json

Writes `result.json` beside the job when it is done. Running it again resumes.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Params = dict[str, Any]


def corpus(out: Path, folder: Path, params: Params) -> dict[str, Any]:
    """Builds a corpus of generated tasks with written answers; `judge`: none, cpu or gpu (timed)."""
    from kernelwright.corpus.build import CorpusPlan, build
    from kernelwright.corpus.pairs import recipe

    kinds = {"families": params.get("families"), "per_task": params.get("per_task")}
    made = recipe(seed=params["seed"], schedules=params["schedules"], **kinds)
    plan = CorpusPlan(made, params["tasks"], params["judge"], timing_seconds=params.get("timing_seconds", 1.0))
    end = time.monotonic() + params.get("seconds", float("inf"))

    def watch(progress: Any) -> None:
        if time.monotonic() > end:
            raise TimeoutError(f"{progress.rows} rows")

    try:
        manifest = build(out / "data" / params["name"], plan, 0, watch)
    except TimeoutError as over:  # the part on disk is read
        return {"stopped_at": str(over)}
    if params.get("made_up_times"):
        made_up_times(out / "data" / params["name"])
    return {k: v for k, v in manifest.items() if k in ("rows", "tasks", "verdicts", "seconds")}


def made_up_times(folder: Path) -> None:
    """Gives the correct rows invented times, to rehearse the speed parts without a GPU. They are never a result."""
    import zlib

    for path in sorted((folder / "data").glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for row in rows:
            if row["right"]:
                row |= {"judged": True, "verdict": "correct", "reason": "", "backend": "made up", "eager_ms": 1.0}
                row["speedup"] = round(0.5 + zlib.crc32(row["row_id"].encode()) % 1000 / 100, 3)
                row |= {"candidate_ms": round(1.0 / row["speedup"], 4), "speedup_low": None, "speedup_high": None}
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def suites(out: Path, folder: Path, params: Params) -> dict[str, Any]:
    """Writes held-out generated tasks, training tasks to draw pairs on, and suites that are given as files."""
    from kernelwright.generate import generate

    place = out / "suites"
    place.mkdir(exist_ok=True)
    counts = {}
    for name, (seed, count, split) in params["generated"].items():
        rows = [{"task_id": t.name, "reference": t.source} for t in generate(seed, count, split=split)]
        (place / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
        counts[name] = len(rows)
    for name, (path, limit) in params["files"].items():
        rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
        (place / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows[:limit]), encoding="utf-8")
        counts[name] = len(rows[:limit])
    return counts


def curated(out: Path, folder: Path, params: Params) -> dict[str, Any]:
    """Makes data sets of judged rows by methods of `curate`, of equal size if `params` require it."""
    import shutil

    from kernelwright.curation import CurationSettings, gather
    from kernelwright.curation.methods import load_method
    from kernelwright.curation.writing import write

    episodes = gather([out / params["source"]])
    size, counts = params.get("size"), {}
    if params.get("equal"):  # the same number of rows as ConCuR's rules keep
        size = len(load_method("concur")(episodes, CurationSettings()).rows)
    for method in params["methods"]:
        settings = CurationSettings(size=size, seed=params.get("seed", 0), per_task=4)
        target = out / "data" / f"{params['prefix']}{method}"
        shutil.rmtree(target, ignore_errors=True)
        made = load_method(method)(episodes, settings)
        counts[method] = write(target, made, method=method, runs=[params["source"]], settings=settings)["rows"]
    return {"rows": counts, "size": size, "episodes": len(episodes)}


def judged(out: Path, folder: Path, params: Params) -> dict[str, Any]:
    """Judges answers of all suites or one."""
    from sft_judging import judge

    return judge(out, params["backend"], params["timed"], params["follow"], params.get("only"))


def arm(out: Path, folder: Path, params: Params) -> dict[str, Any]:
    """Trains with the settings of `params`, if there are any; then draws answers on each suite."""
    facts: dict[str, Any] = {}
    model = params["base"]
    if params["settings"] is not None:
        from kernelwright.training.pretrain.progress import read_log

        model = str(folder / "run")
        began = time.monotonic()
        if params["trainer"] == "dpo":
            from kernelwright.training.fine_tune.dpo import train_dpo
            from kernelwright.training.fine_tune.settings import DpoSettings

            facts = train_dpo(DpoSettings.model_validate(params["settings"]), folder / "run").facts
        else:
            from kernelwright.training.fine_tune.settings import SftSettings
            from kernelwright.training.fine_tune.sft import train_sft

            facts = train_sft(SftSettings.model_validate(params["settings"]), folder / "run").facts
        facts["wall_seconds"] = round(time.monotonic() - began, 1)
        facts["curve"] = [
            {k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()}
            for row in read_log(folder / "run" / "log.jsonl")
        ]
    return {**facts, "answers": drawn(out, folder, params, model)}


def drawn(out: Path, folder: Path, params: Params, model: str) -> dict[str, Any]:
    """Draws several answers a task at a temperature with our own engine; each suite's file is written whole or not."""
    from sft_judging import load_tasks

    from kernelwright.inference import load_engine
    from kernelwright.inference.chat import task_prompt
    from kernelwright.inference.repeating import asking
    from kernelwright.inference.sampling import Sampling
    from kernelwright.records import Message

    engine, facts = load_engine(model), {}
    for suite in params["suites"]:
        path = folder / f"answers-{suite}.jsonl"
        if path.is_file():
            continue
        rows, prompts, samplings, said = [], [], [], []
        for name, task in load_tasks(out / "suites" / f"{suite}.jsonl").items():
            asked = asking(task_prompt(task.source))
            words = "\n\n".join([*([params["tag"]] if params.get("tag") else []), asked.text])
            ids = engine.tokenizer.prompt([Message(role="user", content=words)])
            if len(ids) >= engine.config.context - 1:
                continue
            for number in range(params["samples"]):
                rows.append({"task_id": name, "sample": number})
                prompts.append(ids)
                said.append(asked)
                seed = 100_000 * params["seed"] + 1000 * number + len(rows) % 997
                samplings.append(Sampling(params["temperature"], 1.0, 0, params["max_tokens"], seed))
        began = time.monotonic()
        done = engine.generate(prompts, samplings)
        seconds, tokens = time.monotonic() - began, sum(len(answer.ids) for answer in done)
        for row, answer, asked in zip(rows, done, said, strict=True):
            row |= {"candidate": asked.answered(answer.text), "tokens": len(answer.ids), "finish": answer.finish_reason}
        part = path.with_suffix(".part")
        part.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        part.rename(path)
        facts[suite] = {"answers": len(rows), "tokens": tokens, "seconds": round(seconds, 2)}
    return facts


def confidence(out: Path, folder: Path, params: Params) -> dict[str, Any]:
    """Measures the base's confidence in the gold tokens, inside CUDA and outside, in twenty bins: CuSeT's criterion."""
    import numpy as np
    import torch

    from kernelwright.training.fine_tune.run import load_model
    from kernelwright.training.fine_tune.samples import CUDA, TARGET, prepare
    from kernelwright.training.fine_tune.settings import SftSettings

    settings = SftSettings.model_validate(params["settings"])
    samples, _ = prepare(settings)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load_model(settings.model).to(device).eval()
    counts = {"cuda": np.zeros(20), "other": np.zeros(20)}
    for number in range(min(params["rows"], len(samples))):
        sample = samples[number]
        ids = torch.tensor(sample.ids.astype("int64"), device=device)[None]
        with torch.no_grad():
            log_probs = model(input_ids=ids).logits[0, :-1].float().log_softmax(-1)
        found = log_probs.gather(1, ids[0, 1:, None])[:, 0].exp().cpu().numpy()
        target = (sample.flags[1:] & TARGET) != 0
        inside = (sample.flags[1:] & CUDA) != 0
        for name, mask in (("cuda", inside & target), ("other", target & ~inside)):
            counts[name] += np.histogram(found[mask], bins=20, range=(0, 1))[0]
    return {
        name: {"bins": c.astype(int).tolist(), "below_0.1": float(c[:2].sum() / c.sum())} for name, c in counts.items()
    }


def cost(out: Path, folder: Path, params: Params) -> dict[str, Any]:
    """Compares our steps (`sft`, `cuset`) with those of TRL's own `SFTTrainer` on the same rows.

    Measures seconds of whole steps with their data, in turns, so that other load affects all alike, and each one's peak
    memory alone. Ratios are medians over turns of a step to TRL's of the same turn.
    """
    from kernelwright.bench import metrics
    from kernelwright.training.fine_tune.samples import prepare
    from kernelwright.training.fine_tune.settings import SftSettings

    if params.get("shape"):
        random_model(Path(params["settings"]["model"]["path"]), params["base"], params["shape"])
    settings = SftSettings.model_validate(params["settings"])
    samples, _ = prepare(settings)
    samples = samples.chosen(list(range(min(len(samples), settings.train.batch * 8))))
    names = ("trl", "sft", "cuset")
    alone = settings.model_copy(update={"train": settings.train.model_copy(update={"steps": 4})})
    peaks = {name: peak_bytes(made(name, alone, samples, folder / name)) for name in names}
    (folder / "partial.json").write_text(json.dumps({"peak_bytes": peaks}), encoding="utf-8")
    turns = settings.train.steps or 1
    settings = settings.model_copy(
        update={"train": settings.train.model_copy(update={"steps": params["rounds"] * turns})}
    )
    seconds = steps_in_turn({name: made(name, settings, samples, folder / name) for name in names})
    result: dict[str, Any] = {"seconds": seconds, "peak_bytes": peaks}
    for name in names[1:]:
        ratios = [ours / theirs for ours, theirs in zip(seconds[name], seconds["trl"], strict=True)]
        found = metrics.median(ratios)
        result[f"{name}_time_ratio"] = found and round(found.value, 4)
        result[f"{name}_time_interval"] = found and [round(found.low, 4), round(found.high, 4)]
        if peaks["trl"]:
            result[f"{name}_memory_ratio"] = round(peaks[name] / peaks["trl"], 4)
    return result


def random_model(folder: Path, tokenizer: str, shape: Params) -> None:
    """Writes a Qwen2 with random weights in bfloat16 and the base's tokenizer."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from kernelwright.training.fine_tune.merging import save_tokenizer_files

    if (folder / "config.json").is_file():
        return
    config = Qwen2Config(**shape, pad_token_id=0, eos_token_id=2, bos_token_id=None)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        torch.manual_seed(0)
        model = Qwen2ForCausalLM(config).to(torch.bfloat16)
    folder.mkdir(parents=True, exist_ok=True)
    save_tokenizer_files(tokenizer, folder)
    model.save_pretrained(folder)


def made(name: str, settings: Any, samples: Any, folder: Path) -> Any:
    """Returns TRL's own trainer, or ours with the loss of this name."""
    from kernelwright.training.fine_tune.settings import LossSettings
    from kernelwright.training.fine_tune.sft import arguments, make_trainer

    if name == "trl":
        return trl_trainer(settings, samples, folder)
    loss = LossSettings(name="cuset", window=256) if name == "cuset" else LossSettings()
    ours = settings.model_copy(update={"loss": loss})
    return make_trainer(ours, folder, arguments(ours, folder), samples, None)


def peak_bytes(trainer: Any) -> int:
    """Returns the peak of the device's memory that training takes alone, in bytes."""
    import gc
    import shutil

    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    trainer.train()
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    shutil.rmtree(trainer.args.output_dir, ignore_errors=True)
    del trainer
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return peak


def steps_in_turn(trainers: dict[str, Any]) -> dict[str, list[float]]:
    """Returns the seconds of each step, without the first three.

    Each trainer has a thread. One runs at a time, from the end of its last step to the end of its next.
    """
    import shutil
    import threading

    import torch
    from transformers import TrainerCallback

    turn = threading.Condition()
    waiting = list(trainers)
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    failures: list[BaseException] = []

    class Turns(TrainerCallback):
        def __init__(self, name: str) -> None:
            self.name, self.began = name, 0.0

        def on_train_begin(self, *_unused: Any, **_more: Any) -> None:
            self.wait()

        def on_step_end(self, *_unused: Any, **_more: Any) -> None:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            seconds[self.name].append(round(time.perf_counter() - self.began, 6))
            with turn:
                waiting.append(waiting.pop(0))
                turn.notify_all()
            self.wait()

        def wait(self) -> None:
            with turn:
                turn.wait_for(lambda: waiting[0] == self.name)
            self.began = time.perf_counter()

    def run(name: str) -> None:
        try:
            trainers[name].train()
        except BaseException as error:  # reported by the thread that waits for this one
            failures.append(error)
        with turn:
            waiting.remove(name)
            turn.notify_all()

    threads = []
    for name, trainer in trainers.items():
        trainer.add_callback(Turns(name))
        threads.append(threading.Thread(target=run, args=(name,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    for trainer in trainers.values():
        shutil.rmtree(trainer.args.output_dir, ignore_errors=True)
    if failures:
        raise failures[0]
    fewest = min(map(len, seconds.values()))
    return {name: found[min(3, fewest - 1) : fewest] for name, found in seconds.items()}


def trl_trainer(settings: Any, samples: Any, folder: Path) -> Any:
    """Returns TRL's own trainer with the same arguments, rows, model and adapter."""
    from datasets import Dataset
    from trl import SFTTrainer

    from kernelwright.training.fine_tune import run as post_run
    from kernelwright.training.fine_tune.samples import TARGET, load_tokenizer
    from kernelwright.training.fine_tune.sft import arguments

    rows = []
    for number in range(len(samples)):
        ids, flags = samples[number].ids.tolist(), samples[number].flags.tolist()
        labels = [token if flag & TARGET else -100 for token, flag in zip(ids, flags, strict=True)]
        rows.append({"input_ids": ids, "labels": labels})
    args = arguments(settings, folder)
    args.remove_unused_columns = True
    return SFTTrainer(
        model=post_run.load_model(settings.model),
        args=args,
        train_dataset=Dataset.from_list(rows),
        processing_class=load_tokenizer(settings.model.path),
        peft_config=post_run.adapter(settings.model),
    )


def several(out: Path, folder: Path, params: Params) -> dict[str, Any]:
    """Measures tokens a second on one device and on several with the same global batch, and sharded if possible."""
    from kernelwright.errors import KernelwrightError
    from kernelwright.training.fine_tune.settings import SftSettings
    from kernelwright.training.pretrain.progress import read_log
    from kernelwright.training.processes import train_in_processes

    found: dict[str, Any] = {}
    for name, count, fsdp in params["runs"]:
        table = {**params["settings"], "train": {**params["settings"]["train"], "fsdp": fsdp}}
        try:
            train_in_processes("sft", SftSettings.model_validate(table), folder / name, count)
        except KernelwrightError as error:  # an impossible measurement is a result, too
            found[name] = {"failed": str(error)[:500]}
            continue
        rows = [r for r in read_log(folder / name / "log.jsonl") if "num_tokens" in r]
        settled = rows[len(rows) // 3 :]
        tokens = settled[-1]["num_tokens"] - settled[0]["num_tokens"]
        seconds = settled[-1]["seconds"] - settled[0]["seconds"]
        found[name] = {
            "processes": count,
            "tokens_per_s": round(tokens / max(seconds, 1e-9)),
            "losses": [r["loss"] for r in rows],
        }
        (folder / "partial.json").write_text(json.dumps(found), encoding="utf-8")
    speeds = [found[name].get("tokens_per_s") for name, _, _ in params["runs"]]
    if speeds[0] and len(speeds) > 1 and speeds[1]:
        found["ratio"] = round(speeds[1] / speeds[0], 3)
    return found


KINDS: dict[str, Callable[[Path, Path, Params], dict[str, Any]]] = {
    "corpus": corpus,
    "suites": suites,
    "curated": curated,
    "judged": judged,
    "arm": arm,
    "confidence": confidence,
    "cost": cost,
    "several": several,
}


def main() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG: a killed driver leaves no job behind
    path = Path(sys.argv[1])
    job = json.loads(path.read_text(encoding="utf-8"))
    began = time.monotonic()
    result = KINDS[job["kind"]](Path(job["out"]), path.parent, job["params"])
    part = path.parent / "result.part"
    part.write_text(json.dumps({**result, "job_seconds": round(time.monotonic() - began, 1)}), encoding="utf-8")
    part.rename(path.parent / "result.json")


if __name__ == "__main__":
    main()
