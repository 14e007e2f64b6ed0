"""How long the starter takes on two cores: samples of one task, against the same with plain products, in one run.

    python benchmarks/starter_cpu.py CHECKPOINT|random [--samples 8] [--tokens 600] [--cores 2] [--json FILE]

`random` makes a checkpoint of the starter's shape. Every sample draws exactly `--tokens` tokens at T = 0.8, as if no
answer ended before, so that what is timed does not depend on the weights. The two ways take turns.
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
from pathlib import Path
from typing import Any

PROMPT = 220
"""Tokens of the task."""


def random_checkpoint(folder: Path) -> Path:
    """A checkpoint of the starter's shape that was never trained, with a tokenizer from generated pairs."""
    import torch

    from kernelwright.corpus.pairs import pairs
    from kernelwright.training.checkpoint import save_model
    from kernelwright.training.model import Decoder, Shape
    from kernelwright.training.tokenizer import save_tokenizer, train_tokenizer

    texts = [text for pair in pairs(1, 300, traces=False) for text in (pair.task.source, pair.answer)]
    save_tokenizer(train_tokenizer(texts, 4096), folder / "tokenizer", 4096)
    torch.manual_seed(0)
    save_model(Decoder(Shape(4096)), folder / "tokenizer", folder)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=600)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: asked.cores])
    with tempfile.TemporaryDirectory() as scratch:
        folder = random_checkpoint(Path(scratch)) if asked.checkpoint == "random" else Path(asked.checkpoint)
        result = measure(folder, asked.samples, asked.tokens, asked.rounds)
    text = json.dumps(result, indent=1)
    if asked.json:
        asked.json.write_text(text + "\n", encoding="utf-8")
    print(text)


def measure(folder: Path, samples: int, tokens: int, rounds: int) -> dict[str, Any]:
    """Seconds for all samples of one task, our compiled step and torch's operators in turn."""
    import torch

    from kernelwright.inference.engine import Engine
    from kernelwright.inference.sampling import Sampling

    ways = {
        "compiled": Engine(folder, device="cpu", rows=samples),
        "torch": Engine(folder, device="cpu", rows=samples, compiled=False),
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    cpu: dict[str, list[float]] = {way: [] for way in ways}
    for engine in ways.values():
        engine.ends = frozenset()
    prompt = [5 + i % 200 for i in range(PROMPT)]
    for number in range(rounds + 1):
        for way, engine in ways.items():
            asked = [Sampling(0.8, seed=i, max_tokens=tokens if number else 4) for i in range(samples)]
            began, used = time.monotonic(), time.process_time()
            engine.generate([prompt] * samples, asked)
            if number:  # the first round warms up
                seconds[way].append(round(time.monotonic() - began, 3))
                cpu[way].append(round(time.process_time() - used, 3))
    best = {way: min(values) for way, values in seconds.items()}
    return {
        "date": datetime.date.today().isoformat(),
        "hardware": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}",
        "torch": torch.__version__,
        "samples": samples,
        "tokens_a_sample": tokens,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "median_seconds": {way: statistics.median(values) for way, values in seconds.items()},
        "torch_over_compiled": round(best["torch"] / best["compiled"], 2),
        "torch_over_compiled_cpu": round(min(cpu["torch"]) / min(cpu["compiled"]), 2),
    }


if __name__ == "__main__":
    main()
