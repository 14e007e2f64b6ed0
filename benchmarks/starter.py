"""Trains the starter model from scratch: pairs, tokenizer, each checkpoint; then measures sampling speed.

    python benchmarks/starter.py OUT [--configs starter,base] [--seconds N] [--set KEY=VALUE]...
                                 [--kinds varlen,flex,rows] [--samples 256] [--cpu-samples 0] [--json FILE]
                                 [--only data|train|export] [--shards N]

OUT/NAME holds each checkpoint with its log.jsonl (loss, held-out loss, tokens/s and MFU by update). `--seconds` bounds
the updates of every checkpoint and replaces its settings' value. `--kinds` then times 60 updates with each kind of
attention, on the first checkpoint's pairs. Sampling asks for held-out tasks at T = 0.8, on the GPU if there is one, and
for one task with `--cpu-samples` samples on the CPU. Running it again resumes. Prints one JSON object. `--only data`
makes the pairs; `export` writes a stopped run's last weights as a checkpoint. `--shards` is the number of existing
shards: missing ones are left out instead of made.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import torch

from kernelwright.config import load_config
from kernelwright.inference.engine import Engine
from kernelwright.inference.sampling import Sampling
from kernelwright.inference.tokenizer import ChatTokenizer
from kernelwright.training.checkpoint import load_state, save_model
from kernelwright.training.model import ModelShape, TrainingDecoder
from kernelwright.training.pretrain.job import pretrain
from kernelwright.training.pretrain.preparing import prepare_data
from kernelwright.training.pretrain.progress import read_log
from kernelwright.training.pretrain.settings import PretrainSettings, config_path
from kernelwright.training.pretrain.shards import Shards

PUBLISHED = 1.41e6
"""Tokens a second of a decoder of 28 M parameters on an H200 (bf16, torch.compile, length 1024), for comparison."""


def settings_of(name: str, overrides: list[str], seconds: float | None) -> PretrainSettings:
    """Returns a shipped run's settings, with the overrides and, if given, another length."""
    if seconds is not None:
        overrides = [*overrides, "train.steps=null", "train.tokens=null", f"train.seconds={seconds}"]
    return load_config(config_path(name), overrides, PretrainSettings)


def without_missing(settings: PretrainSettings, shards: int) -> PretrainSettings:
    """Returns the settings for as many pairs as the existing shards hold; unchanged if none or all exist."""
    made = settings.data.generate
    if made is None or not 0 < shards * made.shard < made.count:
        return settings
    fewer = settings.data.model_copy(update={"generate": made.model_copy(update={"count": shards * made.shard})})
    return settings.model_copy(update={"data": fewer})


def export(name: str, out: Path, settings: PretrainSettings) -> dict[str, Any]:
    """Writes a stopped run's last weights as a checkpoint, with a card that says so."""
    folder = out / name
    state = load_state(folder / "state" / "state.pt")
    if state is None:
        raise SystemExit(f"error: {folder} holds no state to export")
    tokenizer = ChatTokenizer.load(folder / "data")
    model = TrainingDecoder(ModelShape(tokenizer.size, **settings.model.model_dump()), "dense")
    model.load_state_dict(state["model"])
    save_model(model, folder / "data", folder)
    progress = state["progress"]
    words = f"# {name}\n\nNot finished: stopped after {progress['step']} updates, {progress['tokens']:,} tokens.\n"
    (folder / "README.md").write_text(words, encoding="utf-8")
    return {"stopped": True, **progress}


def train(name: str, out: Path, settings: PretrainSettings) -> dict[str, Any]:
    """Trains one checkpoint. Returns its facts, wall seconds and curve."""
    began = time.monotonic()
    facts = pretrain(settings, out / name).facts
    curve = [
        {key: row[key] for key in ("step", "tokens", "loss", "held_out_loss", "tokens_per_s", "mfu") if key in row}
        for row in read_log(out / name / "log.jsonl")
    ]
    speed = facts["tokens_per_s"]
    return {
        **facts,
        "wall_seconds": round(time.monotonic() - began, 1),
        "share_of_published_speed": speed and round(speed / PUBLISHED, 3),
        "curve": curve,
    }


def kinds(name: str, out: Path, settings: PretrainSettings, wanted: list[str]) -> dict[str, Any]:
    """Measures tokens a second of each kind of attention, over 60 updates on existing pairs."""
    found: dict[str, Any] = {}
    for kind in wanted:
        folder = out / f"kind-{kind}"
        folder.mkdir(exist_ok=True)
        if not (folder / "data").exists():
            (folder / "data").symlink_to((out / name / "data").resolve())
        table = settings.train.model_dump() | {
            "seconds": None,
            "tokens": None,
            "steps": 60,
            "attention": kind,
            "eval_every": 1000,
        }
        one = settings.model_copy(update={"train": type(settings.train)(**table)})
        try:
            facts = pretrain(one, folder).facts
            found[kind] = {key: facts[key] for key in ("tokens_per_s", "mfu", "loss")}
        except Exception as error:  # a kind that fails here is a result, too
            found[kind] = {"failed": f"{type(error).__name__}: {error}"[:300]}
    return found


def sample(folder: Path, count: int, cpu_count: int) -> dict[str, Any]:
    """Measures the speed of answers to held-out tasks."""
    shards = Shards.open(folder / "data" / "held-out", 4096)
    prompts = []
    for number in shards.usable.tolist():
        ids, prompt = shards.pair(number)
        prompts.append([int(i) for i in ids[:prompt]])
    found: dict[str, Any] = {}
    if torch.cuda.is_available() and count:
        engine = Engine(folder, device="cuda")
        asked = [prompts[i % len(prompts)] for i in range(count)]
        for run in ("first", "again"):  # the first one captures the graphs
            found[f"gpu_{run}"] = timed(engine, asked)
    if cpu_count:
        engine = Engine(folder, device="cpu", rows=cpu_count, threads=min(2, os.cpu_count() or 1))
        found["cpu"] = timed(engine, [prompts[0]] * cpu_count)
    return found


def timed(engine: Engine, prompts: list[list[int]]) -> dict[str, Any]:
    """Times answers at T = 0.8, each with a seed of its own."""
    began = time.monotonic()
    done = engine.generate(prompts, [Sampling(0.8, seed=i) for i in range(len(prompts))])
    seconds = time.monotonic() - began
    tokens = sum(len(r.ids) for r in done)
    return {
        "answers": len(done),
        "tokens": tokens,
        "seconds": round(seconds, 3),
        "tokens_per_s": round(tokens / seconds),
        "ended": sum(r.finish_reason == "stop" for r in done),
        "rows": engine.rows,
        "precision": str(engine.decoder.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads() if engine.device.type == "cpu" else None,
    }


def hardware() -> dict[str, Any]:
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    return {
        "date": datetime.date.today().isoformat(),
        "gpu": gpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--configs", default="starter,base")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    parser.add_argument("--kinds", default="")
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--cpu-samples", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", choices=("data", "train", "export"))
    parser.add_argument("--shards", type=int, default=0)
    parser.add_argument("--hardware", type=Path, help="only write the hardware's description to this file")
    asked = parser.parse_args()
    if asked.hardware:
        asked.hardware.write_text(json.dumps(hardware(), indent=1) + "\n", encoding="utf-8")
        return
    if asked.out is None:
        parser.error("OUT is missing")
    names = [name for name in asked.configs.split(",") if name]
    result: dict[str, Any] = {"hardware": hardware(), "checkpoints": {}, "sampling": {}}

    def keep() -> None:
        text = json.dumps(result, indent=1)
        (asked.json or asked.out / "starter.json").write_text(text + "\n", encoding="utf-8")

    for config in names:
        name = Path(config).stem
        settings = without_missing(settings_of(config, asked.overrides, asked.seconds), asked.shards)
        if asked.only == "data":
            prepare_data(settings, asked.out / name / "data", lambda text: print(text, file=sys.stderr, flush=True))
            continue
        if asked.only == "export":
            result["checkpoints"][name] = export(name, asked.out, settings)
            keep()
            continue
        result["checkpoints"][name] = train(name, asked.out, settings)
        keep()
        result["sampling"][name] = sample(asked.out / name, asked.samples, asked.cpu_samples)
        keep()
    wanted = [kind for kind in asked.kinds.split(",") if kind]
    if wanted and names:
        settings = settings_of(names[0], asked.overrides, asked.seconds)
        result["attention"] = kinds(names[0], asked.out, settings, wanted)
        keep()
    print(json.dumps({key: value for key, value in result.items() if key != "checkpoints"}))
    for name, facts in result["checkpoints"].items():
        print(name, json.dumps({k: v for k, v in facts.items() if k not in ("curve", "shape")}), file=sys.stderr)


if __name__ == "__main__":
    main()
