"""Puts a trained checkpoint where `--policy starter` looks for it, with a model card of its measurements.

    python benchmarks/ship_starter.py WORK TARGET [--config starter] [--runs FOLDER]

WORK is the folder of `device_starter.py` (`pieces.py` unpacks it from the returned pieces). TARGET gets the files for
inference, the weights as int8 (`inference/quantised.py`), `training.json`, and `README.md`. Its table holds the results
of the runs in WORK, with partial ones marked, and nothing that was not measured.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from pathlib import Path
from typing import Any

from device_starter import bench_facts
from safetensors import safe_open

from kernelwright.inference.quantised import WEIGHTS, read_weights, write_quantised
from kernelwright.training.card import card

SUITES = (
    "dev80: 80 problems of KernelBench's level 1; of splits that are kept out of training, 200 generated tasks each: "
    "combos (combinations of operators), fused (level 2's style), families (operators that training has in chains "
    "only); "
    "others: benchmarks/others, 60, 80, 60, 80, 80 and 60 tasks by other hands, the generator widened with an eye on "
    "the first 60"
)
FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
LOADED = "`AutoModelForCausalLM` and `AutoTokenizer` load it; the chat template adds the turns."
EXPANDED = """\
Its weights are int8 with one scale a row; the figures below are of the bfloat16 weights. `AutoTokenizer` loads this
folder; the chat template adds the turns. For `AutoModelForCausalLM`, write a bfloat16 folder first:

```sh
python -c "from kernelwright.inference.quantised import expand; expand('FOLDER', 'OUT')"
```"""


def measured(work: Path, config: str, runs: Path | None) -> dict[str, Any]:
    """Returns the rows of the card's table, of the runs in WORK and of runs from elsewhere."""
    facts = json.loads((work / "device_starter.json").read_text())
    rows: dict[str, Any] = {}
    more = {run.name: bench_facts(run) for run in sorted(runs.glob("*"))} if runs else {}
    for name, bench in [*sorted(facts["benches"].items()), *more.items()]:
        if name.startswith(f"{config}-") and bench.get("counts", {}).get("samples"):
            rows |= _bench(name.removeprefix(f"{config}-"), bench)
    cpu = _json(work / "starter_cpu.json")
    if cpu:
        seconds = cpu["median_seconds"]
        where = f"{cpu['samples']} samples of {cpu['tokens_a_sample']} tokens on a processor ({cpu['hardware']})"
        rows[where] = f"{seconds:.1f} s"
    hardware = facts.get("hardware", {})
    rows["measured on"] = (
        f"{hardware.get('gpu') or 'a processor'}, torch {hardware.get('torch')}, {hardware.get('date')}"
        + (", and where it says so on a processor" if more else "")
    )
    return rows | {"suites": SUITES}


def _bench(name: str, bench: dict[str, Any]) -> dict[str, str]:
    """Returns the rows of one suite: correct answers, and answers faster than eager."""
    counts, settings = bench["counts"], bench["settings"]
    suite, _, kind = name.rpartition(".")
    judged, tasks = counts["judged_tasks"], counts["tasks"]
    partial = "" if judged == tasks and not counts["pending"] else f" (only {judged} of {tasks} tasks were judged)"
    one = bench["correct"]["1"]
    share = f"{one['value']:.1%} [{one['low']:.1%}, {one['high']:.1%}]"
    label = "greedy" if kind == "greedy" else "one sample at T = 0.8"
    if settings["options"]["backend"] == "cpu":
        label += ", functional machine, reduced sizes"
    rows = {f"{suite}: correct, {label}": f"{share}{partial}"}
    if kind == "sampled":
        how = label.replace("one sample", f"any of {settings['samples']} samples")
        rows[f"{suite}: tasks correct, {how}"] = f"{bench['solved']} of {judged}{partial}"
    else:
        rows[f"{suite}: tasks correct, {label}"] = f"{bench['solved']} of {judged}{partial}"
    fast = (bench["fast"]["eager"] or {}).get("1")
    if fast:
        rows[f"{suite}: correct and faster than eager, {label}"] = f"{fast['1']['value']:.1%}"
    return rows


def stopped(work: Path, config: str) -> dict[str, Any]:
    """Returns the facts of a training that stopped before its last update, from its settings and its log."""
    folder = work / "models" / config
    settings, shape = _json(folder / "settings.json"), _json(folder / "config.json")
    halt = _json(work / f"{config}.json").get("checkpoints", {}).get(config, {})
    if not settings or not halt.get("stopped"):
        return {}
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    hardware, data, train = _json(work / "hardware.json"), settings["data"], settings["train"]
    made = data["generate"]
    with safe_open(folder / "model.safetensors", "np") as weights:
        count = sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())
    return {
        "name": settings["name"],
        "note": settings["note"],
        "parameters": count,
        "shape": {
            "layers": shape["num_hidden_layers"],
            "hidden": shape["hidden_size"],
            "heads": shape["num_attention_heads"],
            "kv_heads": shape["num_key_value_heads"],
            "feed_forward": shape["intermediate_size"],
            "vocabulary": shape["vocab_size"],
            "context": shape["max_position_embeddings"],
        },
        "pairs": {
            "source": f"{made['count']} pairs of a generated task and a written solution (seed {made['seed']})",
            "training": made["count"],
            "held_out": data["held_out"],
            "against": [Path(path).name for path in data["against"]],
            "one_operator": data["one_operator"],
        },
        "tokens": halt["tokens"],
        "updates": halt["step"],
        "stopped": f"{halt['step']} of {halt['total']} updates, the learning rate at {log[-1]['rate']:.1%} of its top",
        "held_out_loss": next(row["held_out_loss"] for row in reversed(log) if "held_out_loss" in row),
        "tokens_per_s": log[-1]["tokens_per_s"],
        "mfu": log[-1]["mfu"],
        "seconds": {"training": halt["seconds"], "preparing": _preparing(work, config)},
        "device": hardware["gpu"],
        "processes": 1,
        "precision": "bf16" if train["precision"] == "auto" else train["precision"],
        "torch": hardware["torch"],
    }


def _preparing(work: Path, config: str) -> float:
    """Returns the seconds of the pairs, which had a part of their own."""
    parts = [part for call in _json(work / "device_starter.json")["calls"] for part in call["parts"]]
    return next((part["seconds"] for part in parts if part["name"] == f"data-{config}"), 0.0)


def _json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())) if path.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--config", default="starter")
    parser.add_argument("--runs", type=Path, help="a folder with more bench runs, named like those in WORK/runs")
    asked = parser.parse_args()
    folder = asked.work / "models" / asked.config
    facts = _json(folder / "training.json") or stopped(asked.work, asked.config)
    if not facts:
        raise SystemExit(f"error: {folder} holds no training: a checkpoint without its facts is not shipped")
    seconds = facts["seconds"]  # of training, whose pairs existed before
    seconds["preparing"] = max(seconds["preparing"], _preparing(asked.work, asked.config))
    asked.target.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(folder / name, asked.target / name)
    write_quantised(read_weights(folder), asked.target / WEIGHTS)
    (asked.target / "training.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    usual = "--policy starter:FOLDER --run runs/try     # FOLDER: this folder"
    text = card(facts, measured(asked.work, asked.config, asked.runs))
    text = text.replace(usual, "--policy starter --run runs/try").replace(LOADED, EXPANDED)
    (asked.target / "README.md").write_text(text, encoding="utf-8")
    size = sum(path.stat().st_size for path in asked.target.iterdir())
    print(f"{asked.target}: {size / 1e6:.1f} MB")
    print(text)


if __name__ == "__main__":
    main()
