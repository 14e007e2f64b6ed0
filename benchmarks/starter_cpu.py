"""Times the starter on two cores: samples of one task, and our compiled steps against torch's in one run.

    python benchmarks/starter_cpu.py CHECKPOINT|random [--samples 8] [--tokens 600] [--cores 2] [--json FILE]
                                     [--suite FILE --every 13]

`random` makes a checkpoint of the starter's shape. Every sample draws exactly `--tokens` tokens at T = 0.8, as if no
answer ended before, so that the time does not depend on the weights. For the ratio both ways alternate over a quarter
of the tokens. The file is written after each measurement. `--suite` times real answers of any length to every 13th of
its tasks instead.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelwright.inference.engine import Engine

PROMPT = 220
"""Tokens of the prompt with the task."""


def random_checkpoint(folder: Path) -> Path:
    """Writes an untrained checkpoint of the starter's shape, with a tokenizer from generated pairs."""
    import torch

    from kernelwright.corpus import pairs
    from kernelwright.training.checkpoint import save_model
    from kernelwright.training.model import ModelShape, TrainingDecoder
    from kernelwright.training.pretrain.tokenizer import save_tokenizer, train_tokenizer

    texts = [text for pair in pairs(1, 300, traces=False) for text in (pair.task.source, pair.answer)]
    save_tokenizer(train_tokenizer(texts, 4096), folder / "tokenizer", 4096)
    torch.manual_seed(0)
    save_model(TrainingDecoder(ModelShape(4096)), folder / "tokenizer", folder)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=600)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--suite")
    parser.add_argument("--every", type=int, default=13)
    asked = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: asked.cores])
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as `load_engine` does
    with tempfile.TemporaryDirectory() as scratch:
        folder = random_checkpoint(Path(scratch)) if asked.checkpoint == "random" else Path(asked.checkpoint)
        ways = (folder, asked.samples)
        for result in answered(*ways, asked.suite, asked.every) if asked.suite else measure(*ways, asked.tokens):
            text = json.dumps(result, indent=1)
            if asked.json:
                asked.json.write_text(text + "\n", encoding="utf-8")
    print(text)


def hardware() -> dict[str, str]:
    import torch

    cores = len(os.sched_getaffinity(0))
    where = f"{platform.machine()}, {cores} cores, load {os.getloadavg()[0]:.1f}"
    return {"date": datetime.date.today().isoformat(), "hardware": where, "torch": torch.__version__}


def answered(folder: Path, samples: int, suite: str, every: int) -> Iterator[dict[str, Any]]:
    """Times all samples of some tasks of a suite; yields the results after each task."""
    from kernelwright.inference.chat import task_prompt
    from kernelwright.inference.engine import Engine
    from kernelwright.inference.sampling import Sampling
    from kernelwright.records import Message
    from kernelwright.tasks import load_suite

    engine = Engine(folder, device="cpu", rows=samples)
    timed(Engine(folder, device="cpu", rows=samples), samples, 4)  # builds and warms up
    tasks: list[dict[str, Any]] = []
    result = hardware() | {"samples": samples, "temperature": 0.8, "tasks": tasks}
    for task in list(load_suite(suite))[every // 2 :: every]:
        prompt = engine.tokenizer.prompt([Message(role="user", content=task_prompt(task.source))])
        began, used = time.monotonic(), time.process_time()
        drawn = engine.generate([prompt] * samples, [Sampling(0.8, seed=i, max_tokens=3072) for i in range(samples)])
        seconds, cpu = time.monotonic() - began, time.process_time() - used
        tokens = sum(len(one.ids) for one in drawn)
        tasks.append(
            {"task": task.task_id, "tokens": tokens, "seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2)}
        )
        took = [row["seconds"] for row in tasks]
        yield result | {"median_seconds": statistics.median(took), "most_seconds": max(took)}


def measure(folder: Path, samples: int, tokens: int) -> Iterator[dict[str, Any]]:
    """Times all samples of one task; yields the results after each measurement."""
    from kernelwright.inference.compiled import CompiledStep
    from kernelwright.inference.engine import Engine

    ours = Engine(folder, device="cpu", rows=samples, dtype="fp32")  # otherwise the CPU's best choice
    torchs = Engine(folder, device="cpu", rows=samples, compiled=False)
    if ours._step is None:
        CompiledStep(ours.decoder, 1)  # says why
    for engine in (ours, torchs):
        timed(engine, samples, 4)  # warms up
    result: dict[str, Any] = {
        **hardware(),
        "samples": samples,
        "tokens_a_sample": tokens,
        "runs": [],
        "turns": {"tokens_a_sample": tokens // 4, "compiled": [], "torch": []},
    }
    for _ in range(2):
        result["runs"].append(timed(ours, samples, tokens))
        result["median_seconds"] = statistics.median(run["seconds"] for run in result["runs"])
        yield result
        for way, engine in (("compiled", ours), ("torch", torchs)):
            result["turns"][way].append(timed(engine, samples, tokens // 4))
        for what in ("seconds", "cpu_seconds"):
            best = {way: min(run[what] for run in result["turns"][way]) for way in ("compiled", "torch")}
            result[f"torch_over_compiled_{what}"] = round(best["torch"] / best["compiled"], 2)
        yield result


def timed(engine: Engine, samples: int, tokens: int) -> dict[str, float]:
    """Returns wall and CPU seconds for answers of exactly so many tokens."""
    from kernelwright.inference.sampling import Sampling

    engine.ends = frozenset()
    asked = [Sampling(0.8, seed=i, max_tokens=tokens) for i in range(samples)]
    prompt = [5 + i % 200 for i in range(PROMPT)]
    began, used = time.monotonic(), time.process_time()
    engine.generate([prompt] * samples, asked)
    return {
        "seconds": round(time.monotonic() - began, 3),
        "cpu_seconds": round(time.process_time() - used, 3),
    }


if __name__ == "__main__":
    main()
